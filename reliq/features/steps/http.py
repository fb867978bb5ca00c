"""Durable handlers in any language: steps, sleeps and waits of the messages of a lease; signals."""

from base64 import b64encode
from typing import Annotated, Any

from fastapi import Query, Request, Response

from reliq.errors import SignalRefused
from reliq.features.steps import schemas
from reliq.features.steps.leased import Leased, states
from reliq.features.steps.signals import SignalSteps
from reliq.model.result import read_result
from reliq_api.consume.homes import holder
from reliq_api.enqueue.bodies import answered
from reliq_api.http.problems import Problem
from reliq_api.http.route import call_router, keyless, needs
from reliq_api.routes.queues import existing
from reliq_api.schemas.base import Lease, MessageId, QueueName

router = call_router("durable")

_OF_LEASE = ("invalid_message", "lease_lost")
_OF_SIGNAL = ("invalid_message", "signal_refused", "outcome_unknown")


@router.get(
    "/queues/{queue}/leases/{lease}/steps",
    summary="What earlier runs of a message have recorded",
    response_model=schemas.StepList,
    **needs("consume", fails=_OF_LEASE),
)
async def recorded(queue: QueueName, lease: Lease, id: Annotated[MessageId, Query()], request: Request) -> Response:
    """In the order in which they were recorded. Bytes as base64."""
    found = await request.app.state.reliq.store.run(Leased(*holder(queue, lease), id).entries())
    steps = [
        {"name": one.name, "result": _plain(one.value) if one.kind == "s" else None, "state": states[one.kind]}
        for one in found
    ]
    return answered({"id": id, "steps": steps})


@router.post(
    "/queues/{queue}/leases/{lease}/step",
    summary="Store the result of a step",
    response_model=schemas.StepStored,
    **needs("consume", fails=_OF_LEASE),
)
async def step(queue: QueueName, lease: Lease, wanted: schemas.StepRequest, request: Request) -> Response:
    """Stored while the lease is valid and holds the message; else 409. The first result of a name stays."""
    leased = Leased(*holder(queue, lease), wanted.id)
    stored, before = await request.app.state.reliq.store.run(leased.step(wanted.name, wanted.result))
    return answered({"id": wanted.id, "name": wanted.name, "result": _plain(stored), "before": before})


@router.post("/queues/{queue}/leases/{lease}/sleep", summary="Let a message sleep", **needs("consume", fails=_OF_LEASE))
async def sleep(queue: QueueName, lease: Lease, wanted: schemas.SleepRequest, request: Request) -> schemas.Slept:
    """`sleeping`: the message has left the lease, and comes back later. `over`: it has slept, so go on.

    `cancelled`: it is still in the lease; acknowledge it.
    """
    leased = Leased(*holder(queue, lease), wanted.id)
    state = await request.app.state.reliq.store.run(leased.sleep(wanted.name, wanted.seconds))
    return schemas.Slept(id=wanted.id, state=state)


@router.post(
    "/queues/{queue}/leases/{lease}/wait",
    summary="Let a message wait for a signal",
    response_model=schemas.Waited,
    **needs("consume", fails=_OF_LEASE),
)
async def wait(queue: QueueName, lease: Lease, wanted: schemas.WaitRequest, request: Request) -> Response:
    """`waiting`: the message has left the lease, and comes back with the signal. `given`: it is there, so go on.

    `cancelled`: it is still in the lease; acknowledge it.
    """
    leased = Leased(*holder(queue, lease), wanted.id)
    state, stored = await request.app.state.reliq.store.run(leased.wait(wanted.signal, wanted.timeout))
    return answered({"id": wanted.id, "state": state, "value": None if stored is None else _plain(stored)})


@router.post(
    "/queues/{queue}/messages/{id}/signals", summary="Give a signal to a message", **needs("enqueue", fails=_OF_SIGNAL)
)
async def give(queue: QueueName, id: MessageId, wanted: schemas.SignalRequest, request: Request) -> schemas.Signalled:
    """One that comes early is kept, up to a day. The first one counts. 409: the message has ended, or waits no more."""
    steps = SignalSteps(request.app.state.homes(queue)).give(id, wanted.name, wanted.value)
    return await _give(request, steps)


@router.post(
    "/queues/{queue}/signals/{token}", summary="Give the signal of a one-time link", **keyless(fails=_OF_SIGNAL)
)
async def give_by_link(
    queue: QueueName, token: str, wanted: schemas.LinkRequest, request: Request
) -> schemas.Signalled:
    """Needs no key: who has the link may give this one signal, once. `message.link` makes it."""
    return await _give(request, SignalSteps(request.app.state.homes(queue)).by_link(token, wanted.value))


async def _give(request: Request, steps: Any) -> schemas.Signalled:
    try:
        return schemas.Signalled(taken=await request.app.state.reliq.store.run(steps))
    except SignalRefused as error:
        raise Problem("signal_refused", str(error), outcome=error.outcome) from None


@router.get(
    "/queues/{queue}/parked",
    summary="Messages that wait for a signal",
    response_model=schemas.ParkedList,
    **needs("operate"),
)
async def parked(queue: QueueName, request: Request, limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> Response:
    """Without their bodies."""
    found = await (await existing(request, queue)).parked(limit)
    return answered({"messages": [one.summary() for one in found]})


def _plain(stored: bytes) -> Any:
    value = read_result(stored)
    return b64encode(value).decode() if isinstance(value, bytes) else value
