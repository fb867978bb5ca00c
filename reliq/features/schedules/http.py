"""Schedules: messages at the ticks of a cron expression or an interval."""

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request

from reliq import aio
from reliq.contract.options import SCHEDULE, given
from reliq.features.schedules import schemas
from reliq.features.schedules.aio import Schedules
from reliq.features.schedules.locating import Schedule, UnknownSchedule
from reliq.model.outgoing import encode_body
from reliq_api.access.auth import Access
from reliq_api.enqueue.entries import decode_base64, lost_kind, refuse_reserved
from reliq_api.http.problems import Problem
from reliq_api.http.route import call_router, needs
from reliq_api.schemas.base import QueueName

router = call_router("schedules")
T = TypeVar("T")

_NAMED = ("schedule_not_found",)
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
    **needs("metrics", fails=_NAMED),
)
async def show_schedule(queue: QueueName, name: schemas.ScheduleName, request: Request) -> schemas.ScheduleDetails:
    return await _of_queue(request, queue, name, lambda schedules: _details(schedules, name))


@router.put(
    "/queues/{queue}/schedules/{name}",
    summary="Add or change a schedule",
    **needs("operate", "enqueue", fails=("invalid_message",)),
)
async def put_schedule(
    queue: QueueName, name: schemas.ScheduleName, wanted: schemas.ScheduleRequest, request: Request
) -> schemas.ScheduleDetails:
    """The same definition again changes nothing. A name that another queue has moves to this one."""
    reliq: aio.Reliq = request.app.state.reliq
    access: Access = request.state.access

    def check(owner: str) -> None:
        if not access.may_operate(owner):
            raise Problem("forbidden", f"another queue has a schedule {name!r}, and the key has no right to that queue")

    schedules = reliq.schedules.checked(check)
    body, headers = _body(wanted)
    options: Any = {option: getattr(wanted, option) for option in _OPTIONS}
    options |= given({**wanted.model_dump(), "headers": headers}, SCHEDULE)
    await schedules.add(name, wanted.when, queue, body, **options)
    return await _details(schedules, name)


@router.delete("/queues/{queue}/schedules/{name}", summary="Remove a schedule", **needs("operate", fails=_NAMED))
async def remove_schedule(queue: QueueName, name: schemas.ScheduleName, request: Request) -> schemas.ScheduleRemoved:
    """Its messages stay."""
    if not await _of_queue(request, queue, name, lambda schedules: schedules.remove(name)):
        raise _missing(queue, name)
    return schemas.ScheduleRemoved(removed=True)


@router.post("/queues/{queue}/schedules/{name}/pause", summary="Pause a schedule", **needs("operate", fails=_NAMED))
async def pause_schedule(queue: QueueName, name: schemas.ScheduleName, request: Request) -> schemas.Schedule:
    """Nothing is sent until it is resumed."""
    await _of_queue(request, queue, name, lambda schedules: schedules.pause(name))
    return schemas.Schedule(**(await _existing(request, queue, name)).summary())


@router.post(
    "/queues/{queue}/schedules/{name}/resume", summary="End a pause of a schedule", **needs("operate", fails=_NAMED)
)
async def resume_schedule(queue: QueueName, name: schemas.ScheduleName, request: Request) -> schemas.Schedule:
    """The next tick is the first one from now on."""
    await _of_queue(request, queue, name, lambda schedules: schedules.resume(name))
    return schemas.Schedule(**(await _existing(request, queue, name)).summary())


@router.post(
    "/queues/{queue}/schedules/{name}/run",
    summary="Send the message of a schedule now",
    **needs("operate", "enqueue", fails=(*_NAMED, "queue_full", "outcome_unknown")),
)
async def run_schedule(queue: QueueName, name: schemas.ScheduleName, request: Request) -> schemas.ScheduleRun:
    """Beside its ticks."""
    return schemas.ScheduleRun(id=await _of_queue(request, queue, name, lambda schedules: schedules.run(name)))


@router.get(
    "/queues/{queue}/schedules/{name}/preview", summary="The next ticks of a schedule", **needs("metrics", fails=_NAMED)
)
async def preview_schedule(
    queue: QueueName,
    name: schemas.ScheduleName,
    request: Request,
    count: Annotated[int, Query(ge=1, le=1000)] = 10,
) -> schemas.ScheduleTicks:
    """None while it is paused."""
    found = await _existing(request, queue, name)
    return schemas.ScheduleTicks(ticks=[tick.isoformat() for tick in found.following(count)])


async def _existing(request: Request, queue: str, name: str) -> Schedule:
    return await _of_queue(request, queue, name, lambda schedules: schedules.get(name))


async def _of_queue(request: Request, queue: str, name: str, call: Callable[[Schedules], Awaitable[T]]) -> T:
    """Carry out a call on a schedule of this queue; raises Problem if the queue has no such schedule by then."""

    def check(owner: str) -> None:
        if owner != queue:
            raise _missing(queue, name)

    try:
        return await call(request.app.state.reliq.schedules.checked(check))
    except UnknownSchedule:
        raise _missing(queue, name) from None


def _missing(queue: str, name: str) -> Problem:
    return Problem("schedule_not_found", f"queue {queue!r} has no schedule {name!r}")


async def _details(schedules: Schedules, name: str) -> schemas.ScheduleDetails:
    found = await schedules.get(name)
    ticks = [tick.isoformat() for tick in found.following(10)]
    return schemas.ScheduleDetails(**found.summary(), next_ticks=ticks, fate=await schedules.fate(name))


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
