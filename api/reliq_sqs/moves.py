"""Move tasks: messages of a dead letter queue on their way to another queue, by one endpoint at a time.

A task is JSON in Redis. The endpoint that runs it has its lead, which ends by itself; when an endpoint is killed,
another one goes on with the task, and with the messages that were in flight. A message is sent with a deduplication key
made of the task, its id and its content, and then deleted: one that was sent before a kill is not sent twice.
"""

import asyncio
import logging
import secrets
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Literal

import msgspec

from reliq import Message, aio
from reliq.errors import ReliqError
from reliq.features.receipts.model import Received
from reliq.model.dead_letter import DEAD_FROM
from reliq.model.outgoing import NewMessage
from reliq.ops import Steps, is_queue, one, server_time
from reliq.ops import sqs as ops
from reliq.runtime.outage_log import OutageLog
from reliq.runtime.pieces import grouped
from reliq.runtime.tempo import Tempo
from reliq_api.background import Background
from reliq_sqs.access import Sender
from reliq_sqs.known import SqsQueue
from reliq_sqs.registry import Registry

log = logging.getLogger("reliq.sqs")

_LOOK = 2.0  #: seconds between two looks for tasks that no endpoint runs
_STEP = 10  #: messages that are moved at once
_VISIBILITY = 60  #: seconds for which a message on its way is invisible
_WINDOW = 86_400.0  #: seconds for which it is known that a message was sent
_KEPT = 10  #: ended tasks of a queue that are remembered
_WAIT = 1  #: seconds in which no message comes before a task is complete

_CANCEL = " cancel"  #: behind an id: the field that exists after a cancellation, which the runner does not write

Status = Literal["RUNNING", "COMPLETED", "CANCELLING", "CANCELLED", "FAILED"]


class Task(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A move task."""

    id: str
    source: str  #: the name of reliq's queue
    source_arn: str
    destination: str = ""  #: empty: each message goes to the queue in which it died
    destination_arn: str = ""
    queues: tuple[str, ...] = ("*",)  #: patterns of the names of queues to which its starter may move messages
    rate: int | None = None  #: messages a second
    started: int = 0  #: ms since the epoch
    status: Status = "RUNNING"
    moved: int = 0
    to_move: int = 0
    failure: str = ""

    @property
    def active(self) -> bool:
        return self.status in ("RUNNING", "CANCELLING")


class Failed(Exception):
    """The task cannot go on; the text is its reason."""


class Moves:
    """The move tasks of all endpoints, and those that this one runs."""

    def __init__(self, app: aio.Reliq, registry: Registry, background: Background) -> None:
        self._app = app
        self._registry = registry
        self._background = background
        self._endpoint = secrets.token_hex(8)
        self._running = set[str]()
        self._news = asyncio.Event()

    def start(self) -> None:
        self._background.start("move tasks", self._watch)

    async def all(self) -> list[Task]:
        """Return all tasks, the latest first."""
        return await self._app.store.run(_all())

    async def add(
        self, source: SqsQueue, destination: SqsQueue | None, rate: int | None, queues: tuple[str, ...]
    ) -> Task:
        """Add a task, which an endpoint begins at once."""
        stats = await self._registry.handle(source).stats()
        task = Task(
            id=str(uuid.uuid4()),
            source=source.queue,
            source_arn=source.arn,
            destination=destination.queue if destination else "",
            destination_arn=destination.arn if destination else "",
            queues=queues,
            rate=rate,
            started=await self._now(),
            to_move=stats.ready,
        )
        await self._app.store.run(_add(task))
        self._news.set()
        return task

    async def cancel(self, task: Task) -> Task:
        """Ask the endpoint that runs a task to end it."""
        await self._app.store.run(one(ops.put_sqs_move(task.id + _CANCEL, b"1")))
        self._news.set()
        return task

    async def _watch(self) -> None:
        """Look for tasks that no endpoint runs, and run them."""
        outage = OutageLog(log, "move tasks")
        while True:
            self._news.clear()
            try:
                await self._look()
                outage.over()
            except ReliqError as error:  # the next look tries again
                outage.failed(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _LOOK)

    async def _look(self) -> None:
        """Begin the tasks that no endpoint runs."""
        for task in await self.all():
            if not task.active or task.id in self._running:
                continue
            if await self._app.store.run(one(ops.lead_sqs_move(task.id, self._endpoint))):
                self._running.add(task.id)
                self._background.start("a move task", lambda task=task: self._lead(task))  # type: ignore[misc]

    async def _lead(self, task: Task) -> None:
        """Run a task while this endpoint has its lead."""
        try:
            try:
                await self._run(task)
            except Failed as error:
                task.status, task.failure = "FAILED", str(error)
                await self._save(task)
            self._running.discard(task.id)
            await self._app.store.run(one(ops.leave_sqs_move(task.id)))
        except ReliqError as error:  # Redis is away: the endpoint that leads next goes on
            log.warning("the move task of %s stopped: %s", task.source, error)
            self._running.discard(task.id)

    async def _run(self, task: Task) -> None:
        source = self._app.queue(task.source)
        began, tempo = time.monotonic(), Tempo(task.rate) if task.rate else None
        inherited = await self._now() - task.started > ops.LEAD * 1000  # from an endpoint that may have died
        made: dict[str, int] = {}  # when each target was created
        while await self._may_go_on(task):
            limit = min(_STEP, task.rate or _STEP)
            attempt = f"sqs move {task.id} {task.moved}"  # repeats what a killed endpoint has received
            before = task.moved
            received = await source.receive(limit=limit, visibility=_VISIBILITY, wait=_WAIT, runs=True, attempt=attempt)
            if received:
                await self._move(task, source, received, made)
                await self._note_progress(task, source)
            elif not inherited or time.monotonic() - began > _VISIBILITY or await _is_empty(source):
                task.status = "COMPLETED"
            await self._save(task)
            if not task.active:
                return
            if tempo is not None:
                await asyncio.sleep(tempo.pause_after(task.moved - before))

    async def _now(self) -> int:
        """Return the time of the Redis server, ms since the epoch: endpoints on other machines have other clocks."""
        now: int = await self._app.store.run(one(server_time()))
        return now

    async def _may_go_on(self, task: Task) -> bool:
        """Keep the lead; return False if another endpoint has it, or if the task was cancelled."""
        leader, there, cancelled = await self._app.store.run(_state(task.id))
        if leader != self._endpoint and not await self._app.store.run(one(ops.lead_sqs_move(task.id, self._endpoint))):
            return False
        if not there:
            return False
        await self._app.store.run(one(ops.keep_sqs_move(task.id, self._endpoint)))
        if cancelled:
            task.status = "CANCELLED"
            await self._save(task)
            return False
        return True

    async def _move(self, task: Task, source: aio.Queue, received: list[Received], made: dict[str, int]) -> None:
        """Send messages to where they go, once, also after a kill, and delete them together.

        Raises Failed at the first one that has no place, once those before it are moved.
        """
        targets: dict[str, tuple[SqsQueue, list[NewMessage]]] = {}
        moved, failure = 0, None
        for one_received in received:
            try:
                target = await self._target(task, one_received.message, made)
            except Failed as error:
                failure = error
                break
            targets.setdefault(target.queue, (target, []))[1].append(self._moved(task, one_received.message, target))
            moved += 1
        for target, messages in targets.values():
            await self._registry.handle(target).send_many(messages)
        receipts = [one.receipt for one in received]
        await source.delete_received(receipts[:moved], late=True)
        task.moved += moved
        if failure is not None:
            await source.change_visibility([(receipt, 0) for receipt in receipts[moved:]])
            raise failure

    async def _target(self, task: Task, message: Message, made: dict[str, int]) -> SqsQueue:
        """Return where a message goes; raises Failed if that is gone, or not for who has started the task.

        A target that was created at another time than noted is gone: a message on its way has made it anew.
        """
        name = task.destination or message.headers.get(DEAD_FROM, "")
        if name and not Sender(queues=task.queues).covers(name):
            raise Failed("AccessDenied")
        place = self._registry.names.of_queue(name)
        target = await self._registry.find(place) if place else None
        if target is None or made.setdefault(target.queue, target.created) != target.created:
            raise Failed("AWS.SimpleQueueService.NonExistentQueue" if name else "CouldNotDetermineMessageSource")
        return target

    def _moved(self, task: Task, message: Message, target: SqsQueue) -> NewMessage:
        """Return a message as it is sent to its target, which accepts it once."""
        headers = {key: value for key, value in message.headers.items() if not key.startswith("reliq-")}
        options = {"key": message.key or message.limit_key or message.id} if target.fifo else {}
        if not target.fifo and (group := message.key or message.limit_key):
            options = {"limit_key": group}
        return NewMessage(
            message.body,
            id=self._registry.ids.new(),
            headers=headers,
            ttl=float(target.retention),
            dedup_key=f"sqs move {task.id} {_identity(message, headers)}",
            window=_WINDOW,
            **options,  # type: ignore[arg-type]
        )

    async def _note_progress(self, task: Task, source: aio.Queue) -> None:
        """End the task once its last message is moved, rather than after the next receive."""
        if task.moved >= task.to_move and not (await source.stats()).ready:
            task.status = "COMPLETED"

    async def _save(self, task: Task) -> None:
        await self._app.store.run(one(ops.put_sqs_move(task.id, msgspec.json.encode(task))))


async def _is_empty(source: aio.Queue) -> bool:
    """Whether nothing is left: what a killed endpoint held may have come back since the latest receive."""
    stats = await source.stats()
    return not (stats.processing or stats.ready)


def _identity(message: Message, headers: Mapping[str, str]) -> str:
    """Return what tells a message from another one with its id, however often it is received."""
    content = sha256(msgspec.msgpack.encode((message.body, sorted(headers.items())))).hexdigest()
    return f"{message.id} {message.enqueued_at} {content}"


def _all() -> Steps[list[Task]]:
    found = yield ops.sqs_moves()
    tasks = []
    for name, text in found.items():
        if name.endswith(_CANCEL):
            continue
        try:
            task = msgspec.json.decode(text, type=Task)
        except msgspec.MsgspecError:
            continue
        if task.active and name + _CANCEL in found:
            task.status = "CANCELLING"
        tasks.append(task)
    return sorted(tasks, key=lambda one: -one.started)


def _add(task: Task) -> Steps[None]:
    """Store a task, and forget the oldest ones of its queue, and those of queues that are gone."""
    by_source = grouped((one.source, one) for one in (yield from _all()) if not one.active)
    forgotten = by_source.pop(task.source, [])[_KEPT - 1 :]
    there = (yield [is_queue(source) for source in by_source]) if by_source else ()
    for some, exists in zip(by_source.values(), there, strict=True):
        forgotten += [] if exists else some
    yield ops.put_sqs_move(task.id, msgspec.json.encode(task))
    if forgotten:
        yield ops.forget_sqs_moves([name for one in forgotten for name in (one.id, one.id + _CANCEL)])


def _state(task: str) -> Steps[tuple[str | None, bool, bool]]:
    """Return which endpoint has the lead of a task, whether the task is known, and whether it was cancelled."""
    leader, text, cancelled = yield [ops.sqs_move_leader(task), ops.sqs_move(task), ops.sqs_move(task + _CANCEL)]
    return leader, text is not None, cancelled is not None
