"""The dashboard: `app.include_router(router)` in an application with a reliq.aio.Reliq as `app.state.reliq`.

The router brings its own lifespan, which runs inside the application's: the sampler and the redrives end before the
connections do.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.routing import APIRouter

from reliq_api.ui import actions, batches, dead_pages, jobs, messages, pages, schedules, topics, workers
from reliq_api.ui.redrives import Redrives
from reliq_api.ui.sampler import Sampler


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    redrives = Redrives()
    async with Sampler(app.state.reliq.store) as sampler:
        app.state.ui_sampler, app.state.ui_redrives = sampler, redrives
        try:
            yield
        finally:
            await redrives.close()


router = APIRouter(lifespan=_lifespan, include_in_schema=False)
for part in (pages, messages, workers, batches, topics, schedules, jobs, dead_pages, actions):
    router.include_router(part.router)
