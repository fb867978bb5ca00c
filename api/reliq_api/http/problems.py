"""Errors as problem+json (RFC 9457), each with a code that keeps its meaning. docs/how-to/http.md lists them."""

import logging
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.routing import compile_path

from reliq.contract.values import cut
from reliq.errors import (
    ChangeUnderWay,
    DoneInPart,
    DurabilityUnavailable,
    HandlerFailed,
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    LeaseLost,
    NoResult,
    OutcomeUnknown,
    QueueFull,
    RedisUnavailable,
    ReliqError,
    Unroutable,
)
from reliq.protocol.durability import UNCONFIRMED
from reliq.runtime.looking import missing_now
from reliq_api.http.faults import faults

log = logging.getLogger("reliq.api")

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """The status and title of an error code."""

    status: int
    title: str
    retry_after: int | None = None  #: seconds; given with every answer of this kind


CODES = {
    "invalid_http": Kind(400, "Not HTTP that can be read"),
    "invalid_name": Kind(400, "A name that the grammar refuses"),
    "invalid_json": Kind(400, "The body is not JSON"),
    "invalid_header": Kind(400, "A header that cannot be read"),
    "unauthorized": Kind(401, "A key is needed"),
    "forbidden": Kind(403, "The key does not allow this"),
    "cross_site": Kind(403, "Started by another web site"),
    "not_found": Kind(404, "There is nothing here"),
    "queue_not_found": Kind(404, "There is no such queue"),
    "schedule_not_found": Kind(404, "There is no such schedule"),
    "dead_letter_not_found": Kind(404, "There is no such dead letter"),
    "message_not_found": Kind(404, "The queue has no such message"),
    "batch_not_found": Kind(404, "There is no such batch"),
    "flow_not_found": Kind(404, "There is no such flow"),
    "worker_not_found": Kind(404, "There is no such worker"),
    "no_result": Kind(404, "The message has no result"),
    "method_not_allowed": Kind(405, "Not with this method"),
    "request_timeout": Kind(408, "The request did not come in time"),
    "request_in_progress": Kind(409, "The first request with this key still runs", retry_after=1),
    "change_under_way": Kind(409, "An earlier change has not ended", retry_after=5),
    "lease_lost": Kind(409, "The lease is over"),
    "message_done": Kind(409, "The message has ended"),
    "signal_refused": Kind(409, "The message does not take the signal"),
    "handler_failed": Kind(409, "The message is a dead letter"),
    "body_too_large": Kind(413, "The body is too large"),
    "batch_too_large": Kind(413, "The batch has too many messages"),
    "unsupported_media_type": Kind(415, "A content type or encoding that cannot be read"),
    "invalid_request": Kind(422, "The request does not fit its schema"),
    "invalid_message": Kind(422, "The message cannot be sent"),
    "idempotency_mismatch": Kind(422, "The key was used for another request"),
    "batch_incomplete": Kind(422, "Some messages of the batch were refused"),
    "unroutable": Kind(422, "No queue is bound for it"),
    "durability_unavailable": Kind(422, "This Redis cannot be that sure"),
    "queue_full": Kind(429, "The queue is full", retry_after=1),
    "rate_limited": Kind(429, "Too many requests with this key"),
    "headers_too_large": Kind(431, "Too many or too large headers"),
    "internal_error": Kind(500, "A fault of the service"),
    "redis_unavailable": Kind(503, "Redis is away", retry_after=1),
    "incomplete": Kind(503, "Done in part", retry_after=5),
    "memory_pressure": Kind(503, "Redis is nearly full", retry_after=5),
    "overloaded": Kind(503, "The service has too much to do", retry_after=1),
    "not_ready": Kind(503, "The service cannot serve", retry_after=1),
    "outcome_unknown": Kind(504, "Carried out or not: that is unknown"),
}

_BY_STATUS = {404: "not_found", 405: "method_not_allowed", 400: "invalid_json", 422: "invalid_request"}

_AWAY, _UNCHANGED = "Redis cannot be reached or refuses", "; nothing was changed"

# The first match wins: subclasses before their base. Without a text, the error's own is used, without Redis' address.
_BY_ERROR: tuple[tuple[type[ReliqError], str, str], ...] = (
    (InvalidName, "invalid_name", ""),
    (InvalidMessage, "invalid_message", ""),
    (ChangeUnderWay, "change_under_way", ""),
    (InvalidSetting, "invalid_request", ""),
    (QueueFull, "queue_full", ""),
    (DurabilityUnavailable, "durability_unavailable", ""),
    (Unroutable, "unroutable", ""),
    (LeaseLost, "lease_lost", ""),
    (NoResult, "no_result", ""),
    (HandlerFailed, "handler_failed", ""),
    (DoneInPart, "incomplete", ""),
    (RedisUnavailable, "redis_unavailable", f"{_AWAY}{_UNCHANGED}."),
    (
        OutcomeUnknown,
        "outcome_unknown",
        "The call was sent to Redis and no answer came: it may have been carried out, or not.",
    ),
)


class Problem(HTTPException):
    """An error answer. `extra`: further members of the problem's JSON object."""

    def __init__(self, code: str, detail: str, *, retry_after: int | None = None, **extra: Any) -> None:
        kind = CODES[code]
        super().__init__(kind.status, detail)
        self.code = code
        self.title = kind.title
        self.extra = extra
        retry_after = kind.retry_after if retry_after is None else retry_after
        if retry_after is not None:
            self.headers = {"Retry-After": str(retry_after)}
            self.extra["retry_after"] = retry_after

    def members(self) -> dict[str, Any]:
        """The problem as a JSON object."""
        return {
            "type": f"urn:reliq:problem:{self.code}",
            "title": self.title,
            "status": self.status_code,
            "detail": self.detail,
            "code": self.code,
            **self.extra,
        }

    def response(self) -> Response:
        content = msgspec.json.encode(self.members())
        headers = {"Cache-Control": "no-store", **(self.headers or {})}
        return Response(content, self.status_code, headers=headers, media_type=MEDIA_TYPE)


def of_error(error: ReliqError) -> Problem:
    """Return the problem for an error of the library."""
    if isinstance(error, QueueFull) and error.reached:  # on a Redis Cluster: 4xx would mean that nothing was enqueued
        return Problem("outcome_unknown", str(error), queues=error.reached)
    if isinstance(error, QueueFull) and error.of_redis:
        return Problem("memory_pressure", str(error))
    for kind, code, text in _BY_ERROR:
        if isinstance(error, kind):
            said = str(error)
            if said.startswith(UNCONFIRMED):  # the text after a colon may contain Redis' address
                text = said.partition(": ")[0]
            said = text or said
            if error.enqueued:
                said = said.replace(_UNCHANGED, "")
            problem = Problem(code, said)
            # An operator learns which part of a cluster is away.
            if error.node and missing_now() is not None and code != "incomplete":
                problem = Problem(code, f"Node {error.node} of the cluster: {said}", node=error.node)
            if isinstance(error, OutcomeUnknown) and error.ids:
                problem.extra["ids"] = list(error.ids)
            if isinstance(error, DoneInPart):
                problem.extra.update(done=error.done, missing=error.missing)
            if isinstance(error, HandlerFailed):
                problem.extra.update(reason=error.reason, error=error.error)
            return problem
    log.error("internal_error: Redis answered something unexpected", exc_info=error)
    return Problem("internal_error", "Redis answered something unexpected; the log of the service says more.")


def of_request(error: ReliqError, request: Request) -> Problem:
    """Return the problem for an error during a request: one that only reads is not told that nothing was changed."""
    problem = of_error(error)
    if request.method in ("GET", "HEAD") and problem.code == "redis_unavailable":
        problem.detail = problem.detail.replace(_UNCHANGED, "")
    return problem


def status_of(error: Exception) -> int:
    """Return the HTTP status for this error."""
    if isinstance(error, AnyHTTPException):
        return error.status_code
    if isinstance(error, RequestValidationError):
        return CODES["invalid_request"].status
    return of_error(error).status_code if isinstance(error, ReliqError) else 500


def install(app: FastAPI) -> None:
    """Make the application answer every error of an endpoint as a problem."""
    app.add_exception_handler(AnyHTTPException, _http)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(ReliqError, _reliq)
    app.add_exception_handler(Exception, _unexpected)


def _http(request: Request, error: Exception) -> Response:
    if isinstance(error, Problem):
        return error.response()
    assert isinstance(error, AnyHTTPException)  # noqa: S101  what it was installed for
    code = _BY_STATUS.get(error.status_code, "internal_error")
    asked = cut(f"{request.method} {request.scope['path']}", 300)
    unknown = f"there is no call {asked}: /openapi.json has all of them"
    problem = Problem(code, unknown if error.status_code in (404, 405) else str(error.detail))
    problem.status_code = error.status_code
    problem.headers = {**(error.headers or {}), **(problem.headers or {})}
    if error.status_code == 405 and (methods := _methods_of(request)):
        problem.headers["Allow"] = ", ".join(methods)  # the router knows only those of one route
    return problem.response()


def _methods_of(request: Request) -> list[str]:
    """Return all methods of the path, from OpenAPI."""
    path, paths = request.scope["path"], request.app.openapi()["paths"]
    matching = [template for template in paths if _pattern(template).match(path)]
    if not matching:
        return []
    methods = [method.upper() for method in paths[min(matching, key=lambda template: template.count("{"))]]
    return ["HEAD", *methods] if "GET" in methods else methods


@cache
def _pattern(template: str) -> re.Pattern[str]:
    return compile_path(template)[0]


def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  what it was installed for
    found = faults(request, error.errors()[:20])
    return Problem("invalid_request", "; ".join(one["message"] for one in found[:3]), errors=found).response()


def _reliq(request: Request, error: Exception) -> Response:
    assert isinstance(error, ReliqError)  # noqa: S101  what it was installed for
    return of_request(error, request).response()


def _unexpected(request: Request, error: Exception) -> Response:
    return Problem("internal_error", "The service failed; its log says more.").response()
