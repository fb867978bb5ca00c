"""The page about what the handler of a message emits."""

from itertools import groupby

from fastapi import Request, Response
from fastapi.routing import APIRouter

from reliq.features.output.steps import Reading
from reliq_api.ui.access import Operated, homes_of, reliq_of
from reliq_api.ui.guard import Page
from reliq_api.ui.render import page

router = APIRouter(route_class=Page, prefix="/queues/{name}/output")

SHOWN = 1000  #: chunks, the latest


@router.get("")
async def output(request: Request, queue: Operated, id: str) -> Response:
    reading = Reading(homes_of(request, queue.name), id, follow=False)
    chunks = await reliq_of(request).store.run(reading.latest(SHOWN))
    runs = [(number, "".join(one.text for one in some)) for number, some in groupby(chunks, lambda one: one.run)]
    return page(request, "output.html", queue=queue.name, id=id, runs=runs, chunks=chunks, most=SHOWN)
