"""Workers: who they are, and pause, resume, stop."""

from typing import Annotated

from fastapi import Path, Request

from reliq import aio
from reliq.model.instruction import Instruction
from reliq.model.worker import NO_WORKER
from reliq.protocol.workers import by_process, consuming, find_worker, instruct
from reliq.runtime.looking import seeing_all
from reliq_api import schemas
from reliq_api.access.auth import Access
from reliq_api.http.problems import Problem
from reliq_api.http.route import call_router, needs

router = call_router("workers")

Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$", examples=["c0123456789abcdef0123"])]


@router.get("/workers", summary="The processes that consume", **needs("metrics"))
async def list_workers(request: Request) -> schemas.WorkerList:
    """Those of the queues to which the key has rights. `running` only of queues that it may operate."""
    reliq: aio.Reliq = request.app.state.reliq
    access: Access = request.state.access
    names = [name for name in await reliq.queues(of_broadcasts=True) if access.may_see(name)]
    found = [one.summary() for one in by_process(await reliq.store.run(consuming(names)))]
    for one in found:
        if one["running"] and not access.may_operate(one["running"]["queue"]):
            one["running"] = None
    return schemas.WorkerList(workers=[schemas.Worker(**one) for one in found])


@router.post(
    "/workers/{id}/{instruction}",
    summary="Pause, resume or stop a worker",
    **needs("operate", fails=("worker_not_found",)),
)
async def instruct_worker(id: Id, instruction: Instruction, request: Request) -> schemas.Instructed:
    """It does so with its next heartbeat, within a third of its lease. Needs rights on all of its queues.

    `pause`: it finishes what runs and claims nothing. `stop`: it shuts down cleanly, as after SIGTERM.
    """
    reliq: aio.Reliq = request.app.state.reliq
    access: Access = request.state.access
    with seeing_all(needed=not access.covers_all):
        one = await reliq.store.run(find_worker(id))
    if one is None or not any(map(access.covers, one.queues)):
        raise Problem("worker_not_found", f"there is no worker {id!r}, or not for this key")
    if not one.follows:
        raise Problem("worker_not_found", f"{id!r} is not a worker; {NO_WORKER}")
    if not all(map(access.may_operate, one.queues)):
        raise Problem("forbidden", "the worker also serves queues to which the key has no right; it was told nothing")
    if not await reliq.store.run(instruct(one, instruction)):
        raise Problem("worker_not_found", f"the worker {id!r} has ended")
    return schemas.Instructed(id=one.id, told=instruction.value)
