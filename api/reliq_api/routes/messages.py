"""Enqueue: one message, or a batch of them."""

from fastapi import Response

from reliq_api import schemas
from reliq_api.enqueue import cloudevents
from reliq_api.enqueue.batch import STREAM_LARGEST, Batch, read_batch
from reliq_api.enqueue.bodies import conflict, encode
from reliq_api.enqueue.idempotency import Answer, OnlyOnce, fingerprint, key_of
from reliq_api.enqueue.inbound import (
    DURABILITY,
    JSON,
    ONE_MESSAGE,
    SEND_FAILS,
    TRACEPARENT,
    read_body,
    read_head,
    read_message,
)
from reliq_api.http.docs import EVENT, body_of, header
from reliq_api.http.problems import Problem
from reliq_api.http.requests import BoundedRequest, fields
from reliq_api.http.route import RawCall, call_router, needs

router = call_router("messages", RawCall)


@router.post(
    "/queues/{queue}/messages",
    summary="Enqueue one message",
    status_code=201,
    response_model=schemas.Enqueued,
    **needs(
        "enqueue",
        fails=(*SEND_FAILS, "request_in_progress", "idempotency_mismatch"),
        answers={200: {"model": schemas.Enqueued, "description": "A duplicate of an earlier message"}},
        parameters=[
            header(
                "Idempotency-Key",
                "Within 24 hours, the same request is enqueued once and gets the same answer again.",
                minLength=1,
                maxLength=255,
                pattern="^[!#-~]+$",
            ),
            DURABILITY,
            TRACEPARENT,
        ],
        requestBody=ONE_MESSAGE,
    ),
)
async def enqueue(queue: schemas.QueueName, request: BoundedRequest) -> Response:
    """JSON as described, a CloudEvent in either mode, or a body of any other content type, kept byte for byte.

    Other content than JSON takes its options from headers: Reliq-Delay, Reliq-Ttl, Reliq-Key, Reliq-Limit-Key,
    Reliq-Cost, Reliq-Priority, Reliq-Id, Reliq-Dedup-Key, Reliq-Window, Reliq-Replace (true or false), Reliq-Debounce,
    Reliq-At-Most, and Reliq-Header-NAME for headers of the message; beside JSON they are refused. With Reliq-Durability
    the answer comes when the message has that durability. 503: not enqueued. 504: unknown; repeat the request with the
    same key.
    """
    state, headers = request.app.state, fields(request.scope)
    key = key_of(headers, request.state.access.id)
    head = read_head(headers, state.settings)
    body = await read_body(request, head)
    digest = "" if key is None else fingerprint(headers, body)
    message = read_message(head, body)
    del body  # it and the message's element are never in memory at the same time, unless it is the message's body

    async def send() -> Answer:
        await state.pressure.check()
        identity = await state.sends.send(queue, message, head.durability)
        answer = {"id": identity, "deduplicated": message.duplicate, **conflict(message)}
        return Answer(200 if message.duplicate else 201, encode(answer))

    if key is None:
        return (await send()).response()
    once = OnlyOnce(state.reliq.store, queue, key, digest, state.settings.send_timeout)
    return await once.answer(message, send)


@router.post(
    "/queues/{queue}/messages/batch",
    summary="Enqueue many messages",
    response_model=schemas.BatchEnqueued,
    **needs(
        "enqueue",
        fails=(*SEND_FAILS, "batch_too_large", "batch_incomplete"),
        parameters=[DURABILITY],
        requestBody=body_of(
            {
                JSON: {"type": "array", "items": {"$ref": "#/components/schemas/NewMessage"}},
                "application/x-ndjson": {"type": "string", "description": "One JSON object per line"},
                cloudevents.EVENTS: {"type": "array", "items": EVENT},
            }
        ),
    ),
)
async def enqueue_batch(queue: schemas.QueueName, request: BoundedRequest) -> Response:
    """A JSON array (up to 8 MiB), or NDJSON of any length up to 100,000 messages, enqueued while it arrives.

    200: every message is enqueued, or is a duplicate. Any other status: `results` has the outcome of each message that
    was read; messages after the last result were not read.
    """
    if "idempotency-key" in fields(request.scope):
        raise Problem("invalid_header", "a batch takes no Idempotency-Key: give its messages a dedup_key")
    state = request.app.state
    request.allow(STREAM_LARGEST, total=state.settings.stream_timeout)
    head, chunks = read_batch(request)
    queued = state.reliq.queue(queue)

    async def confirm() -> None:
        await state.guard.confirm(request.state.access, "enqueue", queue)

    batch = Batch(queued, state.pressure, state.settings, head, confirm)
    try:
        async for texts in chunks:
            await batch.add(texts)
            request.release(batch.finished)
    except Problem as problem:  # the body ended early or was empty: earlier messages may be enqueued
        raise problem if "results" in problem.extra else batch.stopped(problem) from None
    await batch.flush()
    return Answer(200, encode(batch.summary())).response()
