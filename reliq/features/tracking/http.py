"""Single messages: find, cancel."""

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import Field

from reliq.features.tracking import schemas
from reliq.features.tracking.model import Cancellation
from reliq.features.tracking.text_search import MOST
from reliq_api.enqueue.bodies import answered
from reliq_api.http.problems import Problem
from reliq_api.http.route import call_router, needs
from reliq_api.routes.queues import existing
from reliq_api.schemas.base import QueueName

router = call_router("messages")

MOST_SEARCHED = 1_000_000  #: messages that one call looks at

Id = Annotated[str, Field(min_length=1, max_length=128)]

_STATUS = {Cancellation.CANCELLED: 200, Cancellation.TOLD: 202}


@router.get(
    "/queues/{queue}/messages/{id}",
    summary="Where a message is, and why",
    response_model=schemas.Found,
    **needs("operate", fails=("message_not_found",)),
)
async def find(queue: QueueName, id: Id, request: Request) -> Response:
    """Without its body. Delayed and dead messages are found at once, ready ones in about a second per million."""
    found = await (await existing(request, queue)).find(id)
    if found is None:
        raise _unknown(queue)
    return answered(found.summary())


@router.delete(
    "/queues/{queue}/messages/{id}",
    summary="Cancel a message",
    response_model=schemas.Cancelled,
    **needs(
        "operate",
        fails=("message_not_found", "message_done", "outcome_unknown"),
        answers={
            202: {
                "model": schemas.Cancelled,
                "description": "A consumer holds it, and learns it with its next heartbeat",
            }
        },
    ),
)
async def cancel(queue: QueueName, id: Id, request: Request) -> Response:
    """200: it is removed and never runs. 202: its consumer learns it with its next heartbeat. Safe to repeat."""
    result = await (await existing(request, queue)).cancel(id)
    match result:
        case Cancellation.UNKNOWN:
            raise _unknown(queue)
        case Cancellation.DONE:
            raise Problem("message_done", "the message was handled, or is a dead letter", result=result.value)
    return answered({"result": result.value}, _STATUS[result])


@router.get(
    "/queues/{queue}/search",
    summary="The messages that contain a text",
    response_model=schemas.Hits,
    **needs("operate"),
)
async def search(
    queue: QueueName,
    request: Request,
    text: Annotated[str, Query(min_length=1, max_length=1000, description="Upper and lower case differ.")],
    place: Annotated[Literal["ready", "delayed", "dead"] | None, Query(description="Only there; else in all.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Messages to find.")] = 50,
    most: Annotated[int, Query(ge=1, le=MOST_SEARCHED, description="Messages to look at.")] = MOST,
) -> Response:
    """In ids, headers, keys, errors and bodies; without the bodies. `looked` and `total` say how far it came."""
    hits = await (await existing(request, queue)).search(text, place=place, limit=limit, most=most)
    return answered(hits.summary())


def _unknown(queue: str) -> Problem:
    return Problem(
        "message_not_found",
        f"queue {queue!r} has no message with this id: it was handled, removed, or never sent",
        result=Cancellation.UNKNOWN.value,
    )


@router.post(
    "/queues/{queue}/cancel",
    summary="Cancel messages by key or headers",
    **needs("operate", fails=("invalid_message", "outcome_unknown")),
)
async def cancel_many(queue: QueueName, wanted: schemas.CancelRequest, request: Request) -> schemas.CancelledMany:
    """Those that are sent or put back while it runs may be missed: repeat it until it answers 0."""
    found = await existing(request, queue)
    result = await found.cancel_many(key=wanted.key, headers=wanted.headers, dry_run=wanted.dry_run)
    return schemas.CancelledMany(**asdict(result), dry_run=wanted.dry_run)
