"""Charges over HTTP: what a run of a message of a lease has really cost."""

from fastapi import Request

from reliq.features.charges import schemas
from reliq.features.charges.steps import charge_leased
from reliq_api.consume.homes import holder
from reliq_api.http.route import call_router, needs
from reliq_api.schemas.base import Lease, QueueName

router = call_router("charges")


@router.post(
    "/queues/{queue}/leases/{lease}/charge",
    summary="Say what a run of a message has cost",
    **needs("consume", fails=("lease_lost",)),
)
async def charge(queue: QueueName, lease: Lease, wanted: schemas.ChargeRequest, request: Request) -> schemas.Charged:
    """In place of the `cost` of the message; a repeated request changes nothing. 409 if the lease does not hold it."""
    await request.app.state.reliq.store.run(charge_leased(*holder(queue, lease), wanted.id, wanted.actual))
    return schemas.Charged(id=wanted.id)
