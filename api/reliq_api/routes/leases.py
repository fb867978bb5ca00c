"""Consume from any language: lease, settle, extend."""

from fastapi import Request, Response

from reliq.contract.values import MAX_BATCH
from reliq.errors import ReliqError
from reliq.model.life import Report, checked_progress, checked_state
from reliq.model.message import Message
from reliq.protocol.outcomes import released
from reliq_api import schemas
from reliq_api.consume import leases
from reliq_api.consume.homes import holder
from reliq_api.consume.leases import Outcome
from reliq_api.consume.polls import Poll
from reliq_api.enqueue.bodies import answered, leased
from reliq_api.http.problems import Problem
from reliq_api.http.requests import BoundedRequest
from reliq_api.http.route import call_router, needs

ANSWER_LARGEST = 8 * 1024 * 1024  #: bytes of bodies in one answer

router = call_router("leases")


@router.post(
    "/queues/{queue}/leases",
    summary="Take messages",
    response_model=schemas.LeaseGiven,
    **needs("consume", fails=("outcome_unknown",)),
)
async def lease(queue: schemas.QueueName, wanted: schemas.LeaseRequest, request: BoundedRequest) -> Response:
    """Lease up to `limit` messages (and 8 MiB), oldest first; an empty list if none arrived within `wait` seconds.

    No other consumer gets them until they are settled or the lease ends; then the monitor returns them to the queue.
    """
    state = request.app.state
    poll = Poll(state.homes(queue), wanted.limit, wanted.lease, wanted.wait, _title(request))
    messages, surplus = _fitting(await state.polls.take(poll, request.gone))
    if messages and wanted.wait:
        try:
            await state.guard.confirm(request.state.access, "consume", queue)
        except (Problem, ReliqError):
            await state.reliq.store.run(poll.steps.leave())  # gives back its messages, uncharged
            raise
    if surplus:  # the oldest is handed back last, and so taken first
        await state.reliq.store.run(poll.steps.settle((), [released(message) for message in reversed(surplus)]))
    identity = poll.lease if messages else None
    if identity is not None:
        state.remembered.add(queue, identity, messages)
    states = await state.reliq.store.run(leases.states(poll.steps.keys, messages))
    answer = {
        "lease": identity,
        "lease_seconds": wanted.lease,
        "messages": [leased(message, wanted.encoding, states.get(message.id)) for message in messages],
    }
    return answered(answer)


def _title(request: Request) -> str:
    """Say whose lease it is: the address that asks, and the key."""
    key = request.state.access.id
    address = request.client.host if request.client else "unknown"
    return f"HTTP lease of {address}" + (f", key {key}" if key else "")


def _fitting(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Return the messages that fit into one answer, at least one, and the others."""
    size = 0
    for place, message in enumerate(messages):
        size += len(message.body)
        if place and size > ANSWER_LARGEST:
            return messages[:place], messages[place:]
    return messages, []


@router.post(
    "/queues/{queue}/leases/{lease}/settle",
    summary="Settle messages",
    response_model=schemas.SettleResult,
    **needs("consume", limited=False),
)
async def settle(
    queue: schemas.QueueName, lease: schemas.Lease, wanted: schemas.SettleRequest, request: Request
) -> Response:
    """Returns a code for each message, in the order ack, retry, dead, release. Safe to repeat. Not an extension."""
    state = request.app.state
    keys, consumer = holder(queue, lease)
    outcomes = _outcomes(wanted)
    elements = state.remembered.pop(queue, lease)
    codes = await state.reliq.store.run(leases.settle(keys, consumer, outcomes, elements))
    if elements is not None:
        state.remembered.put_back(queue, lease, elements)
    results = [{"id": one.id, "code": code} for one, code in zip(outcomes, codes, strict=True)]
    return answered({"results": results})


def _outcomes(wanted: schemas.SettleRequest) -> list[Outcome]:
    outcomes = [Outcome("ack", identity) for identity in wanted.ack]
    outcomes += [Outcome("retry", one.id, one.delay, one.error) for one in wanted.retry]
    outcomes += [Outcome("dead", one.id, text=one.reason) for one in wanted.dead]
    for one in wanted.release:
        outcomes.append(Outcome("release", one) if isinstance(one, str) else Outcome("release", one.id, one.delay))
    verbs: dict[str, str] = {}
    for outcome in outcomes:
        if verbs.setdefault(outcome.id, outcome.verb) != outcome.verb:
            raise Problem("invalid_request", f"message {outcome.id} occurs twice: give each message one outcome")
    if not 1 <= len(outcomes) <= MAX_BATCH:
        raise Problem("invalid_request", "settle from 1 to 1,000 messages at once")
    return outcomes


@router.post(
    "/queues/{queue}/leases/{lease}/extend",
    summary="Extend a lease",
    **needs("consume", fails=("lease_lost",), limited=False),
)
async def extend(
    queue: schemas.QueueName, lease: schemas.Lease, wanted: schemas.ExtendRequest, request: Request
) -> schemas.Extended:
    """The lease then ends in `lease` seconds. 409: it has already ended, or has no messages left."""
    cancelled = await request.app.state.reliq.store.run(leases.extend(*holder(queue, lease), wanted.lease))
    if cancelled is None:
        raise Problem("lease_lost", "the lease has ended, or all its messages are settled")
    return schemas.Extended(lease=lease, lease_seconds=wanted.lease, cancelled=cancelled)


@router.post(
    "/queues/{queue}/leases/{lease}/progress",
    summary="Report the progress of a message",
    **needs("consume", fails=("invalid_message", "lease_lost")),
)
async def report(
    queue: schemas.QueueName, lease: schemas.Lease, wanted: schemas.ProgressRequest, request: Request
) -> schemas.ProgressStored:
    """Stored while the lease is valid and holds the message; else 409. The next consumer of it gets the state."""
    await request.app.state.reliq.store.run(leases.report(*holder(queue, lease), wanted.id, _report(wanted)))
    return schemas.ProgressStored(id=wanted.id)


def _report(wanted: schemas.ProgressRequest) -> Report:
    if wanted.progress is None and wanted.state is None:
        raise Problem("invalid_request", "give progress, a number from 0 to 1, or state, or both")
    report = Report() if wanted.progress is None else checked_progress(wanted.progress, wanted.text)
    if wanted.state is not None:
        report.state = checked_state(wanted.state).state
    return report
