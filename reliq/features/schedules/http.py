"""Schedules: messages at the ticks of a cron expression or an interval."""

import json
from typing import Annotated, Any

from fastapi import Query, Request

from reliq import aio
from reliq.contract.options import SCHEDULE, given
from reliq.errors import InvalidName
from reliq.features.schedules import schemas
from reliq.features.schedules.locating import Schedule
from reliq.model.outgoing import encode_body
from reliq_api.access.auth import Access
from reliq_api.enqueue.entries import decode_base64, lost_kind, refuse_reserved
from reliq_api.http.problems import Problem
from reliq_api.http.route import call_router, needs
from reliq_api.schemas.base import QueueName

router = call_router("schedules")

_READ = ("invalid_name", "schedule_not_found")
_CHANGE = ("invalid_name", "invalid_json", "body_too_large", "schedule_not_found")
_OPTIONS = ("tz", "start", "end", "jitter", "catch_up", "catch_up_limit")


@router.get("/schedules", summary="All schedules", **needs("metrics"))
async def list_schedules(request: Request) -> schemas.ScheduleList:
    """The schedules of the queues to which the key has rights."""
    reliq: aio.Reliq = request.app.state.reliq
    access: Access = request.state.access
    found = [one for one in await reliq.schedules.list() if access.may_see(one.queue)]
    return schemas.ScheduleList(schedules=[schemas.Schedule(**one.summary()) for one in found])


@router.get(
    "/queues/{queue}/schedules/{name}",
    summary="One schedule, with its next ten ticks and the fate of its latest run",
    **needs("metrics", fails=_READ),
)
async def show_schedule(queue: QueueName, name: schemas.ScheduleName, request: Request) -> schemas.ScheduleDetails:
    return await _details(request, await existing(request, queue, name))


@router.put(
    "/queues/{queue}/schedules/{name}",
    summary="Add or change a schedule",
    **needs("operate", "enqueue", fails=("invalid_name", "invalid_json", "invalid_message", "body_too_large")),
)
async def put_schedule(
    queue: QueueName, name: schemas.ScheduleName, wanted: schemas.ScheduleRequest, request: Request
) -> schemas.ScheduleDetails:
    """The same definition again changes nothing. A name that another queue has moves to this one."""
    reliq: aio.Reliq = request.app.state.reliq
    access: Access = request.state.access
    found = await find(reliq, name)
    if found is not None and not access.may_operate(found.queue):
        raise Problem("forbidden", f"another queue has a schedule {name!r}, and the key has no right to that queue")
    body, headers = _body(wanted)
    options: Any = {option: getattr(wanted, option) for option in _OPTIONS}
    options |= given({**wanted.model_dump(), "headers": headers}, SCHEDULE)
    return await _details(request, await reliq.schedules.add(name, wanted.when, queue, body, **options))


@router.delete("/queues/{queue}/schedules/{name}", summary="Remove a schedule", **needs("operate", fails=_CHANGE))
async def remove_schedule(queue: QueueName, name: schemas.ScheduleName, request: Request) -> schemas.ScheduleRemoved:
    """Its messages stay."""
    await existing(request, queue, name)
    return schemas.ScheduleRemoved(removed=await request.app.state.reliq.schedules.remove(name))


@router.post("/queues/{queue}/schedules/{name}/pause", summary="Pause a schedule", **needs("operate", fails=_CHANGE))
async def pause_schedule(queue: QueueName, name: schemas.ScheduleName, request: Request) -> schemas.Schedule:
    """Nothing is sent until it is resumed."""
    await existing(request, queue, name)
    await request.app.state.reliq.schedules.pause(name)
    return schemas.Schedule(**(await existing(request, queue, name)).summary())


@router.post(
    "/queues/{queue}/schedules/{name}/resume", summary="End a pause of a schedule", **needs("operate", fails=_CHANGE)
)
async def resume_schedule(queue: QueueName, name: schemas.ScheduleName, request: Request) -> schemas.Schedule:
    """The next tick is the first one from now on."""
    await existing(request, queue, name)
    await request.app.state.reliq.schedules.resume(name)
    return schemas.Schedule(**(await existing(request, queue, name)).summary())


@router.post(
    "/queues/{queue}/schedules/{name}/run",
    summary="Send the message of a schedule now",
    **needs("operate", "enqueue", fails=(*_CHANGE, "queue_full", "outcome_unknown")),
)
async def run_schedule(queue: QueueName, name: schemas.ScheduleName, request: Request) -> schemas.ScheduleRun:
    """Beside its ticks."""
    await existing(request, queue, name)
    return schemas.ScheduleRun(id=await request.app.state.reliq.schedules.run(name))


@router.get(
    "/queues/{queue}/schedules/{name}/preview", summary="The next ticks of a schedule", **needs("metrics", fails=_READ)
)
async def preview_schedule(
    queue: QueueName,
    name: schemas.ScheduleName,
    request: Request,
    count: Annotated[int, Query(ge=1, le=1000)] = 10,
) -> schemas.ScheduleTicks:
    """None while it is paused."""
    found = await existing(request, queue, name)
    return schemas.ScheduleTicks(ticks=[tick.isoformat() for tick in found.following(count)])


async def find(reliq: aio.Reliq, name: str) -> Schedule | None:
    """Return the schedule of this name, of any queue."""
    try:
        return await reliq.schedules.get(name)
    except InvalidName:
        return None


async def existing(request: Request, queue: str, name: str) -> Schedule:
    """Return a schedule of this queue; raises Problem if it has no such schedule."""
    found = await find(request.app.state.reliq, name)
    if found is None or found.queue != queue:
        raise Problem("schedule_not_found", f"queue {queue!r} has no schedule {name!r}")
    return found


async def _details(request: Request, schedule: Schedule) -> schemas.ScheduleDetails:
    ticks = [tick.isoformat() for tick in schedule.following(10)]
    fate = await request.app.state.reliq.schedules.fate(schedule.name)
    return schemas.ScheduleDetails(**schedule.summary(), next_ticks=ticks, fate=fate)


def _body(wanted: schemas.ScheduleRequest) -> tuple[bytes, dict[str, str] | None]:
    """Return the body and the headers of the messages, as of an enqueue with this JSON."""
    refuse_reserved(wanted.headers)
    if wanted.body_base64 is not None:
        if "body" in wanted.model_fields_set:
            raise Problem("invalid_message", "give at most one of body and body_base64")
        return decode_base64(wanted.body_base64), wanted.headers
    if "body" not in wanted.model_fields_set:
        return b"", wanted.headers
    body, first = encode_body(wanted.body), json.dumps(wanted.body)[:1].encode()
    kind = lost_kind(first, body)
    return body, {"content-type": kind, **(wanted.headers or {})} if kind else wanted.headers
