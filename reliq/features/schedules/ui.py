"""The pages about schedules: all of them, and one with its next ten ticks and the fate of its latest run."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends, HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq.errors import InvalidName
from reliq.features.schedules.aio import Schedules
from reliq.features.schedules.locating import Schedule
from reliq_api.ui.access import Viewer, reliq_of
from reliq_api.ui.guard import Form, Page, wrong_name
from reliq_api.ui.render import page, redirect

router = APIRouter(route_class=Page, prefix="/schedules")

SECTION = {"schedules": "Schedules"}

NOTICES = {
    "schedule-paused": "The schedule is paused: it sends nothing.",
    "schedule-resumed": "The schedule is resumed: its next tick is sent.",
    "schedule-run": "Its message is sent, beside its ticks.",
    "schedule-removed": "The schedule is removed. What it has sent stays.",
}

SHOWN = 200  #: schedules on the page
TICKS = 10

FATES = {
    "ready": "is ready: no worker has taken it yet",
    "processing": "is being handled",
    "delayed": "waits for a retry",
    "parked": "waits for a signal",
    "dead": "is a dead letter",
    "gone": "was handled, or removed by hand",
    "unknown": "may wait in the queue, which is too long to look through",
}


@router.get("")
async def schedules(request: Request, who: Viewer, q: str = "") -> Response:
    found = [one for one in await reliq_of(request).schedules.list() if who.may_see(one.queue)]
    wanted = [one for one in found if q.strip().lower() in f"{one.name} {one.queue}".lower()]
    shown = sorted(wanted, key=_urgency)[:SHOWN]
    rows = [(one, who.may_operate(one.queue)) for one in shown]
    return page(request, "schedules.html", rows=rows, count=len(found), wanted=len(wanted), q=q)


def _urgency(one: Schedule) -> tuple[bool, int, str]:
    return one.due is None, one.due or 0, one.name


async def seen(request: Request, who: Viewer, name: str) -> Schedule:
    """Return the schedule in the path; 404 if it does not exist, or not for this viewer."""
    try:
        found = await reliq_of(request).schedules.get(name)
    except InvalidName:
        found = None
    if found is None or not who.may_see(found.queue):
        raise _missing()
    return found


def _missing() -> HTTPException:
    return HTTPException(404, "There is no schedule of this name.")


def _only(request: Request, found: Schedule) -> Schedules:
    """Return the schedules of the queue for which the rights of the viewer were looked at."""

    def check(owner: str) -> None:
        if owner != found.queue:
            raise _missing()

    return reliq_of(request).schedules.checked(check)


Seen = Annotated[Schedule, Depends(seen)]


async def operated(found: Seen, who: Viewer) -> Schedule:
    if not who.may_operate(found.queue):
        raise HTTPException(403, "This needs a key with the scope operate for the queue of the schedule.")
    return found


Operated = Annotated[Schedule, Depends(operated)]


async def sendable(found: Operated, who: Viewer) -> Schedule:
    if not who.may_send(found.queue):
        raise HTTPException(403, "This needs a key with the scopes operate and enqueue for the queue of the schedule.")
    return found


Sendable = Annotated[Schedule, Depends(sendable)]


@router.get("/{name}")
async def one_schedule(request: Request, found: Seen, who: Viewer) -> Response:
    return await _page(request, found, who)


async def _page(request: Request, found: Schedule, who: Viewer, given: str | None = None) -> Response:
    """Return the page of a schedule. `given`: what was typed instead of its name to remove it."""
    fate = await _only(request, found).fate(found.name)
    ticks: Sequence[str] = [tick.strftime("%a %Y-%m-%d %H:%M:%S %z") for tick in found.following(TICKS)]
    may_operate = who.may_operate(found.queue)
    return page(
        request, "schedule.html", status=200 if given is None else 400, given=given,
        one=found, ticks=ticks, fate=FATES.get(fate, ""), may_operate=may_operate,
        may_send=who.may_send(found.queue), dead=fate == "dead",
    )  # fmt: skip


@router.post("/{name}/pause")
async def pause(request: Request, found: Operated) -> Response:
    await _only(request, found).pause(found.name)
    return redirect(request, "schedules", found.name, notice="schedule-paused")


@router.post("/{name}/resume")
async def resume(request: Request, found: Operated) -> Response:
    await _only(request, found).resume(found.name)
    return redirect(request, "schedules", found.name, notice="schedule-resumed")


@router.post("/{name}/run")
async def run(request: Request, found: Sendable) -> Response:
    await _only(request, found).run(found.name)
    return redirect(request, "schedules", found.name, notice="schedule-run")


@router.post("/{name}/remove")
async def remove(request: Request, found: Operated, who: Viewer, fields: Form) -> Response:
    if (given := wrong_name(found.name, fields)) is not None:
        return await _page(request, found, who, given)
    await _only(request, found).remove(found.name)
    return redirect(request, "schedules", notice="schedule-removed")
