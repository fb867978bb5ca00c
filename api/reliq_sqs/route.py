"""A request on its way: limits, body, sender, action, answer in the protocol that it speaks."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.datastructures import State
from starlette.types import Message, Receive, Scope, Send

from reliq.errors import InvalidMessage, OutcomeUnknown, QueueFull, RedisUnavailable, ReliqError
from reliq.observability.histograms import Measurements
from reliq_api.http.buffered import Buffered
from reliq_api.http.cycle import ANSWER
from reliq_api.http.problems import Problem
from reliq_api.http.requests import BoundedBody, check_headers, fields
from reliq_sqs import checking, wire_json, wire_query, wire_query_json
from reliq_sqs.actions import HANDLERS
from reliq_sqs.calls import Call, Endpoint
from reliq_sqs.errors import SqsError
from reliq_sqs.guard import Guard
from reliq_sqs.ids import random_id
from reliq_sqs.model import Action
from reliq_sqs.settings import Settings

log = logging.getLogger("reliq.sqs")

BODY_LARGEST = 8 * 1024 * 1024  #: bytes; a batch of 1 MiB has up to six times that as JSON with escapes
_NO_STORE = (b"cache-control", b"no-store")
_OF_PROBLEM = {
    "body_too_large": "RequestEntityTooLarge",
    "request_timeout": "RequestTimeout",
    "memory_pressure": "ServiceUnavailable",
    "overloaded": "ServiceUnavailable",
}


class Answer(NamedTuple):
    """The answer to a request, which is sent without Starlette's classes: they would cost as much as an enqueue."""

    body: bytes
    status: int
    headers: list[tuple[bytes, bytes]]


class Wire(NamedTuple):
    """How a client is answered."""

    media_type: str
    answer: Callable[[Action, dict[str, Any], str], bytes]  #: the body of a result
    error_answer: Callable[[SqsError, str], tuple[bytes, dict[str, str]]]  #: the body and the headers of an error


JSON = Wire(wire_json.MEDIA_TYPE, wire_json.answer, wire_json.error_answer)
QUERY = Wire(wire_query.MEDIA_TYPE, wire_query.answer, wire_query.error_answer)
QUERY_AS_JSON = Wire(wire_query_json.MEDIA_TYPE, wire_query_json.answer, wire_query_json.error_answer)


@dataclass(slots=True)
class SqsRequest:
    """What a request asks for, and how it wants the answer."""

    wire: Wire
    action: Action | None = None


class AppState:
    """What a request needs of the state of a started application; the attributes of that are slow to read."""

    def __init__(self, state: State) -> None:
        self.settings: Settings = state.settings
        self.buffered: Buffered = state.buffered
        self.measurements: Measurements = state.measurements
        self.guard: Guard = state.guard
        self.endpoint: Endpoint = state.endpoint


class SqsRoute:
    """The ASGI application for all paths of SQS: they are part of queue URLs."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    @cached_property
    def _state(self) -> AppState:
        return AppState(self._app.state)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state
        request = BoundedBody(scope, receive, state.buffered, state.settings.body_timeout, BODY_LARGEST)
        request_id = random_id()
        headers = fields(scope)
        asked = SqsRequest(_wire_of(headers))
        started, status = time.monotonic(), 500
        try:
            try:
                answer = await self._carry_out(request, asked, request_id)
            except Exception as error:  # noqa: BLE001  the client gets an answer, whatever it is
                refusal = _sqs_error(error)
                body, more = asked.wire.error_answer(refusal, request_id)
                answer = _response(body, refusal.status, asked.wire, request_id, more)
            status = answer.status
        finally:
            request.release()
            action = asked.action.name if asked.action else "unknown"
            state.measurements.answered(scope["method"], f"/sqs/{action}", status, time.monotonic() - started)
        whole: Message = {"type": ANSWER, "status": answer.status, "headers": answer.headers, "body": answer.body}
        if ANSWER in (scope.get("extensions") or ()):
            await send(whole)
        else:  # a server of others
            await send({**whole, "type": "http.response.start"})
            await send({**whole, "type": "http.response.body"})

    async def _carry_out(self, request: BoundedBody, asked: SqsRequest, request_id: str) -> Answer:
        state, scope = self._state, request.scope
        check_headers(scope)
        if scope["method"] not in ("GET", "POST"):
            raise SqsError("UnsupportedOperation", "Requests of SQS are GET or POST.")
        headers = fields(scope)
        body = await request.take()
        sender, region = await state.guard.admit(scope, headers, body)
        given, valid = _understood(scope, asked, headers, body)
        action = asked.action
        assert action is not None  # noqa: S101  it was understood
        if not sender.allows(action.name):
            raise SqsError(
                "AccessDeniedException", f"User: {sender.id} is not authorized to perform: sqs:{action.name}"
            )
        parameters = given if valid else checking.checked(action.takes, given)
        call = Call(
            state.endpoint, action.name, sender, region,
            partial(_base_url, scope, headers, state.settings.endpoint_url), parameters, request.gone,
            headers.get("x-amzn-trace-id", ""),
        )  # fmt: skip
        result = await HANDLERS[action.name](call)
        return _response(asked.wire.answer(action, result, request_id), 200, asked.wire, request_id, {})


def _wire_of(headers: Mapping[str, str]) -> Wire:
    if "x-amz-target" in headers:
        return JSON
    return QUERY_AS_JSON if wire_query_json.is_wanted(headers) else QUERY


def _understood(scope: Scope, asked: SqsRequest, headers: dict[str, str], body: bytes) -> tuple[Any, bool]:
    """Return the parameters, and whether they are checked, else as they were sent; note the action. Raises SqsError."""
    path = scope["path"] if scope["path"].strip("/") else ""
    if asked.wire is JSON:
        asked.action = wire_json.action_of(headers["x-amz-target"])
        read = wire_json.valid(asked.action, body)
        given = wire_json.parameters(body) if read is None else read
        if path and isinstance(given, dict) and "QueueUrl" in asked.action.takes.members:
            given.setdefault("QueueUrl", path)
        return given, read is not None
    form = wire_query.fields(scope["query_string"])
    if body:
        form += wire_query.fields(body)
    name = next((value for field, value in form if field == "Action"), None)
    if name is None:
        asked.wire = QUERY  # AWS says this in XML to all
        raise SqsError("UnknownOperationException", "The request has neither an Action nor an X-Amz-Target.", 404)
    asked.action = wire_query.action_of(name)
    if path:  # the address of a queue
        if "QueueUrl" not in asked.action.takes.members and name != "GetQueueUrl":
            raise wire_query.no_action(name)
        if all(field != "QueueUrl" for field, _ in form):
            form.append(("QueueUrl", path))
    return wire_query.parameters(asked.action, form), False


def _base_url(scope: Scope, headers: dict[str, str], endpoint_url: str | None) -> str:
    """Return the beginning of queue URLs: that of the settings, else as the client reaches the endpoint."""
    if endpoint_url is not None:
        return endpoint_url.rstrip("/")
    host = headers.get("host", "")
    scheme = scope.get("scheme", "http")
    if not host or urlsplit(f"//{host}").path:
        server = scope.get("server") or ("localhost", None)
        host = server[0] if server[1] is None else f"{server[0]}:{server[1]}"
    return f"{scheme}://{host}"


def _sqs_error(error: Exception) -> SqsError:
    """Return what a client is told of an error."""
    match error:
        case SqsError():
            return error
        case Problem():
            name = _OF_PROBLEM.get(error.code, "InvalidParameterValueException")
            return SqsError(name, str(error.detail))
        case InvalidMessage():
            return SqsError("InvalidParameterValueException", str(error))
        case QueueFull(of_redis=True):
            return SqsError("ServiceUnavailable", "Redis is at its maxmemory; nothing was changed.")
        case QueueFull():
            return SqsError("OverLimit", "The queue is full: it has a limit of its size.")
        case OutcomeUnknown():
            return SqsError("ServiceUnavailable", "Redis did not answer: the call may have been carried out, or not.")
        case RedisUnavailable():
            return SqsError("ServiceUnavailable", "Redis cannot be reached; nothing was changed.")
        case ReliqError():
            log.error("a call to Redis failed: %s: %s", type(error).__name__, error)
        case _:
            log.error("a request failed unexpectedly", exc_info=error)
    return SqsError("InternalFailure", "The request processing has failed.")


def _response(body: bytes, status: int, wire: Wire, request_id: str, headers: dict[str, str]) -> Answer:
    every = [
        _NO_STORE,
        (b"x-amzn-requestid", request_id.encode()),
        (b"content-type", wire.media_type.encode()),
        (b"content-length", b"%d" % len(body)),
        *((name.encode(), value.encode()) for name, value in headers.items()),
    ]
    return Answer(body, status, every)
