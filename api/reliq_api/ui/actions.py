"""The policy's form, and the actions of the forms. Each answers 303, so that a reload of the page repeats nothing."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq.errors import InvalidSetting
from reliq.protocol.dead_letters import RedriveOptions
from reliq_api.ui import policy
from reliq_api.ui.access import Operated, Viewer
from reliq_api.ui.dead_pages import Running
from reliq_api.ui.guard import Form, Page, wrong_name
from reliq_api.ui.render import page, redirect
from reliq_api.ui.search import Search

router = APIRouter(route_class=Page, prefix="/queues/{name}")


@router.post("/pause")
async def pause(request: Request, queue: Operated) -> Response:
    await queue.pause()
    return redirect(request, "queues", queue.name, notice="paused")


@router.post("/breaker/open")
async def open_breaker(request: Request, queue: Operated) -> Response:
    await queue.open_breaker()
    return redirect(request, "queues", queue.name, notice="breaker-open")


@router.post("/breaker/close")
async def close_breaker(request: Request, queue: Operated) -> Response:
    await queue.close_breaker()
    return redirect(request, "queues", queue.name, notice="breaker-closed")


@router.post("/resume")
async def resume(request: Request, queue: Operated) -> Response:
    await queue.resume()
    return redirect(request, "queues", queue.name, notice="resumed")


@router.get("/policy")
async def ask_policy(request: Request, queue: Operated) -> Response:
    return _policy_page(request, queue.name, policy.written(await queue.config()))


def _policy_page(request: Request, queue: str, values: Mapping[str, str], fault: str = "") -> Response:
    return page(
        request, "policy.html", status=422 if fault else 200, queue=queue, groups=policy.groups(), values=values,
        fault=fault, at=policy.field_of(fault),
    )  # fmt: skip


@router.post("/policy")
async def set_policy(request: Request, queue: Operated, who: Viewer, fields: Form) -> Response:
    config = await queue.config()
    try:
        if changes := policy.changes(fields, config):
            who.check_dead_to(changes)
            await queue.configure(**changes)
    except InvalidSetting as error:
        return _policy_page(request, queue.name, {**policy.written(config), **dict(fields)}, str(error))
    return redirect(request, "queues", queue.name, notice="configured")


@router.post("/purge")
async def purge(request: Request, queue: Operated, fields: Form) -> Response:
    if (given := wrong_name(queue.name, fields)) is not None:
        return page(request, "purge.html", status=400, queue=queue.name, stats=await queue.stats(), given=given)
    return redirect(request, "queues", queue.name, notice="purged", count=await queue.purge())


@router.post("/dead/purge")
async def purge_dead(request: Request, queue: Operated, fields: Form) -> Response:
    search = Search.read(fields)
    filters = search.filters()
    if (given := wrong_name(queue.name, fields)) is not None:
        dead = (await queue.stats()).dead
        return page(request, "dead_purge.html", status=400, queue=queue.name, search=search, dead=dead, given=given)
    removed = await queue.dead.purge(all=not filters, **filters)
    return redirect(request, "queues", queue.name, "dead", notice="deleted", count=removed)


@router.post("/dead/redrive")
async def redrive(request: Request, queue: Operated, who: Viewer, redrives: Running, fields: Form) -> Response:
    search, given = Search.read(fields), dict(fields)
    filters = search.filters()
    limit = _number(given, "limit")
    options: dict[str, Any] = {
        "dry_run": "dry_run" in given,
        "keep_failures": "keep_failures" in given,
        "limit": None if limit is None else int(limit),
        "rate": _number(given, "rate"),
        "stop_above": _share(given, "stop_above"),
    }
    RedriveOptions(**options)  # refused here, before it starts
    total = len(filters["ids"]) if "ids" in filters else (await queue.stats()).dead
    counted = _number(given, "matched")  # from the dry run just before
    most = min(one for one in (limit, counted, total) if one is not None)
    supervise = partial(request.app.state.guard.supervise, who, "operate", queue.name)
    started = redrives.start(queue, int(most), search, options, supervise)
    return redirect(request, "queues", queue.name, "dead", "redrives", started.id)


def _number(given: dict[str, str], name: str) -> float | None:
    text = given.get(name, "").strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidSetting(f"{name} is {text!r}: give a number, or nothing")
    return number


def _share(given: dict[str, str], name: str) -> float | None:
    """Return the share for a percentage."""
    percent = _number(given, name)
    return None if percent is None else percent / 100


@router.post("/dead/redrives/{identity}/stop")
async def stop_redrive(request: Request, queue: Operated, redrives: Running, identity: str) -> Response:
    found = redrives.get(queue.name, identity)
    if found is None:
        raise HTTPException(404, "This redrive is not known here, so it does not run here.")
    found.stop()
    return redirect(request, "queues", queue.name, "dead", "redrives", found.id)
