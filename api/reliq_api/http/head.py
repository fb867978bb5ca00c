"""HEAD: the head of the answer to GET, without its body."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Head:
    """Answer HEAD as GET, but end the answer after its head; a stream would go on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            return await self._app(scope, receive, send)
        ended = False

        async def cut(message: Message) -> None:
            nonlocal ended
            if not ended:
                ended = True
                await send(message)
                if message["type"] == "http.response.start":
                    await send({"type": "http.response.body"})

        return await self._app({**scope, "method": "GET"}, receive, cut)
