"""No cache may store an answer that does not say otherwise: most are for the holder of one key."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NAME = b"cache-control"


class NoStore:
    """Add `Cache-Control: no-store` to answers without a Cache-Control of their own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                if all(name != _NAME for name, _ in headers):
                    message["headers"] = [*headers, (_NAME, b"no-store")]
            await send(message)

        await self._app(scope, receive, marked if scope["type"] == "http" else send)
