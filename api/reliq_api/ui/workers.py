"""The pages about workers: the processes that consume."""

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq.model.instruction import Instruction
from reliq.model.worker import NO_WORKER, WorkerProcess
from reliq.protocol.workers import by_process, consuming, find_worker, instruct
from reliq.runtime.looking import seeing_all
from reliq_api.access.auth import Access
from reliq_api.ui.access import Viewer, reliq_of
from reliq_api.ui.guard import Form, Page
from reliq_api.ui.render import page, redirect

SECTION = {"workers": "Workers"}
NOTICES = {
    "told-pause": "The worker pauses with its next heartbeat.",
    "told-resume": "The worker resumes with its next heartbeat.",
    "told-stop": "The worker stops with its next heartbeat.",
}
router = APIRouter(route_class=Page, prefix="/workers")

SHOWN = 500


@router.get("")
async def workers(request: Request, who: Viewer) -> Response:
    """List them by host and pid, with those of their queues that the key may see."""
    reliq = reliq_of(request)
    names = [name for name in await reliq.queues(of_broadcasts=True) if who.may_see(name)]
    found = by_process(await reliq.store.run(consuming(names)))
    operated = {name for name in names if who.may_operate(name)}  # of others no message is shown
    return page(request, "workers.html", workers=found[:SHOWN], count=len(found), most=SHOWN, operated=operated)


@router.get("/{worker}")
async def worker(request: Request, who: Viewer, worker: str) -> Response:
    """Show one worker, with those of its queues that the key may see."""
    one = await _existing(request, who, worker)
    may_operate = one.follows and all(map(who.may_operate, one.queues))
    shown = [each for each in one.consumers if who.may_see(each.queue)]
    operated = {each.queue for each in shown if who.may_operate(each.queue)}
    return page(
        request, "worker.html", worker=one, consumers=shown, operated=operated, may_operate=may_operate,
        no_worker=NO_WORKER,
    )  # fmt: skip


@router.post("/{worker}/{instruction}")
async def instruct_worker(
    request: Request, who: Viewer, worker: str, instruction: Instruction, fields: Form
) -> Response:
    """Tell it to pause, to go on or to stop."""
    one = await _existing(request, who, worker)
    if not all(map(who.may_operate, one.queues)):
        raise HTTPException(403, "This needs a key with the scope operate for all queues of the worker.")
    if not one.follows:
        raise HTTPException(404, f"{one.id} is not a worker; {NO_WORKER}.")
    if not await reliq_of(request).store.run(instruct(one, instruction)):
        raise HTTPException(404, "This worker has ended.")
    return redirect(request, "workers", one.id, notice=f"told-{instruction.value}")


async def _existing(request: Request, who: Access, identity: str) -> WorkerProcess:
    with seeing_all(needed=not who.covers_all):
        one = await reliq_of(request).store.run(find_worker(identity))
    if one is None or not any(map(who.may_see, one.queues)):
        raise HTTPException(404, "There is no worker with this id: it has ended.")
    return one
