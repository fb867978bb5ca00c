"""The page of the delayed messages of a queue: what waits for its time or a retry, and runs now or never."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq_api.ui.access import Operated
from reliq_api.ui.guard import Form, Page
from reliq_api.ui.render import page, redirect
from reliq_api.ui.search import Fields, header_of, query_of

LISTED = 25  #: messages on one page

router = APIRouter(route_class=Page, prefix="/queues/{name}/delayed")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which delayed messages are listed, and run by one click."""

    failed: bool = False
    error: str = ""
    header: str = ""  #: name=value

    @classmethod
    def read(cls, fields: Fields) -> "Wanted":
        given = {name: value.strip() for name, value in fields if value.strip()}
        return cls("failed" in given, given.get("error", ""), given.get("header", ""))

    def fields(self) -> list[tuple[str, str]]:
        given = [("failed", "1" if self.failed else ""), ("error", self.error), ("header", self.header)]
        return [(name, value) for name, value in given if value]

    def query(self, **more: str) -> str:
        text = urlencode([*self.fields(), *((name, value) for name, value in more.items() if value)])
        return f"?{text}" if text else ""

    def filters(self) -> dict[str, Any]:
        """Return the keywords for `queue.delayed.list` and `.run`; raises InvalidSetting."""
        return {"failed": self.failed, "error_class": self.error or None, "headers": header_of(self.header)}


@router.get("")
async def delayed(request: Request, queue: Operated, after: str | None = None) -> Response:
    wanted = Wanted.read(query_of(request, ("failed", "error", "header")))
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
    wanted, ids = Wanted.read(fields), [value for name, value in fields if name == "id" and value]
    if not ids and "all" not in dict(fields):
        raise HTTPException(400, "Nothing was changed: choose the messages that are to run.")
    due = await (queue.delayed.run(*ids) if ids else queue.delayed.run(all=True, **wanted.filters()))
    return back(request, queue.name, wanted, "hastened", due)


def back(request: Request, queue: str, wanted: Wanted, notice: str, count: int) -> Response:
    return redirect(request, "queues", queue, "delayed", **dict(wanted.fields()), notice=notice, count=count)
