"""Runs steps against Redis for the tasks of an event loop; the asyncio counterpart of `store`."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from reliq.contract import values
from reliq.errors import OutcomeUnknown, RedisUnavailable, ReliqError
from reliq.ops import Op, Request, Sleep, Steps, Together, one
from reliq.ops.mention import Mention, Mentions
from reliq.transport.aio_cluster import AioClusterConnection
from reliq.transport.aio_connection import AioConnection, pause
from reliq.transport.calls import lasts
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.places import Places
from reliq.transport.retry import CallRetry
from reliq.transport.server import IDLE_MOST, Server
from reliq.transport.shared_reads import SharedRead
from reliq.transport.store import Store

T = TypeVar("T")

AioCall = Callable[[Any, Any, float | None], Awaitable[Any]]


class AioStore(Server):
    """A Redis server, for the tasks of one event loop; the contract of Store.

    Of runs without a connection of their own at most `calls` go on at once, and so many connections are open. One that
    waits for something, on the server or here, leaves its place to another. Others wait for their turn, while Redis
    answers those before them for as long as it takes, else for as long as a call is repeated.
    """

    def __init__(
        self,
        url: str,
        *,
        allow_eviction: bool = False,
        timeout: float = values.SEND_TIMEOUT,
        calls: int = values.CALLS_AT_ONCE,
    ) -> None:
        super().__init__(url, aio=True, allow_eviction=allow_eviction, timeout=timeout, connect=None)
        self._idle: deque[AioConnection] = deque()
        self._places = Places(calls)
        self._calls = calls
        self._blocked_runs = 0  #: of those that run apart
        self._shared_reads: dict[str, tuple[SharedRead, asyncio.Task[None]]] = {}  #: by stream
        self._answered = 0.0  #: when a run ended well, by time.monotonic()

    async def run(self, steps: Steps[T], connection: AioConnection | None = None, timeout: float | None = None) -> T:
        """Run steps to their end. Raises the errors of the steps, RedisUnavailable or OutcomeUnknown."""
        if connection is not None:
            return await self._released(steps, connection, timeout)
        if not self._places.take() and not await self._places.turn():
            raise RedisUnavailable(f"Redis at {self.where} cannot be reached (nor for the calls before this one)")
        used = self._idle.pop() if self._idle else self.connection()
        used.placed = True
        try:
            result = await self._released(steps, used, timeout)
            self._answered = time.monotonic()
            return result
        except (RedisUnavailable, OutcomeUnknown):
            if time.monotonic() - self._answered > self.timeout:
                self._places.give_up(self.timeout)
            raise
        finally:
            self._make_room(used)
            if idle := self._given_back(used):
                await idle.close()

    async def run_apart(self, steps: Steps[T]) -> T:
        """Run steps that wait for long: each request has a connection of its own, and so many at most wait on one."""
        return await self._step(steps, None, None, self._apart)

    async def _apart(self, request: Request | Together, _: None, timeout: float | None) -> Any:
        if isinstance(request, Mention):
            return await self._read_shared(request)
        if isinstance(request, Sleep):
            return await pause(request)
        if isinstance(request, Op) and request.blocks:
            return await self._block(request, timeout)
        return await self.run(one(request), timeout=timeout)

    async def _block(self, request: Op[Any], timeout: float | None) -> Any:
        """Wait on the server, which takes a connection; where too many do so, wait here, as if nothing came."""
        if self._blocked_runs == self._calls:
            await asyncio.sleep(request.blocks)
            return request.read(None)
        self._blocked_runs += 1
        try:
            return await self.run(one(request), timeout=timeout)
        finally:
            self._blocked_runs -= 1

    async def _read_shared(self, wanted: Mention) -> Mentions | None:
        """Wait for the read of this stream that all its waiting tasks share; the first of them starts it."""
        stream = wanted.stream
        if stream not in self._shared_reads:
            read = SharedRead(wanted)
            task = asyncio.create_task(self._read_for_all(read, stream), name=f"reliq-read-{stream}")
            self._shared_reads[stream] = read, task
        return await self._shared_reads[stream][0].wait(wanted)

    async def _read_for_all(self, read: SharedRead, stream: str) -> None:
        try:
            await read.run(lambda mention: self.run(one(mention)))
        finally:
            del self._shared_reads[stream]

    async def _released(self, steps: Steps[T], connection: AioConnection, timeout: float | None) -> T:
        """Run steps, and end what they have watched."""
        try:
            return await self._step(steps, connection, timeout)
        finally:
            if connection.watching:
                await connection.release()

    def _make_room(self, connection: AioConnection) -> None:
        if connection.placed:
            connection.placed = False
            self._places.leave()

    def call(
        self, request: Request | Together, connection: AioConnection, timeout: float | None = None
    ) -> Awaitable[Any]:
        """Run one request."""
        if connection.placed and lasts(request):
            self._make_room(connection)
        if self._checked and not isinstance(request, Together):
            return self._send(request, connection, timeout)
        return self._call(request, connection, timeout)

    async def _call(self, request: Request | Together, connection: AioConnection, timeout: float | None) -> Any:
        """Run several steps, or the first request to the server."""
        if isinstance(request, Together):
            return await asyncio.gather(*(self._outcome(steps, timeout) for steps in request.steps))
        await self._check(connection, timeout)
        return await self._send(request, connection, timeout)

    async def _outcome(self, steps: Steps[Any], timeout: float | None) -> Any:
        """Run one of several steps on a connection of its own."""
        try:
            return await AioStore.run(self, steps, None, timeout)
        except ReliqError as error:
            return error

    def _given_back(self, connection: AioConnection) -> AioConnection | None:
        """Keep a connection for the next call; return the one that was idle for longest if that is too long."""
        now = connection.idle_since = time.monotonic()
        self._idle.append(connection)
        return self._idle.popleft() if now - self._idle[0].idle_since > IDLE_MOST else None

    async def _check(self, connection: AioConnection, timeout: float | None) -> None:
        """Refuse a server that cannot hold a queue, before the first call."""
        await self._step(self.check(), connection, timeout, self._send)

    async def _send(self, request: Request, connection: AioConnection, timeout: float | None) -> Any:
        began = time.monotonic()
        try:
            return await connection.perform(request)
        except (ConnectionLost, TryAgain) as failure:
            return await self._again(request, connection, failure, began + self.patience(timeout))

    async def _again(
        self, request: Request, connection: AioConnection, failure: ConnectionLost | TryAgain, until: float
    ) -> Any:
        patience = CallRetry(request, self.where, until, connection.watching, self._known)
        while True:
            await asyncio.sleep(patience.after(failure))
            try:
                return await connection.perform(request)
            except (ConnectionLost, TryAgain) as again:
                failure = again
            except ReliqError as error:
                raise patience.refused(error) from None

    async def _step(
        self, steps: Steps[T], connection: AioConnection | None, timeout: float | None, call: AioCall | None = None
    ) -> T:
        ask: AioCall = call or self.call
        try:
            request = next(steps)
            while True:
                try:
                    answer = await ask(request, connection, timeout)
                except BaseException as error:  # noqa: BLE001  a cancellation too: the steps must know that there is no answer
                    request = steps.throw(await self._error_for_steps(error, request, connection))
                else:
                    request = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    async def _error_for_steps(
        self, error: BaseException, request: Request | Together, connection: AioConnection | None
    ) -> BaseException:
        """Return the error that the steps get for one of a request."""
        return error

    def connector(self) -> Store | None:
        """Return a store of the same server for threads; None for a server that a test has given."""
        return None if self._given else Store(self._url, allow_eviction=self._allow_eviction)

    def connection(self, name: str = "") -> AioConnection:
        """Return a new connection for exclusive use; `name` is its name in CLIENT LIST."""
        return AioClusterConnection(self, name) if self.sharded else AioConnection(self, name)

    async def close(self) -> None:
        """Close the idle connections; the next call opens new ones."""
        self._end_watches()
        while self._idle:
            await self._idle.pop().close()
        if self.sentinels is not None:
            self.sentinels.close()
