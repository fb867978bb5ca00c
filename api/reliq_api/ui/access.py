"""Access to the pages, with the same keys as the HTTP API, which a browser asks its user for."""

from typing import Annotated

from fastapi import Depends, HTTPException, Request

from reliq.aio.app import Reliq
from reliq.aio.queue import Queue
from reliq.protocol.homes import QueueHomes
from reliq_api.access.auth import Access, Guard
from reliq_api.ui.reading import exists


async def viewer(request: Request) -> Access:
    """Return the rights of the viewer; raises Problem for a missing or wrong key, and for forms of other web sites."""
    guard: Guard = request.app.state.guard
    access = await guard.identify(request)
    request.state.access = access
    return access


Viewer = Annotated[Access, Depends(viewer)]


def reliq_of(request: Request) -> Reliq:
    reliq: Reliq = request.app.state.reliq
    return reliq


def homes_of(request: Request, queue: str) -> QueueHomes:
    """Return the homes of a queue that exists."""
    homes: QueueHomes = request.app.state.homes(queue)
    return homes


def check_all(who: Access, what: str) -> None:
    """Refuse a page about all queues, as `what` are, to keys for some."""
    if not (who.covers_all and who.may_see("*")):
        raise HTTPException(403, f"{what} cover all queues: this needs a key for the queues '*'.")


async def seen(request: Request, who: Viewer, name: str) -> Queue:
    """Return the queue in the path; 404 if it does not exist, or not for this viewer."""
    reliq = reliq_of(request)
    if not who.may_see(name) or not await reliq.store.run(exists(name)):
        raise HTTPException(404, "There is no queue of this name.")
    return reliq.queue(name, of_broadcast=True)


Seen = Annotated[Queue, Depends(seen)]


async def operated(queue: Seen, who: Viewer) -> Queue:
    """Return the queue if the viewer may change it and read its messages."""
    if not who.may_operate(queue.name):
        raise HTTPException(403, "This needs a key with the scope operate for this queue.")
    return queue


Operated = Annotated[Queue, Depends(operated)]


async def sendable(queue: Operated, who: Viewer) -> Queue:
    """Return the queue if the viewer may also choose what enters it."""
    if not who.may_send(queue.name):
        raise HTTPException(403, "This needs a key with the scopes operate and enqueue for this queue.")
    return queue


Sendable = Annotated[Queue, Depends(sendable)]
