"""Queues: statistics, policy, pause, resume, purge."""

from dataclasses import asdict
from typing import Any

from fastapi import Request

from reliq import aio, ops
from reliq.contract.keywords import Config
from reliq.errors import ReliqError
from reliq.protocol.partial_reads import QUEUES, or_unseen
from reliq.protocol.stats import read_readable
from reliq.runtime.looking import unseen
from reliq_api import schemas
from reliq_api.http.problems import Problem
from reliq_api.http.route import call_router, needs
from reliq_api.schemas.queues import PartitionProgress

router = call_router("queues")

MAX_CURSOR = 16_384  #: characters of a page's `next`, which has a part for each partition


@router.get("/queues", summary="All queues", **needs("metrics"))
async def list_queues(request: Request) -> schemas.QueueList:
    """The queues to which the key has rights."""
    reliq: aio.Reliq = request.app.state.reliq
    access = request.state.access
    names = [name for name in await reliq.queues(of_broadcasts=True) if access.may_see(name)]
    readings, _ = await reliq.store.run(read_readable(names))
    return schemas.QueueList(queues=[schemas.QueueStats.model_validate(reading) for reading in readings])


def _config(config: Config) -> schemas.QueueConfig:
    return schemas.QueueConfig(**asdict(config))


def of_all_queues(request: Request, what: str) -> aio.Reliq:
    """Return the application; raises Problem unless the rights cover all queues, as `what` do."""
    request.state.access.check_all(what)
    reliq: aio.Reliq = request.app.state.reliq
    return reliq


async def existing(request: Request, queue: str) -> aio.Queue:
    """Return the queue; raises Problem if it does not exist."""
    reliq: aio.Reliq = request.app.state.reliq
    # Without the list of all queues, an operator's call goes on.
    if not await reliq.store.run(or_unseen(QUEUES, ops.one(ops.is_queue(queue)), otherwise=True)):
        raise Problem("queue_not_found", f"there is no queue {queue!r}, or not for this key")
    return reliq.queue(queue, of_broadcast=True)


@router.get("/queues/{queue}", summary="One queue, with its policy", **needs("metrics"))
async def show(queue: schemas.QueueName, request: Request) -> schemas.QueueDetails:
    found = await existing(request, queue)
    stats, config = await found.stats(), None
    try:
        config = _config(await found.config())
    except ReliqError as error:
        if not unseen(f"policy of queue {queue}", error):
            raise
    return schemas.QueueDetails(**asdict(stats), config=config)


@router.get("/queues/{queue}/partitions", summary="How a queue is spread over its partitions", **needs("metrics"))
async def partitions(queue: schemas.QueueName, request: Request) -> PartitionProgress:
    """The numbers of each partition, and how far a change of their number is. Most queues have one."""
    found = await (await existing(request, queue)).partitions()
    return PartitionProgress(**asdict(found))


@router.patch("/queues/{queue}", summary="Change a queue's policy", **needs("operate", fails=("change_under_way",)))
async def configure(queue: schemas.QueueName, changes: schemas.ConfigChanges, request: Request) -> schemas.QueueConfig:
    """The policy is stored in Redis, so all producers, workers and monitors follow it. The queue may be new.

    `dead_to` needs a key for that queue, too. 409: an earlier change of `partitions` has not ended.
    """
    given: dict[str, Any] = changes.model_dump(exclude_unset=True)
    request.state.access.check_dead_to(given)
    reliq: aio.Reliq = request.app.state.reliq
    return _config(await reliq.queue(queue).configure(**given))


@router.post("/queues/{queue}/pause", summary="Pause a queue", **needs("operate"))
async def pause(queue: schemas.QueueName, request: Request) -> schemas.Paused:
    """Sends go on and running messages are finished, but no message is started."""
    await (await existing(request, queue)).pause()
    return schemas.Paused(queue=queue, paused=True)


@router.post("/queues/{queue}/resume", summary="End a pause", **needs("operate"))
async def resume(queue: schemas.QueueName, request: Request) -> schemas.Paused:
    await (await existing(request, queue)).resume()
    return schemas.Paused(queue=queue, paused=False)


@router.put("/queues/{queue}/breaker", summary="Open or close a queue's circuit breaker", **needs("operate"))
async def breaker(queue: schemas.QueueName, wanted: schemas.BreakerRequest, request: Request) -> schemas.Breaker:
    """Open: no worker gets a message for `seconds`, then one message is tried. Closed: workers get messages again."""
    found = await existing(request, queue)
    if wanted.state == "open":
        await found.open_breaker(wanted.seconds)
    else:
        await found.close_breaker()
    return schemas.Breaker(queue=queue, breaker=wanted.state)


@router.post("/queues/{queue}/purge", summary="Remove what is ready, delayed, parked or prepared", **needs("operate"))
async def purge(queue: schemas.QueueName, wanted: schemas.PurgeRequest, request: Request) -> schemas.Purged:
    """Deletes messages. `confirm` must repeat the queue's name."""
    if wanted.confirm != queue:
        raise Problem("invalid_request", f"confirm must be {queue!r}; nothing was removed")
    return schemas.Purged(removed=await (await existing(request, queue)).purge())
