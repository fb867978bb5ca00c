"""A client of reliq for FastAPI: one per application, opened and closed with it.

from reliq.contrib.fastapi import Client, lifespan

app = FastAPI(lifespan=lifespan("redis://localhost:6379/0"))

@app.post("/orders")
async def order(body: dict, client: Client) -> str:
return await client.queue("orders").send(body)
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

try:
    from fastapi import Depends, FastAPI
    from starlette.requests import HTTPConnection
except ImportError as error:
    from reliq.extras import missing_extra

    raise missing_extra("reliq.contrib.fastapi", "api", error) from None

from reliq.aio import Reliq
from reliq.errors import InvalidSetting
from reliq.protocol.application import Application

Lifespan = Callable[[FastAPI], contextlib.AbstractAsyncContextManager[Any]]


def lifespan(url: str | Application | None = None, *, within: Lifespan | None = None, **options: Any) -> Lifespan:
    """Return a lifespan for FastAPI that keeps a client of reliq.

    `url` and `options` are those of reliq.aio.Reliq; or the application whose handlers get the messages, a reliq.Reliq:
    the client then has its server and its options, in a test those of its bench. `within`: a lifespan of your own,
    which runs inside and may use `client_of(app)`; what it yields is the state of the requests.
    """

    @contextlib.asynccontextmanager
    async def alive(app: FastAPI) -> AsyncIterator[Any]:
        async with _client_for(url, options) as client:
            app.state.reliq = client
            if within is None:
                yield None
            else:
                async with within(app) as state:
                    yield state

    return alive


def _client_for(url: str | Application | None, options: dict[str, Any]) -> Reliq:
    """Return a client of this server; that of an application is the one that it has now."""
    if isinstance(url, Application):
        options = {"allow_eviction": url.allow_eviction, "max_body": url.max_body, **options}
        url = url.url
    return Reliq(url, **options)


def client_of(app: Any) -> Reliq:
    """Return the client of a running application; raises InvalidSetting if it has none."""
    client = getattr(app.state, "reliq", None)
    if not isinstance(client, Reliq):
        raise InvalidSetting(
            "the application has no client of reliq: make it with FastAPI(lifespan=lifespan(url)), and let that run: "
            "in tests by `with TestClient(app) as http` or `async with app.router.lifespan_context(app)` around httpx. "
            "One that is mounted in another shares what that has: mounted.state = app.state"
        )
    return client


def _client(connection: HTTPConnection) -> Reliq:
    return client_of(connection.app)


Client = Annotated[Reliq, Depends(_client)]
