"""Output over HTTP: a worker emits it, anyone reads it, as JSON or as Server-Sent Events."""

from typing import Annotated

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from reliq.features.output import schemas
from reliq.features.output.steps import Reading, emit_leased
from reliq.features.output.waiting import Streams
from reliq_api.consume.homes import holder
from reliq_api.enqueue.bodies import answered
from reliq_api.http.route import call_router, needs
from reliq_api.routes.queues import existing
from reliq_api.schemas.base import Lease, MessageId, QueueName

router = call_router("output")

EVENTS = "text/event-stream"


@router.post(
    "/queues/{queue}/leases/{lease}/emit",
    summary="Append a chunk to the output of a message",
    **needs("consume", fails=("invalid_message", "lease_lost")),
)
async def emit(queue: QueueName, lease: Lease, wanted: schemas.EmitRequest, request: Request) -> schemas.Emitted:
    """Appended while the lease is valid and holds the message; else 409."""
    steps = emit_leased(*holder(queue, lease), wanted.id, wanted.chunk, wanted.token)
    await request.app.state.reliq.store.run(steps)
    return schemas.Emitted(id=wanted.id)


@router.get(
    "/queues/{queue}/messages/{id}/output",
    summary="What the handler of a message emits",
    response_model=schemas.Output,
    **needs(
        "operate",
        fails=("invalid_message", "overloaded"),
        answers={200: {"content": {EVENTS: {"schema": {"type": "string"}}}, "description": "Chunks"}},
    ),
)
async def output(
    queue: QueueName,
    id: MessageId,
    request: Request,
    after: Annotated[str, Query(max_length=40, description="The id of a chunk that was read.")] = "",
    last_event_id: Annotated[str, Header(max_length=40)] = "",
) -> Response:
    """JSON: up to 100 chunks that are there. With `Accept: text/event-stream` those and all that follow, until the
    message has ended (`event: end`); `Last-Event-ID` goes on behind a chunk.
    """
    await existing(request, queue)
    state = request.app.state
    streams: Streams = state.listeners[Streams]
    follow = EVENTS in request.headers.get("accept", "")
    reading = Reading(streams.homes(queue), id, last_event_id or after, follow=follow, wait="1m")
    if not follow:
        chunks, more = await state.reliq.store.run(reading.page())
        answer = {"chunks": [one.members() for one in chunks], "more": more}
        return answered(answer)
    streams.check()

    async def confirm() -> None:
        await state.guard.confirm(request.state.access, "operate", queue)

    return StreamingResponse(streams.events(reading, confirm), media_type=EVENTS, headers={"X-Accel-Buffering": "no"})
