"""The page about workers: the processes that consume."""

from fastapi import Request, Response
from fastapi.routing import APIRouter

from reliq.protocol.workers import consuming, grouped
from reliq_api.ui.access import Viewer, reliq_of
from reliq_api.ui.guard import Page
from reliq_api.ui.render import page

SECTION = {"workers": "Workers"}
router = APIRouter(route_class=Page, prefix="/workers")

SHOWN = 500


@router.get("")
async def workers(request: Request, who: Viewer) -> Response:
    """List them by host and pid, with those of their queues that the key may see."""
    reliq = reliq_of(request)
    names = [name for name in await reliq.queues(of_broadcasts=True) if who.may_see(name)]
    found = grouped(await reliq.store.run(consuming(names)))
    operated = {name for name in names if who.may_operate(name)}  # of others no message is shown
    return page(request, "workers.html", workers=found[:SHOWN], count=len(found), most=SHOWN, operated=operated)
