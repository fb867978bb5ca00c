"""The pages about where a message is: find, look at, cancel."""

from collections.abc import Sequence

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq import ops
from reliq.aio.queue import Queue
from reliq.contract.values import check_id
from reliq.errors import DoneInPart, InvalidName, RedisUnavailable, ReliqError
from reliq.features.tracking.model import Cancellation, Found
from reliq.features.tracking.text_search import LONGEST, PLACES
from reliq.model.found import Place
from reliq.model.keys import QueueKeys
from reliq.model.listed_message import Glimpse, ListedMessage
from reliq.ops import Steps
from reliq.protocol.bodies import read_starts
from reliq.protocol.homes import QueueHomes
from reliq.runtime.looking import unseen
from reliq_api.ui.access import Operated, Viewer, homes_of, reliq_of
from reliq_api.ui.delayed import Wanted, back
from reliq_api.ui.guard import Form, Page
from reliq_api.ui.reading import BODY_READ, BODY_START, DEPTH
from reliq_api.ui.render import page, redirect

router = APIRouter(route_class=Page)

SEARCH_SHOWN = 100  #: messages found, on one page
CHEAP = 10_000  #: ready messages that are looked through for each refresh of a page


@router.get("/find")
async def find(request: Request, who: Viewer, id: str = "") -> Response:
    """Lead to the page of a message in whichever queue that the viewer may operate."""
    reliq, identity, fault = reliq_of(request), id.strip(), ""
    try:
        names = sorted(await reliq.queues(of_broadcasts=True)) if identity and check_id(identity) else []
    except InvalidName:
        names, fault = [], "An id has 1 to 128 printable characters, and no blank."
    for name in names:
        if not who.may_operate(name):
            continue
        try:
            found = await reliq.queue(name, of_broadcast=True).find(identity)
        except RedisUnavailable as error:
            if not unseen(f"queue {name}", error):
                raise
            continue
        if found is not None:
            return redirect(request, "queues", name, "message", id=identity)
    return page(request, "find.html", status=404 if identity else 200, identity=identity, fault=fault)


@router.get("/queues/{name}/search")
async def search(request: Request, queue: Operated, text: str = "", place: str = "") -> Response:
    """The messages that contain a text; without one the form alone."""
    hits = await queue.search(text, place=place or None, limit=SEARCH_SHOWN) if text else None
    return page(
        request, "search.html", queue=queue.name, text=text[:LONGEST], place=place, hits=hits, places=PLACES,
        most=SEARCH_SHOWN, longest=LONGEST,
    )  # fmt: skip


async def _find(request: Request, queue: str, identity: str) -> Found:
    try:
        found = await reliq_of(request).queue(queue, of_broadcast=True).find(identity)
    except InvalidName:
        found = None
    if found is None:
        raise HTTPException(404, "This message is not in the queue (any more): it was handled, removed, or never sent.")
    return found


@router.get("/queues/{name}/message")
async def message(request: Request, queue: Operated, id: str) -> Response:
    found = await _find(request, queue.name, id)
    return page(
        request,
        "message.html",
        queue=queue.name,
        found=found,
        shown_message=await reliq_of(request).store.run(_body_of(homes_of(request, queue.name), found)),
        period=_period(found),
    )


def _period(found: Found) -> int:
    """Return after how many ms the page is read again; 0 = not by itself, as looking takes long."""
    if found.place is Place.PROCESSING:
        return 1000
    return 0 if found.position is not None and found.position > CHEAP else 3000


@router.get("/queues/{name}/message/cancel")
async def ask_cancel(request: Request, queue: Operated, id: str) -> Response:
    return page(request, "cancel.html", queue=queue.name, found=await _find(request, queue.name, id))


@router.post("/queues/{name}/message/cancel")
async def cancel(request: Request, queue: Operated, fields: Form) -> Response:
    identity = dict(fields).get("id", "")
    try:
        result = await queue.cancel(identity)
    except InvalidName:
        result = Cancellation.UNKNOWN
    notice = f"cancel-{result.value}"
    if result is Cancellation.TOLD:
        return redirect(request, "queues", queue.name, "message", id=identity, notice=notice)
    return redirect(request, "queues", queue.name, notice=notice)


@router.post("/queues/{name}/delayed/cancel")
async def cancel_delayed(request: Request, queue: Operated, fields: Form) -> Response:
    ids = [value for name, value in fields if name == "id" and value]
    if not ids:
        raise HTTPException(400, "Nothing was changed: choose the messages that are to be cancelled.")
    cancelled = await _cancel_all(queue, ids)
    return back(request, queue.name, Wanted.read(fields), "cancelled", cancelled)


async def _cancel_all(queue: Queue, ids: Sequence[str]) -> int:
    """Cancel messages; return how many were. If some cannot be asked for, raises an error that says how many were."""
    failed: list[ReliqError] = []
    asked = cancelled = 0
    for one in ids:
        try:
            cancelled += await queue.cancel(one) is Cancellation.CANCELLED
            asked += 1
        except ReliqError as error:
            failed.append(error)
            if not error.node:  # not only a part of Redis is away
                break
    if failed and cancelled:
        left = f"{cancelled} messages are cancelled, {len(ids) - asked} of those chosen may not be"
        raise DoneInPart(f"{left}, repeat it to finish it: {failed[0]}", {}, {})
    if failed:
        raise failed[0]
    return cancelled


def _body_of(homes: QueueHomes, one: Found) -> Steps[ListedMessage | None]:
    """Read a message with the start of its body; None if it lies too deep, or is not there any more."""
    found = yield from homes.each(lambda keys: _body_in(keys, one))
    return next((message for message in found if message is not None), None)


def _body_in(keys: QueueKeys, one: Found) -> Steps[ListedMessage | None]:
    match one.place:
        case Place.DELAYED | Place.DEAD:
            zset = keys.dead if one.place is Place.DEAD else keys.delayed
            glimpse = yield ops.find(keys, zset, one.id, 0, BODY_READ)
            return (yield from _with_start(keys, one, glimpse)) if isinstance(glimpse, Glimpse) else None
        case Place.PROCESSING:
            source, skip, depth = keys.processing(one.consumer), 0, DEPTH
        case Place.READY if one.position is not None and one.position < DEPTH:
            source, skip, depth = keys.messages, 0, one.position + 2
        case _:
            return None
    for glimpse in (yield ops.upcoming(source, skip, depth, BODY_START)):
        if ListedMessage.read(one.queue, glimpse).id == one.id:
            return (yield from _with_start(keys, one, glimpse))
    return None


def _with_start(keys: QueueKeys, one: Found, glimpse: Glimpse) -> Steps[ListedMessage]:
    """Return the message, with the start of its body also if that is apart."""
    message = ListedMessage.read(one.queue, glimpse)
    yield from read_starts(keys, [message], BODY_READ)
    return message
