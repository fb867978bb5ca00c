"""Flows over HTTP: sent as one body, looked at, and cancelled."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from msgspec import Meta, Raw

from reliq import aio
from reliq.errors import ReliqError
from reliq.features.flows import schemas
from reliq.features.flows.aio import Flow
from reliq.features.flows.model import RULES, FlowMessage, OnFailure
from reliq.features.flows.opened import Parent
from reliq.model.keys import check_name
from reliq.protocol.holds import of_lease
from reliq_api.access.auth import Access
from reliq_api.consume.homes import holder
from reliq_api.enqueue.bodies import encode
from reliq_api.enqueue.entries import Entry
from reliq_api.enqueue.inbound import JSON, Form, Head, read_message
from reliq_api.http.docs import body_of
from reliq_api.http.faults import no_option
from reliq_api.http.misfits import misfit
from reliq_api.http.problems import Problem, of_error
from reliq_api.http.requests import BoundedRequest, fields
from reliq_api.http.route import RawCall, call_router, needs
from reliq_api.http.strict_json import read_json
from reliq_api.routes.queues import of_all_queues
from reliq_api.schemas.base import ListQuery, as_whole

LARGEST = 8 * 1024 * 1024  #: bytes of a flow
_SMALL = 64 * 1024  #: bytes of a flow for which a thread costs more than it spares
_AT_ONCE = 200  #: messages that are read before other requests have their turn

T = TypeVar("T")

sending = call_router("flows", RawCall)
looking = call_router("flows")

#: Headers of other calls that send, and what to do instead.
_NOT_TAKEN = {
    "Idempotency-Key": "only with a `parent` the same request again sends nothing",
    "Reliq-Durability": "its messages have the durability that their queues are configured with",
}
_SEND_FAILS = ("invalid_name", "queue_full", "overloaded", "outcome_unknown", "lease_lost")

Id = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", examples=["9f86d081884c7d65"])]


class Member(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message of a flow, as a request has it."""

    queue: str
    message: Raw
    after: list[Annotated[int, Meta(ge=0)] | float] = []
    on_failure: OnFailure = "fail"


class Opener(msgspec.Struct, forbid_unknown_fields=True):
    """The message whose handler opens a flow, in its lease."""

    queue: str
    lease: str
    id: str
    name: str = "flow"


class Members(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    messages: Annotated[list[Member], Meta(min_length=1)]
    parent: Opener | None = None


_decode = msgspec.json.Decoder(Members).decode
_MUST = {"on_failure": f"one of {', '.join(RULES)}"}
_UNKNOWN = re.compile(r"unknown field `(.*?)`(?: - at `\$\.(\w+)(?:\[(\d+)\])?`)?\Z", re.DOTALL)


@sending.post(
    "/flows",
    summary="Send a flow",
    status_code=201,
    response_model=schemas.SentFlow,
    **needs("enqueue", fails=_SEND_FAILS, requestBody=body_of({JSON: schemas.new_flow()})),
)
async def send_flow(request: BoundedRequest) -> Response:
    """Messages of which some wait until others are handled, up to 8 MiB. All are sent or, with an error, none.

    With a `parent` the scope `consume` for its queue too; the same request again sends nothing, and answers the same.
    Idempotency-Key and Reliq-Durability are refused.
    """
    state, headers = request.app.state, fields(request.scope)
    for name, instead in _NOT_TAKEN.items():
        if name.lower() in headers:
            raise Problem("invalid_header", f"a flow takes no {name}: {instead}")
    request.allow(LARGEST)
    text = await request.body()
    wanted = await _aside(len(text), _read, text)
    members = wanted.messages
    access: Access = request.state.access
    access.check_reach(list(dict.fromkeys(one.queue for one in members)))
    await state.pressure.check()
    head = Head.of(Form.ENTRY, headers, state.settings)
    flow: Flow = state.reliq.flow()
    if wanted.parent is not None:
        flow.parent = await _parent(state.reliq, access, wanted.parent)
    sent: list[FlowMessage] = []
    async with flow:
        for place, one in enumerate(members):
            places = list(map(as_whole, one.after))
            if any(isinstance(before, float) or not 0 <= before < place for before in places):
                raise Problem("invalid_request", f"message {place} of the flow is after {places}: name earlier ones")
            after = [sent[before] for before in places]
            if place % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)  # other requests
            with _named(place):
                message = read_message(head, bytes(one.message))
                sent.append(flow.send(one.queue, message, after=after, on_failure=one.on_failure))
    return Response(await _aside(len(text), _answer, flow.id, sent), 201, media_type=JSON)


async def _aside(size: int, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function; for a large request, of so many bytes, in a thread: other requests have their turn meanwhile."""
    if size < _SMALL:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def _read(text: bytes) -> Members:
    try:
        read_json(text)
        return _decode(text)
    except msgspec.ValidationError as error:
        raise _unfit(error, text) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Problem("invalid_json", f"the body is not JSON: {error}") from None


def _unfit(error: msgspec.ValidationError, text: bytes) -> Problem:
    """Return the problem of a flow that does not fit its schema; `error`: what msgspec says of it."""
    found = _UNKNOWN.search(str(error))
    if found is None:
        return Problem("invalid_request", misfit(error, text, "the flow", _MUST))
    name, place, number = found.groups()
    if number is not None:
        known, hint = Member.__struct_fields__, ""
        if name in Entry.__struct_fields__:
            known, hint = (), ': it belongs into "message", as {"queue": "orders", "message": {"body": 1}}'
        said = f"message {number} of the flow: {no_option(name, known, hint)}"
        return Problem("invalid_request", said, index=int(number))
    if place is not None:
        return Problem("invalid_request", f"the parent of the flow: {no_option(name, Opener.__struct_fields__)}")
    return Problem("invalid_request", f"the flow: {no_option(name, Members.__struct_fields__)}")


def _answer(flow: str, sent: Sequence[FlowMessage]) -> bytes:
    text: bytes = encode({"id": flow, "messages": [one._asdict() for one in sent]})
    return text


async def _parent(app: aio.Reliq, access: Access, parent: Opener) -> Parent:
    """Return the message whose handler opens a flow; raises LeaseLost, and Problem without the right to it."""
    check_name(parent.queue)
    if not access.may("consume", parent.queue):
        raise Problem("forbidden", "the key has no right to consume from the queue of the parent")
    hold = await app.store.run(of_lease(*holder(parent.queue, parent.lease), parent.id))
    return Parent(hold.message, parent.name, lambda: hold)


@contextmanager
def _named(place: int) -> Iterator[None]:
    """Say of an error which message of the flow has it, in its text and as `index`."""
    try:
        yield
    except (Problem, ReliqError) as error:
        problem = error if isinstance(error, Problem) else of_error(error)
        problem.detail = f"message {place} of the flow: {problem.detail}"
        problem.extra["index"] = place
        raise problem from None


@looking.get("/flows", summary="The flows that have not ended, oldest first", **needs("metrics"))
async def list_flows(request: Request, wanted: Annotated[ListQuery, Query()]) -> schemas.FlowList:
    """Needs a key for `*`: a flow may have messages in any queue."""
    found = await of_all_queues(request, "flows").flows(limit=wanted.limit)
    return schemas.FlowList(flows=[schemas.Flow(**one.summary()) for one in found])


@looking.get(
    "/flows/{id}",
    summary="The messages of a flow, and how far they are",
    response_model=schemas.FlowGraph,
    **needs("metrics", fails=("flow_not_found",)),
)
async def show_flow(id: Id, request: Request) -> Response:
    """Needs a key for `*`."""
    found = await of_all_queues(request, "flows").flow_progress(id)
    if found is None:
        raise _not_found(id)
    return Response(encode(found.graph()), media_type=JSON)


@looking.delete(
    "/flows/{id}",
    summary="Cancel the messages of a flow that have not ended",
    status_code=204,
    **needs("operate", fails=("flow_not_found",)),
)
async def cancel_flow(id: Id, request: Request) -> Response:
    """Needs a key for `*`. 404: it is not open."""
    if not await of_all_queues(request, "flows").cancel_flow(id):
        raise _not_found(id)
    return Response(status_code=204)


def _not_found(flow: str) -> Problem:
    return Problem("flow_not_found", f"there is no flow {flow!r}: it ended some time ago, or never existed")


router = APIRouter()
router.include_router(sending)
router.include_router(looking)
