"""The pages about flows: those that have not ended, and the graph of one."""

from collections import Counter

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq.features.flows.drawing import HEIGHT, WIDTH, drawing
from reliq_api.ui.access import Viewer, check_all, reliq_of
from reliq_api.ui.guard import Page
from reliq_api.ui.render import page

router = APIRouter(route_class=Page, prefix="/flows")

SECTION = {"flows": "Flows"}

SHOWN = 100  #: flows, and messages of a layer that is not drawn


@router.get("")
async def flows(request: Request, who: Viewer) -> Response:
    """List them, oldest first. A flow may have messages in any queue, so this is for keys of all queues."""
    check_all(who, "Flows")
    return page(request, "flows.html", flows=await reliq_of(request).flows(limit=SHOWN), most=SHOWN)


@router.get("/{flow}")
async def flow(request: Request, who: Viewer, flow: str) -> Response:
    check_all(who, "Flows")
    found = await reliq_of(request).flow_progress(flow)
    if found is None:
        raise HTTPException(404, "There is no such flow: it ended some time ago, or never existed.")
    layers = [(layer, sorted(Counter(one.state for one in layer).items())) for layer in found.layers()]
    opens = any(one.flows for one in found.members)
    return page(
        request, "flow.html", flow=found, drawn=drawing(found), layers=layers, most=SHOWN, width=WIDTH, height=HEIGHT,
        opens=opens,
    )  # fmt: skip
