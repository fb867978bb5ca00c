"""The application: assembles the parts of the endpoint."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

import reliq
from reliq import aio
from reliq.contract.values import MAX_BODY_BYTES
from reliq.observability.histograms import Measurements
from reliq.protocol.application import eviction_allowed, url_from_environment
from reliq_api.background import Background
from reliq_api.http import problems
from reliq_api.http.buffered import Buffered
from reliq_api.http.no_store import NoStore
from reliq_api.joined import Joined
from reliq_api.pressure import Pressure
from reliq_api.readiness import Readiness
from reliq_api.store import ServiceStore
from reliq_sqs import health
from reliq_sqs.calls import Endpoint
from reliq_sqs.guard import Guard
from reliq_sqs.keys import Vault
from reliq_sqs.moves import Moves
from reliq_sqs.names import Names
from reliq_sqs.registry import Registry
from reliq_sqs.route import SqsRoute
from reliq_sqs.settings import Settings
from reliq_sqs.waits import Waits


class SqsApp(FastAPI):
    """The application. Paths of SQS, which are part of queue URLs, go around FastAPI's routes: these take a third."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sqs = SqsRoute(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in health.PATHS:
            await self._sqs(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the endpoint as an ASGI application; it connects to nothing before it is started."""
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        queues = _application(settings)
        state = app.state
        state.background = background = Background()
        vault = None if settings.secret is None else Vault(settings.secret)
        state.guard = Guard(queues, background, vault, settings.no_auth, settings.region)
        state.readiness = Readiness(queues, background)
        registry = Registry(queues, Names(settings.account, settings.region), settings.strict_timing, background)
        moves = Moves(queues, registry, background)
        pressure = Pressure(queues, settings.memory_watermark, background)
        state.waits = waits = Waits()
        state.drains = [waits]
        state.endpoint = Endpoint(
            queues, registry, pressure, moves, waits, Joined(background), settings.strict_timing
        )  # fmt: skip
        async with queues, background:
            moves.start()
            yield

    app = SqsApp(
        title="reliq sqs", version=reliq.__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        openapi_url=None, redirect_slashes=False,
    )  # fmt: skip
    app.state.settings = settings
    app.state.measurements = Measurements()
    app.state.buffered = Buffered(settings.max_buffered)
    app.add_middleware(NoStore)
    problems.install(app)
    app.include_router(health.router)
    return app


def _application(settings: Settings) -> aio.Reliq:
    url, allow_eviction = url_from_environment(settings.url), eviction_allowed(settings.allow_eviction)
    store = ServiceStore(url, settings.connections, allow_eviction=allow_eviction, timeout=settings.send_timeout)
    return aio.Reliq(url, allow_eviction=allow_eviction, max_body=MAX_BODY_BYTES, store=store)
