"""Enqueue: one message, or a batch of them."""

from fastapi import Request, Response

from reliq.errors import ReliqError
from reliq.model.outgoing import NewMessage
from reliq_api import schemas
from reliq_api.enqueue import cloudevents
from reliq_api.enqueue.batch import STREAM_LARGEST, Batch, reader_of
from reliq_api.enqueue.bodies import conflict, encode
from reliq_api.enqueue.idempotency import OnlyOnce, fingerprint, key_of, note
from reliq_api.enqueue.inbound import DURABILITY, JSON, check_size, durability_of, read_body, read_message, trace
from reliq_api.http.docs import EVENT, body_of, failures, header
from reliq_api.http.problems import Problem
from reliq_api.http.requests import BoundedRequest, fields
from reliq_api.http.route import RawCall, call_router, needs

router = call_router("messages", RawCall)

_PRODUCER_ERRORS = (
    "queue_full", "memory_pressure", "overloaded", "body_too_large", "unsupported_media_type", "outcome_unknown",
    "durability_unavailable",
)  # fmt: skip


@router.post(
    "/queues/{queue}/messages",
    summary="Enqueue one message",
    status_code=201,
    response_model=schemas.Enqueued,
    responses={
        200: {"model": schemas.Enqueued, "description": "A duplicate of an earlier message"},
        **failures(*_PRODUCER_ERRORS, "request_in_progress", "idempotency_mismatch"),
    },
    openapi_extra=needs(
        "enqueue",
        parameters=[
            header(
                "Idempotency-Key",
                "Within 24 hours, the same request is enqueued once and gets the same answer again.",
                minLength=1,
                maxLength=255,
                pattern="^[!#-~]+$",
            ),
            DURABILITY,
            header("traceparent", "Kept as a header of the message, with `tracestate`."),
        ],
        requestBody=body_of({JSON: schemas.NewMessage, cloudevents.EVENT: EVENT, "application/octet-stream": None}),
    ),
)
async def enqueue(queue: schemas.QueueName, request: BoundedRequest) -> Response:
    """JSON as described, a CloudEvent in either mode, or a body of any other content type, kept byte for byte.

    Other content than JSON takes its options from headers: Reliq-Delay, Reliq-Ttl, Reliq-Id, Reliq-Dedup-Key,
    Reliq-Window, Reliq-Replace (true or false), Reliq-Debounce, Reliq-At-Most, Reliq-Key, Reliq-Priority, and
    Reliq-Header-NAME for headers of the message. With Reliq-Durability any of them is answered only with that
    durability. 503: not enqueued. 504: unknown; repeat it with its key.
    """
    key = key_of(request)
    body = await read_body(request)
    digest = "" if key is None else fingerprint(request, body)
    message = read_message(request, body)
    del body  # it and the message's element are never in memory at the same time, unless it is the message's body
    check_size(message, request.app.state.settings.max_body)
    if key is not None:
        return await _enqueue_once(queue, request, message, OnlyOnce(queue, key, digest, _send_timeout(request)))
    return _answer(*await _send(queue, request, message))


async def _send(queue: str, request: Request, message: NewMessage) -> tuple[int, bytes]:
    state = request.app.state
    await state.pressure.check()
    identity = await state.sends.send(queue, message, durability_of(request))
    answer = {"id": identity, "deduplicated": message.duplicate, **conflict(message)}
    return 200 if message.duplicate else 201, encode(answer)


def _send_timeout(request: Request) -> float:
    timeout: float = request.app.state.settings.send_timeout
    return timeout


async def _enqueue_once(queue: str, request: Request, message: NewMessage, once: OnlyOnce) -> Response:
    store = request.app.state.reliq.store
    replayed: Response | None = await store.run(once.begin())
    if replayed is not None:
        return replayed
    once.guard(message)
    try:
        status, answer = await _send(queue, request, message)
    except (ReliqError, Problem):
        await note(store, once.forget())
        raise
    await note(store, once.end(status, answer))
    return _answer(status, answer)


def _answer(status: int, content: bytes) -> Response:
    return Response(content, status, media_type=JSON)


@router.post(
    "/queues/{queue}/messages/batch",
    summary="Enqueue many messages",
    response_model=schemas.BatchEnqueued,
    responses=failures(*_PRODUCER_ERRORS, "batch_too_large", "batch_incomplete"),
    openapi_extra=needs(
        "enqueue",
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
    if "idempotency-key" in fields(request):
        raise Problem("invalid_header", "a batch takes no Idempotency-Key: give its messages a dedup_key")
    state = request.app.state
    request.allow(STREAM_LARGEST, total=state.settings.stream_timeout)
    read, chunks = reader_of(request)
    queued = state.reliq.queue(queue)
    inherited, sure = trace(fields(request)), durability_of(request)

    async def confirm() -> None:
        await state.guard.confirm(request.state.access, "enqueue", queue)

    batch = Batch(queued, state.pressure, state.settings, read, inherited, sure, confirm)
    try:
        async for texts in chunks:
            await batch.add(texts)
            request.release(batch.finished)
    except Problem as problem:  # the body ended early or was empty: earlier messages may be enqueued
        raise problem if "results" in problem.extra else batch.stopped(problem) from None
    await batch.flush()
    return _answer(200, encode(batch.summary()))
