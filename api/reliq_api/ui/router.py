"""The dashboard: `app.include_router(router)` in an application with a reliq.aio.Reliq as `app.state.reliq`.

The router brings its own lifespan, which runs inside the application's: the sampler and the redrives end before the
connections do.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.routing import APIRouter

from reliq.features.schedules import ui as schedules
from reliq_api.ui import actions, batches, dead_pages, jobs, messages, pages, render, topics
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
#: Each part has a router. A part with a `SECTION`, its path and title, is in the bar of all pages, in this order; the
#: `NOTICES` of a part are what a page says after an action of it.
for part in (pages, messages, schedules, topics, batches, jobs, dead_pages, actions):
    router.include_router(part.router)
    render.SECTIONS |= getattr(part, "SECTION", {})
    render.NOTICES |= getattr(part, "NOTICES", {})
