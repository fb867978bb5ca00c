"""What comes before every call: header limits, the key, then a body that is read within its limit."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from reliq_api.auth import Scope
from reliq_api.requests import REQUEST_LARGEST, BoundedRequest, check_headers

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Call(APIRoute):
    """A route that names the scope it needs in `openapi_extra`: without one it cannot even be declared."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        extra = self.openapi_extra or {}
        scope: Scope = extra["x-scope"]
        largest: int = extra.get("x-largest", REQUEST_LARGEST)

        async def handler(request: Request) -> Response:
            check_headers(request.scope)
            request.state.access = await request.app.state.guard.admit(request, scope)
            patience = request.app.state.settings.body_timeout
            return await handle(BoundedRequest(request.scope, request.receive, largest, patience))

        return handler


def call_router(tag: str) -> APIRouter:
    return APIRouter(prefix="/v1", tags=[tag], route_class=Call)


def needs(scope: Scope, **more: Any) -> dict[str, Any]:
    """The `openapi_extra` of a call: its scope, and what FastAPI does not know about it."""
    return {"x-scope": scope, "security": [{"key": []}], **more}
