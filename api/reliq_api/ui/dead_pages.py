"""The pages about dead letters: the list with its search, one letter, and confirmations."""

from collections.abc import Awaitable
from typing import Annotated

from fastapi import Depends, HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq.aio.queue import Queue
from reliq.contract.outcomes import REASONS
from reliq.errors import InvalidName
from reliq.model.dead_letter import DeadLetter
from reliq_api.ui import reading
from reliq_api.ui.access import Operated, Viewer, homes_of, reliq_of
from reliq_api.ui.guard import Page
from reliq_api.ui.redrives import Redrives, redrives_of
from reliq_api.ui.render import page
from reliq_api.ui.search import AGES, Search, query_of

LETTERS = 25  #: on one page

router = APIRouter(route_class=Page, prefix="/queues/{name}/dead")


def search_of(request: Request) -> Search:
    return Search.read(query_of(request, (*Search.names(), "id")))


Wanted = Annotated[Search, Depends(search_of)]
Running = Annotated[Redrives, Depends(redrives_of)]


@router.get("")
async def dead_letters(
    request: Request, queue: Operated, search: Wanted, redrives: Running, after: str | None = None
) -> Response:
    store, homes = reliq_of(request).store, homes_of(request, queue.name)
    return page(
        request,
        "dead.html",
        queue=queue.name,
        letters=await store.run(reading.letters(homes, search.filter(), LETTERS, after)),
        search=search,
        first=after is None,
        dead=(await queue.stats()).dead,
        tally=await store.run(reading.tally(homes)),
        reasons=REASONS,
        ages=AGES,
        running=redrives.running(queue.name),
    )


# An id may contain any printable character, including "/" and "..", so it is not part of the path.
@router.get("/letter")
async def dead_letter(request: Request, queue: Operated, who: Viewer, id: str) -> Response:
    steps = reading.letter(homes_of(request, queue.name), id)
    letter = await existing_letter(reliq_of(request).store.run(steps))
    return page(request, "letter.html", queue=queue.name, letter=letter, may_send=who.may_send(queue.name))


@router.get("/body")
async def body(queue: Operated, id: str) -> Response:
    """Return the bytes as a file to download, never as a page of this origin."""
    letter = await existing_letter(queue.dead.get(id))
    return Response(
        letter.body,
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="message-body.txt"'},
    )


async def existing_letter(reading_it: Awaitable[DeadLetter | None]) -> DeadLetter:
    """Return the letter that is read; raises HTTPException if there is none."""
    try:
        letter = await reading_it
    except InvalidName:
        letter = None
    if letter is None:
        raise HTTPException(404, "This message is not a dead letter (any more): it may have been redriven or removed.")
    return letter


@router.get("/redrive")
async def ask_redrive(request: Request, queue: Operated, search: Wanted) -> Response:
    return await _ask(request, "redrive.html", queue, search)


@router.get("/purge")
async def ask_purge(request: Request, queue: Operated, search: Wanted) -> Response:
    return await _ask(request, "dead_purge.html", queue, search)


async def _ask(request: Request, template: str, queue: Queue, search: Search) -> Response:
    search.filters()  # an invalid search is refused here, not after the confirmation
    return page(request, template, queue=queue.name, search=search, dead=(await queue.stats()).dead, given=None)


@router.get("/redrives/{identity}")
async def redrive(request: Request, queue: Operated, redrives: Running, identity: str) -> Response:
    found = redrives.get(queue.name, identity)
    if found is None:
        raise HTTPException(404, "This redrive is not known here: the service was restarted, or it is long over.")
    return page(request, "progress.html", queue=queue.name, redrive=found)
