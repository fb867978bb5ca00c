"""The page of the delayed messages of a queue: what waits for its time or a retry, and runs now or never."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq_api.ui.access import Operated
from reliq_api.ui.guard import Form, Page
from reliq_api.ui.render import page, redirect
from reliq_api.ui.search import Selection, query_of

LISTED = 25  #: messages on one page

router = APIRouter(route_class=Page, prefix="/queues/{name}/delayed")


@dataclass(frozen=True, slots=True)
class Wanted(Selection):
    """Which delayed messages are listed, and run by one click."""

    KEYWORDS: ClassVar[Mapping[str, str]] = {"failed": "failed", "error": "error_class"}
    failed: str = ""  #: 1: only those that have failed
    error: str = ""

    def filters(self) -> dict[str, Any]:
        """Return the keywords for `queue.delayed.list` and `.run`; raises InvalidSetting."""
        return {**super(Wanted, self).filters(), "failed": bool(self.failed)}


@router.get("")
async def delayed(request: Request, queue: Operated, after: str | None = None) -> Response:
    wanted = Wanted.read(query_of(request, Wanted.names()))
    return page(
        request,
        "delayed.html",
        queue=queue.name,
        messages=await queue.delayed.list(limit=LISTED, after=after, bodies=False, **wanted.filters()),
        search=wanted,
        first=after is None,
        count=(await queue.stats()).delayed,
    )


@router.post("/run")
async def run(request: Request, queue: Operated, fields: Form) -> Response:
    """Run the chosen messages, or without a choice those that the page lists."""
    wanted = Wanted.read(fields)
    if not wanted.ids and "all" not in dict(fields):
        raise HTTPException(400, "Nothing was changed: choose the messages that are to run.")
    due = await (queue.delayed.run(*wanted.ids) if wanted.ids else queue.delayed.run(all=True, **wanted.filters()))
    return back(request, queue.name, wanted, "hastened", due)


def back(request: Request, queue: str, wanted: Wanted, notice: str, count: int) -> Response:
    """Lead back to the list, without the choice of messages: it says how many of them something was done with."""
    listed = dict(replace(wanted, ids=()).fields())
    return redirect(request, "queues", queue, "delayed", **listed, notice=notice, count=count)
