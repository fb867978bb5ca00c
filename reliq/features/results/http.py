"""What the handler of a message returned."""

from base64 import b64encode
from typing import Annotated

from fastapi import Query, Response
from msgspec import Raw
from pydantic import Field

from reliq.features.results import schemas
from reliq.features.results.waiting import Results
from reliq.model.result import read_result, result_json
from reliq_api.enqueue.bodies import answered
from reliq_api.http.requests import BoundedRequest
from reliq_api.http.route import call_router, needs
from reliq_api.routes.queues import existing
from reliq_api.schemas.base import Lasting, QueueName

router = call_router("messages")

MAX_WAIT = 60  #: seconds for a result

Id = Annotated[str, Field(min_length=1, max_length=128)]


@router.get(
    "/queues/{queue}/messages/{id}/result",
    summary="What the handler of a message returned",
    response_model=schemas.Result,
    **needs("operate", fails=("no_result", "handler_failed")),
)
async def result(
    queue: QueueName,
    id: Id,
    request: BoundedRequest,
    wait: Annotated[float, Lasting(longest=MAX_WAIT), Query(description="How long to wait for it.")] = 0,
) -> Response:
    """For handlers with `result=`. Reading a result does not remove it."""
    state = request.app.state
    await existing(request, queue)
    try:
        stored: bytes = await state.listeners[Results].get(queue, id, wait, request.gone)
    finally:
        if wait:
            await state.guard.confirm(request.state.access, "operate", queue)
    text = result_json(stored)
    value = b64encode(read_result(stored)).decode() if text is None else Raw(text)
    answer = {"result": value, "encoding": "base64" if text is None else "json"}
    return answered(answer)
