"""The application: assembles the parts of the service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from reliq import aio
from reliq._version import __version__
from reliq.features.output.waiting import Streams
from reliq.features.results.waiting import Results
from reliq.features.topics.http import Publishing
from reliq.observability.histograms import Measurements
from reliq.observability.prometheus import Exporter
from reliq.protocol.application import eviction_allowed, url_from_environment
from reliq.transport.store import Store
from reliq_api import routes
from reliq_api.access.auth import Guard
from reliq_api.background import Background
from reliq_api.consume.homes import remembered_homes
from reliq_api.consume.leases import Remembered
from reliq_api.consume.listener import Listener
from reliq_api.consume.polls import Polls
from reliq_api.enqueue.sends import Sends
from reliq_api.http import docs, problems
from reliq_api.http.buffered import Buffered
from reliq_api.http.head import Head
from reliq_api.http.no_store import NoStore
from reliq_api.joined import Joined
from reliq_api.pressure import Pressure
from reliq_api.readiness import Readiness
from reliq_api.settings import Settings
from reliq_api.store import ServiceStore
from reliq_api.ui.router import router as dashboard

_DESCRIPTION = (
    "A reliable message queue on Redis lists. A message that was accepted is handled at least once, or it is in one "
    "visible place: ready, processing, delayed, dead, or parked until a signal comes."
)

#: What features have for clients that wait; one of each, by its class, is in `app.state.listeners`.
LISTENERS: tuple[type[Listener], ...] = (Results, Streams)


class Service(Publishing, aio.Reliq):
    """The application of the service, with what features add to it for their calls."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the service as an ASGI application; it connects to nothing before it is started."""
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        queues = _application(settings)
        app.state.reliq = queues
        app.state.background = background = Background()
        app.state.guard = Guard(queues, background, settings.no_auth)
        app.state.pressure = Pressure(queues, settings.memory_watermark, background)
        app.state.readiness = Readiness(queues, background)
        store = Store(queues.url, allow_eviction=queues.allow_eviction)
        app.state.measurements = Measurements()
        app.state.exporter = Exporter(store, [app.state.measurements])
        app.state.sends = Sends(queues, Joined(background))
        app.state.polls = Polls(queues.store, background)
        app.state.homes = remembered_homes()
        app.state.listeners = {one: one(queues.store, background, app.state.homes) for one in LISTENERS}
        app.state.drains = [app.state.polls, *app.state.listeners.values()]
        app.state.remembered = Remembered()
        async with queues, background:
            yield
        store.close()

    app = FastAPI(
        title="reliq",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,  # the method's name in generated clients
    )
    app.state.settings = settings
    app.state.buffered = Buffered(settings.max_buffered)
    app.add_middleware(NoStore)
    app.add_middleware(Head)
    for router in routes.routers():
        app.include_router(router)
    problems.install(app)
    docs.install(app)
    app.include_router(dashboard)
    return app


def _application(settings: Settings) -> Service:
    url, allow_eviction = url_from_environment(settings.url), eviction_allowed(settings.allow_eviction)
    store = ServiceStore(url, settings.connections, allow_eviction=allow_eviction, timeout=settings.send_timeout)
    return Service(url, allow_eviction=allow_eviction, max_body=settings.max_body, store=store)
