"""The steps before every call: header limits, the key, then a body read within its limit."""

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.routing import Match

from reliq.errors import ReliqError
from reliq.runtime.looking import looking
from reliq_api.access.keyring import Scope
from reliq_api.http.docs import failures
from reliq_api.http.faults import check_query
from reliq_api.http.paths import restored
from reliq_api.http.problems import of_request, status_of
from reliq_api.http.requests import BoundedRequest

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_OPERATORS: tuple[Scope, ...] = ("metrics", "operate")
#: Error codes of each call with a body, and with a queue in its path.
_OF_BODY, _OF_QUEUE = ("invalid_json", "body_too_large"), ("invalid_name",)


class Call(APIRoute):
    """A route with its scope in `openapi_extra`; it cannot be declared without one."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        extra = self.openapi_extra or {}
        if "x-fails" in extra:  # not where the application takes it over from its router
            has_body = self.body_field is not None or "requestBody" in extra
            own = [*extra.pop("x-fails"), *(_OF_BODY if has_body else ()), *(_OF_QUEUE if "{queue}" in path else ())]
            self.responses = {**self.responses, **failures(*own)}

    def matches(self, scope: Any) -> tuple[Match, Any]:
        match, child = super().matches(scope)
        if "path_params" in child:
            child["path_params"] = restored(child["path_params"])
        return match, child

    def get_route_handler(self) -> Handler:
        handle = self.reader()
        extra = self.openapi_extra or {}
        first: Scope | None = None if extra.get("x-keyless") else extra["x-scope"]
        scopes: tuple[Scope, ...] = (first, *extra.get("x-other-scopes", ())) if first else ()
        limited: bool = extra.get("x-rate-limited", True)
        names = [one["name"] for one in extra.get("parameters", ()) if one["in"] == "query"]
        names += [one.alias for one in self.dependant.query_params]

        async def answer(request: Request) -> Response:
            state = request.app.state
            bounded = BoundedRequest(request.scope, request.receive, state.buffered, state.settings.body_timeout)
            if scopes:
                bounded.state.access = await state.guard.admit(bounded, scopes, limited)
            if request.scope["query_string"]:
                check_query(request, names)
            try:
                return await (looked(handle, bounded) if first in _OPERATORS else handle(bounded))
            finally:
                bounded.release()

        async def measured(request: Request) -> Response:
            started, status = time.monotonic(), 500
            try:
                response = await answer(request)
                status = response.status_code
            except Exception as error:
                status = status_of(error)
                raise
            finally:
                seconds = time.monotonic() - started
                request.app.state.measurements.answered(request.method, self.path, status, seconds)
            return response

        return measured

    def reader(self) -> Handler:
        """Return the function that reads the request's parameters and runs the endpoint."""
        return super().get_route_handler()


async def looked(handle: Handler, request: Request) -> Response:
    """Answer an operator with what can be read of a Redis Cluster; `missing` in the answer names what cannot."""
    with looking() as missing:
        try:
            response = await handle(request)
        except ReliqError as error:
            raise of_request(error, request) from error
    if missing and response.status_code == 200 and response.media_type == "application/json":
        answer = msgspec.json.decode(response.body)
        answer["missing"] = [{"what": one.what, "node": one.node, "why": one.why} for one in missing.values()]
        return Response(msgspec.json.encode(answer), media_type="application/json")
    return response


class RawCall(Call):
    """A call with an endpoint that reads the request itself: FastAPI's reading would cost as much as the enqueue."""

    def reader(self) -> Handler:
        endpoint = self.endpoint

        async def read(request: Request) -> Response:
            response: Response = await endpoint(**request.path_params, request=request)
            return response

        return read


def call_router(tag: str, route: type[Call] = Call) -> APIRouter:
    return APIRouter(prefix="/v1", tags=[tag], route_class=route)


def needs(
    scope: Scope,
    *others: Scope,
    fails: Sequence[str] = (),
    answers: dict[int | str, Any] | None = None,
    limited: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Return what a call declares beside its model: the scopes it needs, all of them, and what OpenAPI shows.

    `fails`: its error codes, beside those of each call, of its body, and of the queue in its path. `answers`: other
    answers, by status. `limited`: whether the call counts for the rate of a key; calls that reduce the load do not.
    `more`: what FastAPI cannot derive.
    """
    if others:
        more["x-other-scopes"] = list(others)
    if not limited:
        more["x-rate-limited"] = False
    extra = {"x-scope": scope, "security": [{"key": []}], "x-fails": fails, **more}
    return {"responses": answers or {}, "openapi_extra": extra}


def keyless(fails: Sequence[str]) -> dict[str, Any]:
    """Return what a call declares for which the secret in its path is enough."""
    return {"openapi_extra": {"x-keyless": True, "security": [], "x-fails": fails}}
