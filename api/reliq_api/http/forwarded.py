"""What a proxy in front of the service says of a client: uvicorn's middleware, for the requests that come through one.

Other requests go around it: it would add a coroutine to each of their waits for Redis.
"""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from reliq_api.http.requests import fields

_HEADERS = frozenset(("x-forwarded-proto", "x-forwarded-for"))  #: that the middleware reads


class Forwarded:
    """An application behind proxies.

    `trusted`: addresses of the proxies that may name the client, as a list or separated by commas.
    """

    def __init__(self, app: ASGIApp, trusted: list[str] | str) -> None:
        self._app = app
        self._behind_proxy = ProxyHeadersMiddleware(app, trusted)  # type: ignore[arg-type]

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and not _HEADERS.isdisjoint(fields(scope)):
            return self._behind_proxy(scope, receive, send)  # type: ignore[arg-type]
        return self._app(scope, receive, send)
