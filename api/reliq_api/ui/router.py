"""The dashboard: `app.include_router(router)` in an application with a reliq.aio.Reliq as `app.state.reliq`.

The router has those of all modules here that have one. It brings its own lifespan, which runs inside the
application's: the sampler and the redrives end before the connections do.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.routing import APIRouter

from reliq_api import ui
from reliq_api.parts import modules_with_router
from reliq_api.ui import render
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
#: A part with a `SECTION`, its path and title, is in the bar of all pages, in this order.
for part in modules_with_router(ui.__name__, ui.__path__, ("pages", "messages", "schedules", "topics"), of_slices="ui"):
    if part.__name__ == __name__:
        continue
    router.include_router(part.router)
    render.PAGES |= {route.path for route in part.router.routes}
    render.SECTIONS |= getattr(part, "SECTION", {})
    render.NOTICES |= getattr(part, "NOTICES", {})
