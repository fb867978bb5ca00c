"""The application: everything put together, nothing decided."""

import importlib
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import reliq
from reliq import aio
from reliq_api.routes import health
from reliq_api.settings import Settings


def create_app(settings: Settings | None = None) -> FastAPI:
    """The service as an ASGI application; nothing connects before it is started."""
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        queues = aio.Reliq(settings.url, allow_eviction=settings.allow_eviction, max_body=settings.max_body)
        app.state.reliq = queues
        async with queues:
            yield

    app = FastAPI(title="reliq", version=reliq.__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.settings = settings
    app.include_router(health.router)
    _include_dashboard(app)
    return app


def _include_dashboard(app: FastAPI) -> None:
    found = importlib.util.find_spec("reliq_api.ui")
    if found is not None and found.origin is not None:
        app.include_router(importlib.import_module("reliq_api.ui").router)
