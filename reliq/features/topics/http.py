"""Topics: publish to all bound queues; list, add and remove bindings."""

from collections.abc import Callable, Sequence

from fastapi import APIRouter, Request, Response

from reliq import aio
from reliq.features.topics import schemas
from reliq.features.topics.aio import TopicCalls
from reliq.features.topics.routing import check_routing_key
from reliq.features.topics.steps import read_routes
from reliq.model.outgoing import NewMessage
from reliq_api.access.auth import Access
from reliq_api.enqueue.bodies import encode
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
from reliq_api.http.problems import Problem
from reliq_api.http.requests import BoundedRequest, fields
from reliq_api.http.route import RawCall, call_router, needs
from reliq_api.schemas.base import QueueName

publishing = call_router("topics", RawCall)
bindings = call_router("topics")


class Publishing(TopicCalls):
    """A publish that the access of the sender limits."""

    async def publish_checked(
        self,
        routing_key: str,
        message: NewMessage,
        check: Callable[[Sequence[str]], None],
        mandatory: bool,
        durability: str | None,
    ) -> dict[str, str]:
        """Publish as `publish` does. `check` gets exactly the queues that the message enters, and raises to refuse."""
        message = self._topics.prepared(message, {})
        return await self.store.run(self._topics.publish(routing_key, message, mandatory, durability, check=check))


@publishing.post(
    "/topics/{routing_key}/messages",
    summary="Publish a message",
    status_code=201,
    response_model=schemas.Published,
    **needs(
        "enqueue",
        fails=("invalid_name", "unroutable", *SEND_FAILS),
        answers={200: {"model": schemas.Published, "description": "No bound queue matches: the message was dropped"}},
        parameters=[
            {
                "name": "mandatory",
                "in": "query",
                "required": False,
                "description": "Whether it is an error (422 unroutable) if no pattern matches.",
                "schema": {"type": "boolean", "default": False},
            },
            DURABILITY,
            TRACEPARENT,
        ],
        requestBody=ONE_MESSAGE,
    ),
)
async def publish(routing_key: schemas.RoutingKey, request: BoundedRequest) -> Response:
    """A copy for every queue with a pattern that matches, in one atomic step: all of them or none.

    The body is as in an enqueue, but without a deduplication key. 504: all queues may have the message, or none;
    on a Redis Cluster also some of them.
    """
    schemas.check_key(routing_key)
    state, headers = request.app.state, fields(request.scope)
    if "idempotency-key" in headers:
        raise Problem("invalid_header", "publishing takes no Idempotency-Key: each queue would have its own")
    mandatory = _flag(request, "mandatory")
    head = read_head(headers, state.settings)
    message = read_message(head, await read_body(request, head))
    if head.is_event:
        message.dedup_key = None  # an event always has one
    await state.pressure.check()
    access: Access = request.state.access
    queues = await state.reliq.publish_checked(routing_key, message, access.check_reach, mandatory, head.durability)
    return Response(encode({"queues": queues}), 201 if queues else 200, media_type=JSON)


def _flag(request: Request, name: str) -> bool:
    values = request.query_params.getlist(name) or ["false"]
    if len(values) > 1 or values[0] not in ("true", "false"):
        raise Problem("invalid_request", f"{name} is true or false, given once")
    return values[0] == "true"


@bindings.get("/topics", summary="All bindings", **needs("metrics"))
async def list_bindings(request: Request) -> schemas.TopicList:
    """The bindings of the queues to which the key has rights."""
    reliq: aio.Reliq = request.app.state.reliq
    access: Access = request.state.access
    stats = await reliq.topics.stats()
    return schemas.TopicList(
        bindings=[
            schemas.TopicBinding(queue=one.queue, pattern=one.pattern)
            for one in await reliq.topics.list()
            if access.may_see(one.queue)
        ],
        alternate=_shown(access, stats.alternate),
        unroutable=stats.unroutable,
    )


def _shown(access: Access, queue: str | None) -> str | None:
    return queue if queue is not None and access.may_see(queue) else None


@bindings.get(
    "/topics/{routing_key}", summary="Queues that would get a message", **needs("metrics", fails=("invalid_name",))
)
async def match(routing_key: schemas.RoutingKey, request: Request) -> schemas.TopicMatch:
    """Nothing is sent."""
    check_routing_key(routing_key)
    reliq: aio.Reliq = request.app.state.reliq
    access: Access = request.state.access
    routes, alternate = await reliq.store.run(read_routes())
    queues = routes.match(routing_key)
    return schemas.TopicMatch(
        routing_key=routing_key,
        queues=[queue for queue in queues if access.may_see(queue)],
        alternate=None if queues else _shown(access, alternate),
    )


@bindings.put("/queues/{queue}/bindings/{pattern}", summary="Bind a queue to a pattern", **needs("topics"))
async def bind(queue: QueueName, pattern: schemas.Pattern, request: Request) -> schemas.BindingChanged:
    """The queue then gets messages published with a matching key. `#` in an address is written %23."""
    changed = await request.app.state.reliq.subscribe(queue, pattern)
    return schemas.BindingChanged(queue=queue, pattern=pattern, changed=changed)


@bindings.delete("/queues/{queue}/bindings/{pattern}", summary="End a binding", **needs("topics"))
async def unbind(queue: QueueName, pattern: schemas.Pattern, request: Request) -> schemas.BindingChanged:
    """The queue keeps its messages. Other processes notice within half a second."""
    changed = await request.app.state.reliq.unsubscribe(queue, pattern)
    return schemas.BindingChanged(queue=queue, pattern=pattern, changed=changed)


router = APIRouter()
router.include_router(publishing)
router.include_router(bindings)
