"""The page about batches that have not ended."""

from fastapi import Request, Response
from fastapi.routing import APIRouter

from reliq_api.ui.access import Viewer, check_all, reliq_of
from reliq_api.ui.guard import Page
from reliq_api.ui.render import page

router = APIRouter(route_class=Page, prefix="/batches")

SECTION = {"batches": "Batches"}

SHOWN = 100


@router.get("")
async def batches(request: Request, who: Viewer) -> Response:
    """List them, oldest first. A batch may have messages in any queue, so this is for keys of all queues."""
    check_all(who, "Batches")
    return page(request, "batches.html", batches=await reliq_of(request).batches(limit=SHOWN), most=SHOWN)
