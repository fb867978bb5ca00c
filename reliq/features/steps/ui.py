"""The page about messages that wait for a signal: a form for each gives it."""

from fastapi import Request, Response
from fastapi.routing import APIRouter

from reliq.errors import InvalidMessage, InvalidName, SignalRefused
from reliq.features.steps.model import json_or_text
from reliq_api.ui.access import Operated, Sendable
from reliq_api.ui.guard import Form, Page
from reliq_api.ui.render import page, redirect

router = APIRouter(route_class=Page, prefix="/queues/{name}/parked")

NOTICES = {
    "signal-given": "The signal is given.",
    "signal-before": "The message has had this signal before: the first one counts.",
    "signal-refused": "The signal was refused: the message has ended, or waits no more.",
}

SHOWN = 100


@router.get("")
async def parked(request: Request, queue: Operated) -> Response:
    found = await queue.parked(SHOWN)
    count = (await queue.stats()).parked
    return page(request, "parked.html", queue=queue.name, parked=found, count=count)


@router.post("/signal")
async def give(request: Request, queue: Sendable, fields: Form) -> Response:
    """Give a signal; a value that is no JSON is taken as a text."""
    given = dict(fields)
    try:
        text = given.get("value", "")
        value = json_or_text(text) if text.strip() else None
        taken = await queue.signal(given.get("id", ""), given.get("signal", ""), value)
        notice = "signal-given" if taken else "signal-before"
    except (SignalRefused, InvalidName, InvalidMessage):
        notice = "signal-refused"
    return redirect(request, "queues", queue.name, "parked", notice=notice)
