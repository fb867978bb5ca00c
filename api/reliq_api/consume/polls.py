"""Claims over HTTP. A waiting poll costs a future and no connection: each queue has one blocking connection, which
serves the poll that has waited longest. With several homes it never blocks: the server tells which may have messages.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from reliq import ops
from reliq.aio.home_waiter import HomeWaiter
from reliq.contract import values
from reliq.errors import OutcomeUnknown, RedisUnavailable, ReliqError
from reliq.model.keys import QueueKeys, new_owner
from reliq.model.message import Message
from reliq.protocol.claiming import claim_within, from_any, to_look_at
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.homes import QueueHomes
from reliq.transport.aio_connection import AioConnection
from reliq.transport.aiostore import AioStore
from reliq_api.background import Background
from reliq_api.consume.homes import lease_id

log = logging.getLogger("reliq.api")

_PAUSE = 0.2  #: seconds between two tries while Redis is away
_LOOK = 0.2  #: seconds between two looks at the homes of a queue, where the server does not tell
_KNOWN_MOST = 100_000  #: queues known to exist that are remembered
_SHORTEST_BLOCK = 0.01  #: seconds; 0 would mean for ever

Gone = Callable[[], Coroutine[Any, Any, None]]  #: ends when the client has disconnected


class Poll:
    """One request for messages."""

    def __init__(self, homes: QueueHomes, limit: int, lease: float, wait: float, title: str = "") -> None:
        """`title`: who asks, for people who list the workers."""
        self.queue = homes.queue
        self.steps = ConsumerSteps(homes.first.keys, new_owner(connected=False), lease, title=title)  #: of one home
        self.limit = limit
        self.until = time.monotonic() + wait
        self.answer: asyncio.Future[list[Message]] = asyncio.get_running_loop().create_future()
        self.gone = False  #: the client no longer waits
        self._homes = homes

    @property
    def left(self) -> float:
        """Seconds for which the client still waits."""
        return self.until - time.monotonic()

    @property
    def lease(self) -> str:
        """The id of the lease for its client."""
        return lease_id(self.steps.keys, self.steps.consumer)

    def claim(self, known_empty: Callable[[QueueKeys], bool] = lambda _: False) -> ops.Steps[list[Message]]:
        """Claim messages of one home without waiting. After an error, the same call may be repeated."""
        every = yield from self._homes.known()
        if len(every) == 1:
            yield from self._turn_to(every[0])
            return (yield from claim_within(self.steps, self.limit))
        failing, ready = self._homes.failing, self._homes.ready_counts
        some = to_look_at(every, failing, lambda keys: known_empty(keys) and not self._owes(keys.queue))
        messages = yield from from_any(some, failing, ready, self._claim_from, self._owes)
        if not messages:
            yield from self.leave()
        return messages

    def _owes(self, queue: str) -> bool:
        """Whether a call without an answer may have moved messages of this home."""
        return self.steps.alive and self.steps.keys.queue == queue

    def _claim_from(self, keys: QueueKeys) -> ops.Steps[list[Message]]:
        """Claim from one of several homes."""
        try:
            yield from self._turn_to(keys)
            return (yield from claim_within(self.steps, self.limit))
        except ReliqError:
            self._begin_anew(keys)
            raise

    def leave(self) -> ops.Steps[None]:
        """Leave a home that has given no messages: without an answer, the lease ends by itself."""
        with contextlib.suppress(RedisUnavailable, OutcomeUnknown):
            yield from self.steps.leave()

    def wait(self, timeout: float, known_empty: Callable[[QueueKeys], bool]) -> ops.Steps[list[Message]]:
        """Claim messages, and wait for them for at most this many seconds. With several homes it does not wait."""
        every = yield from self._homes.known()
        if len(every) > 1:
            return (yield from self.claim(known_empty))
        yield from self._turn_to(every[0])
        messages = yield from claim_within(self.steps, self.limit, timeout)
        yield from self.steps.count_arrived()
        return messages

    @property
    def awaited(self) -> list[str]:
        """With several homes: the keys that exist when a claim may return messages."""
        return self._homes.awaited

    def _turn_to(self, keys: QueueKeys) -> ops.Steps[None]:
        """Ask this home from now on."""
        if self.steps.keys.queue != keys.queue:
            yield from self.leave()
            self._begin_anew(keys)

    def _begin_anew(self, keys: QueueKeys) -> None:
        """Go on as a new consumer. What the old one may hold comes back when its lease, no longer renewed, ends."""
        former = self.steps
        self.steps = ConsumerSteps(keys, new_owner(connected=False), former.lease, title=former.title)


class Polls:
    """All polls of this process."""

    def __init__(self, store: AioStore, background: Background) -> None:
        self._store = store
        self._background = background
        self._pollers: dict[str, Poller] = {}
        self._known: set[str] = set()  #: queues that exist
        self.draining = False

    async def take(self, poll: Poll, gone: Gone) -> list[Message]:
        """Return messages, or none after its time, when the service stops, or when the client disconnects (`gone`).

        Messages claimed for a disconnected client are given back at once.
        """
        queue = poll.queue
        there = await self._exists(queue)
        if not there and poll.left <= 0:
            return []
        if there and (queue not in self._pollers or poll.left <= 0):
            messages = await self._claim(poll)
            if messages or poll.left <= 0:
                return messages
        if self.draining:
            return []
        if queue not in self._pollers:
            self._pollers[queue] = Poller(
                self._store, self._background, lambda: self._exists(queue), self._forget
            )  # fmt: skip
        return await self._pollers[queue].wait(poll, gone)

    async def _exists(self, queue: str) -> bool:
        """Whether the queue exists. A poll does not create it: names invented by clients would stay forever."""
        if queue in self._known:
            return True
        ask = [ops.is_queue(queue), ops.has_messages(QueueKeys(queue))]
        there = any(await self._store.run(ops.one(ask)))
        if there:
            if len(self._known) >= _KNOWN_MOST:
                self._known.clear()  # most of them may be gone
            self._known.add(queue)
        return there

    async def _claim(self, poll: Poll) -> list[Message]:
        messages = await self._store.run(poll.claim())
        if not messages:
            await self._store.run(poll.leave())
        return messages

    def _forget(self, poller: "Poller") -> None:
        for queue, one in list(self._pollers.items()):
            if one is poller:
                del self._pollers[queue]

    def drain(self) -> None:
        """Answer all polls now, because the service stops."""
        self.draining = True
        for poller in list(self._pollers.values()):
            poller.hurry()


class Poller:
    """The polls that wait for one queue, in order of arrival. Exists as long as there are any."""

    def __init__(
        self,
        store: AioStore,
        background: Background,
        exists: Callable[[], Awaitable[bool]],
        ended: Callable[["Poller"], object],
    ) -> None:
        self._store = store
        self._background = background
        self._exists = exists
        self._ended = ended
        self._waiting: deque[Poll] = deque()
        self._served: Poll | None = None  #: the poll for which the connection blocks
        self._started = False
        self._waiter = HomeWaiter(store)

    async def wait(self, poll: Poll, gone: Gone) -> list[Message]:
        self._waiting.append(poll)
        if not self._started:
            self._started = True
            self._background.start("polling", self._run)
        listener = asyncio.create_task(gone())
        listener.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.wait((poll.answer, listener), timeout=poll.left, return_when=asyncio.FIRST_COMPLETED)
            poll.gone = listener.done()
            if not poll.answer.done() and poll is not self._served:
                self._waiting.remove(poll)
                return []
            messages = await poll.answer  # a command is never cancelled: it answers within values.BLOCK
            if messages and listener.done():
                await self._store.run(poll.steps.leave())
                return []
            return messages
        finally:
            poll.gone = True
            listener.cancel()

    def hurry(self) -> None:
        for poll in self._waiting:
            poll.until = time.monotonic()
            if poll is not self._served and not poll.answer.done():
                poll.answer.set_result([])
        self._waiting = deque(poll for poll in self._waiting if poll is self._served)

    async def _run(self) -> None:
        """Serve one poll after another. Called again after a failure, which is reported to its poll."""
        connection = self._store.connection(
            "reliq-poll"
        )  # named, so that a lost connection is closed before the next one claims
        try:
            await self._wait_for_queue()
            while self._waiting:
                self._served = poll = self._waiting[0]
                try:
                    await self._serve(poll, connection)
                except BaseException as error:
                    self._answer(poll, [], OutcomeUnknown(f"the poll was broken off: {type(error).__name__}"))
                    raise
            self._ended(self)  # before any await: a new poll starts another poller
        finally:
            try:
                await connection.close()
            except Exception as error:  # noqa: BLE001  it was forgotten before it could fail to close
                log.debug("the connection of a poll failed to close: %r", error)

    async def _wait_for_queue(self) -> None:
        """Wait until the queue exists, no poll waits for it any more, or Redis cannot be asked."""
        try:
            while self._waiting and not await self._exists():  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE)
        except ReliqError as error:
            log.debug("a poll could not look whether its queue exists: %s", error)

    async def _serve(self, poll: Poll, connection: AioConnection) -> None:
        """Block for one poll until it has messages, its time is over, or its client is gone."""
        messages: list[Message] = []
        error: ReliqError | None = None
        in_vain = 0
        while not messages and poll.left > 0 and not poll.gone:
            timeout = max(_SHORTEST_BLOCK, min(values.BLOCK, poll.left, poll.steps.lease / 3))
            try:
                messages = await self._store.run(poll.wait(timeout, self._known_empty), connection, timeout=0)
                error = None
            except ReliqError as failure:
                error = failure
                await asyncio.sleep(_PAUSE)
                continue
            if not messages and (awaited := poll.awaited):
                in_vain = in_vain + 1 if await self._waiter.wait(awaited, timeout, _LOOK, in_vain) else 0
        if not messages or poll.gone:
            messages = []
            try:
                await self._store.run(poll.steps.leave(), connection, timeout=0)
            except ReliqError as failure:
                log.warning("queue=%s a poll ended without unregistering: %s", poll.queue, failure)
        self._answer(poll, messages, error)

    def _known_empty(self, keys: QueueKeys) -> bool:
        return self._waiter.known_empty(keys.messages)

    def _answer(self, poll: Poll, messages: list[Message], error: ReliqError | None) -> None:
        self._waiting.remove(poll)
        self._served = None
        if poll.answer.done():  # cancelled with its request
            return
        if error is None:
            poll.answer.set_result(messages)
        else:
            poll.answer.set_exception(error)
