"""One connection to Redis, for tasks of an event loop."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from reliq import forks
from reliq.ops import Await, Op, Request, Sleep, Transaction, Watch
from reliq.transport.aio_replies import Replies, read_replies, replies_on
from reliq.transport.calls import (
    answered,
    asked_elsewhere,
    carried_out,
    loading,
    not_sent,
    partly_sent,
    to_repeat,
    unknown_in_transaction,
    unknown_scripts,
    waits,
)
from reliq.transport.connection_state import ConnectionState
from reliq.transport.errors import ConnectionLost, TryAgain, connection_ended, failed, redis_errors
from reliq.transport.introduction import introduced, introduction
from reliq.transport.resp import Command, commands_of, pack, portions
from reliq.transport.sentinel import Sentinels
from reliq.transport.target import Endpoint

T = TypeVar("T")
_LOOK_EVERY = 0.2  #: seconds between two checks of a connection that should stay open

_of_parents: list[Any] = []  # kept alive: closing or collecting them would remove them from the parent's selector


class AioConnection(ConnectionState):
    """One asyncio connection; the contract of Connection."""

    def __init__(self, endpoint: Endpoint, name: str = "") -> None:
        super().__init__(endpoint, name)
        self._replies: Replies | None = None  #: on the connection; None: redis-py reads them
        self.placed = False  #: its run has a place of the store

    async def perform(self, request: Request) -> Any:
        """Send a request once and read the answer. Raises ConnectionLost, TryAgain or a ReliqError."""
        if isinstance(request, Sleep):
            return await pause(request)
        if self._raw is not None and self.ended:
            await self.close()  # noticed before a command is sent on a dead connection
        if type(request) is Op:  # nearly every call
            replies = await self._exchange((request.command,))
            if not isinstance(replies[0], Exception):
                return request.read(replies[0])
        else:
            replies = await self._replies_to(request)
        if unknown := unknown_scripts(replies):
            await self._load(request, replies, unknown)
        if unknown_in_transaction(request, replies):
            await self._exchange(loading(request))
            raise to_repeat(request, replies)
        if self.follow is not None and (moving := asked_elsewhere(request, replies)):
            for place, node in moving:
                replies[place] = await self.follow(node, request, place)
        try:
            answer = self._answer(request, replies)
            if self._endpoint.sentinels is not None and waits(request):
                await self._ask_for_failover(self._endpoint.sentinels)
            return answer
        except TryAgain as refusal:
            if refusal.elsewhere:
                await self._depart()
            raise

    async def _replies_to(self, request: Request) -> list[Any]:
        """Send a request of several commands and read the replies."""
        if isinstance(request, Watch):
            self.watching = False
        elif isinstance(request, Transaction) and request.repeatable:
            await self._load_first(request)
        return await self._exchange(commands_of(request))

    async def _load(self, request: Request, replies: list[Any], unknown: list[int]) -> None:
        """Load the scripts that the server did not know, and run them."""
        commands = commands_of(request)
        with partly_sent(carried_out(request, replies)):
            answers = await self._exchange([*loading(request), *(commands[place] for place in unknown)])
        for place, answer in zip(unknown, answered(answers, len(unknown)), strict=True):
            replies[place] = answer

    async def ask(self, request: Request, place: int) -> Any:
        """Run one command of a request on the node that its key is moving to."""
        asking = [("ASKING",), commands_of(request)[place]]
        with partly_sent():
            _, reply = await self._exchange(asking)
            if unknown_scripts([reply]):
                (reply,) = answered(await self._exchange([*loading(request), *asking]), 1)
        return reply

    async def _ask_for_failover(self, sentinels: Sentinels) -> None:
        """Raise ConnectionLost during a failover from this master: writes confirmed by replicas may be lost."""
        address = (self._raw.host, int(self._raw.port))
        if not await asyncio.to_thread(sentinels.vouch, address):
            raise ConnectionLost(sent=True, cause="a failover is under way")

    async def _depart(self) -> None:
        """Leave a server that is no longer the master, and make the store's other connections look for the master."""
        self._endpoint.depart(self._epoch)
        await self.close()

    async def release(self) -> None:
        """End a run of steps and its watch."""
        if self.watching:
            await self.close()
            self.watching = False

    async def _load_first(self, request: Transaction) -> None:
        """Load the scripts of a transaction that this connection has not loaded."""
        with not_sent():
            await self._ensure_connected()
            commands = self._loaded.missing(request, self.connects)
            replies = await self._exchange(commands) if commands else []
        self._loaded.note(request, self.connects, replies)

    async def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        raw = self._raw if self._usable else await self._ensure_connected()
        packed = pack(commands)
        try:
            if self._replies is None or not self._replies.write(packed):
                with _cancellation_noticed():
                    for portion in portions(packed):
                        await raw.send_packed_command(portion)
            if self._endpoint.sentinels is not None:
                return await self._replies_of_master(raw, len(commands))
            return await self._read(raw, len(commands))
        except connection_ended(aio=True) as error:
            await self.close()
            raise failed(error, sent=True) from None
        except BaseException:
            await self.close()  # cancelled between request and reply: the next reader would read this reply
            raise

    def _read(self, raw: Any, count: int) -> Coroutine[Any, Any, list[Any]]:
        return read_replies(raw, count) if self._replies is None else self._replies.read(count)

    async def _replies_of_master(self, raw: Any, count: int) -> list[Any]:
        """Wait for replies, but not from a server that is no longer the master; raises ConnectionLost."""
        reading = asyncio.ensure_future(self._read(raw, count))
        try:
            while not (await asyncio.wait({reading}, timeout=_LOOK_EVERY))[0]:
                if self._epoch != self._endpoint.epoch:
                    raise ConnectionLost(sent=True, cause="the master is elsewhere")
            return reading.result()
        finally:
            reading.cancel()

    @property
    def _usable(self) -> bool:
        """Whether there is a connection, to the right server, of this process."""
        return self._raw is not None and self._epoch == self._endpoint.epoch and self._mark == forks.mark()

    async def _ensure_connected(self) -> Any:
        """Connect anew where that is needed; raises ConnectionLost."""
        self._leave_to_parent()
        if self._epoch != self._endpoint.epoch:
            await self.close()
        if self._raw is None:
            if self.watching:
                raise ConnectionLost(sent=False, cause="the connection that watched is gone")
            self._epoch = self._endpoint.epoch
            if self._endpoint.sentinels is not None:
                await asyncio.to_thread(
                    self._endpoint.sentinels.master
                )  # else the next line waits for it in the event loop
            raw = self._endpoint.new_connection()
            try:
                with _cancellation_noticed():
                    await raw.connect()
            except (redis_errors().RedisError, *connection_ended(aio=True)) as error:
                await raw.disconnect(nowait=True)
                raise failed(error, sent=False) from None
            except asyncio.CancelledError:
                await raw.disconnect(nowait=True)
                raise
            self._raw, self._replies = raw, replies_on(raw)
            self.connects += 1
            if self.connects > 1:
                self._endpoint.check_again()
            await self._introduce()
            if self.on_connect is not None:
                self.on_connect(self.named)
        return self._raw

    def _leave_to_parent(self) -> None:
        """In a forked child: drop the parent's connection without touching the event loop that both share."""
        mark = forks.mark()
        if self._mark != mark:
            if self._raw is not None:
                _of_parents.append(self._raw)
            self._raw, self._identity = None, None  # the parent's connection must not be ended
            self._mark, self.watching, self.named = mark, False, False

    async def _introduce(self) -> None:
        """See that the server answers; name a connection that has a name, and make the server end the previous one."""
        try:
            with not_sent():
                replies = await self._exchange(introduction(self._name, self._identity))
            if self._name:
                self.named, self._identity = introduced(replies, self.named)
        except TryAgain:
            await self.close()
            raise

    @property
    def ended(self) -> bool:
        """Whether the server has closed the connection, as far as the event loop knows; no system call."""
        if self._replies is not None and self._epoch == self._endpoint.epoch:
            return self._replies.ended
        reader, writer = self._raw._reader, self._raw._writer  # noqa: SLF001  redis-py tells no other way
        if reader is None or writer is None or self._epoch != self._endpoint.epoch:
            return True
        return bool(reader.at_eof() or reader.exception() is not None or writer.transport.is_closing())

    async def wait_closed(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the server closes the connection; return whether it did."""
        until = time.monotonic() + timeout
        while not (ended := self.connected and self.ended) and (left := until - time.monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left, _LOOK_EVERY))  # the event loop offers no notification
        return ended

    async def close(self) -> None:
        self._leave_to_parent()
        if self._raw is not None:
            raw, self._raw = self._raw, None
            with contextlib.suppress(*connection_ended(aio=True)):
                await raw.disconnect(nowait=True)


async def pause(request: Sleep) -> None:
    """Wait for so long."""
    if isinstance(request, Await):
        await asyncio.create_task(request.hook, context=request.context)
    else:
        await asyncio.sleep(request.seconds)


@contextlib.contextmanager
def _cancellation_noticed() -> Iterator[None]:
    """Raise CancelledError for a cancellation meanwhile: redis-py uses wait_for, which forgets it in Python 3.11."""
    task = asyncio.current_task()
    cancelled = task.cancelling() if task else 0
    yield
    if task and task.cancelling() > cancelled:
        raise asyncio.CancelledError
