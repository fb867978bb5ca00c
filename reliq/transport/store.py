"""Runs ops against Redis, one at a time or many in a pipeline. For threads; `aiostore` does the same for asyncio.

redis-py is used for its connections only: its clients re-send commands whose reply was lost, which leaves two copies of
an LPUSH. Here a command is sent once; whether it may be sent again is the op's own word (`Op.repeatable`). When no
answer comes, the caller is told which it is: `RedisUnavailable` = surely not carried out, `OutcomeUnknown` = maybe.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from reliq.errors import ReliqError
from reliq.model import settings
from reliq.ops import Request, Steps
from reliq.transport.cluster import ClusterConnection
from reliq.transport.connection import Connection
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.retry import CallRetry
from reliq.transport.server import Server

T = TypeVar("T")
Call = Callable[[Request, "Connection", float | None], Any]


class Store(Server):
    """A Redis server, for threads: any number of them may run steps at once."""

    def __init__(
        self, url: str, *, allow_eviction: bool = False, timeout: float = settings.SEND_TIMEOUT, connect: Any = None
    ) -> None:
        """`connect` makes a redis-py connection; given by tests that bring a server of their own."""
        super().__init__(url, aio=False, allow_eviction=allow_eviction, timeout=timeout, connect=connect)
        self._idle: deque[Connection] = deque()

    def run(self, steps: Steps[T], connection: Connection | None = None, timeout: float | None = None) -> T:
        """Run steps to their end. Raises what they raise, RedisUnavailable, or OutcomeUnknown."""
        if connection is not None:
            return self._drive(steps, connection, timeout)
        borrowed = self._take()
        try:
            return self._drive(steps, borrowed, timeout)
        finally:
            self._idle.append(borrowed)

    def start(self, steps: Steps[T], connection: Connection, timeout: float | None = None) -> Callable[[], T]:
        """Send the first request of steps, and answer what runs them to their end; until then the link is theirs.

        Raises what the steps raise before that request; what is answered raises as `run`.
        """
        if not self._checked:
            self._check(connection, timeout)
        try:
            request = next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return lambda: result
        failure: ConnectionLost | TryAgain | None = None
        try:
            ticket = connection.begin(request)
        except (ConnectionLost, TryAgain) as error:
            failure = error

        def finish(request: Request, connection: Connection, timeout: float | None) -> Any:
            try:
                if failure is not None:
                    raise failure
                return connection.finish(request, ticket)
            except (ConnectionLost, TryAgain) as error:
                return self._again(request, connection, error, timeout)

        return lambda: self._drive(steps, connection, timeout, under_way=(request, finish))

    def call(self, request: Request, connection: Connection | None = None, timeout: float | None = None) -> Any:
        """Run one request."""
        if connection is None:
            with self.borrow() as borrowed:
                return self.call(request, borrowed, timeout)
        if not self._checked:
            self._check(connection, timeout)
        return self._send(request, connection, timeout)

    def _check(self, connection: Connection, timeout: float | None) -> None:
        """Refuse a server that must not hold a queue, before anybody's first call."""
        self._step(self.check(), connection, timeout, self._send)

    def _send(self, request: Request, connection: Connection, timeout: float | None) -> Any:
        try:
            return connection.perform(request)
        except (ConnectionLost, TryAgain) as failure:
            return self._again(request, connection, failure, timeout)

    def _again(
        self, request: Request, connection: Connection, failure: ConnectionLost | TryAgain, timeout: float | None
    ) -> Any:
        patience = CallRetry(request, self.where, self.timeout if timeout is None else timeout, connection.watching)
        while True:
            time.sleep(patience.after(failure))
            try:
                return connection.perform(request)
            except (ConnectionLost, TryAgain) as again:
                failure = again
            except ReliqError as error:
                raise patience.refused(error) from None

    def _drive(
        self,
        steps: Steps[T],
        connection: Connection,
        timeout: float | None,
        under_way: tuple[Request, Call] | None = None,
    ) -> T:
        try:
            return self._step(steps, connection, timeout, under_way=under_way)
        finally:
            connection.release()

    def _step(
        self,
        steps: Steps[T],
        connection: Connection,
        timeout: float | None,
        call: Call | None = None,
        under_way: tuple[Request, Call] | None = None,
    ) -> T:
        """`under_way`: the steps' first request, which was sent, and what gets its answer."""
        call = call or self.call
        try:
            request, ask = under_way or (next(steps), call)
            while True:
                try:
                    answer = ask(request, connection, timeout)
                except BaseException as error:  # noqa: BLE001  an interrupt too: the steps must know that there is no answer
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
                ask = call
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        """A link of the pool, for as long as the context lasts."""
        connection = self._take()
        try:
            yield connection
        finally:
            self._idle.append(connection)

    def _take(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self.connection()

    def connection(self, name: str = "") -> Connection:
        """A connection of one's own; `name` is what CLIENT LIST shows."""
        return ClusterConnection(self, name) if self.sharded else Connection(self, name)

    def redirect(self, url: str, connect: Any = None) -> None:
        """Use another server from now on: for a command line that overrides what a module says, and for tests."""
        self._aim(url, connect)
        self.close()

    def close(self) -> None:
        """Close the idle connections; the next call opens new ones."""
        while self._idle:
            self._idle.pop().close()
        if self.sentinels is not None:
            self.sentinels.close()


def unchecked_store(url: str) -> Store:
    """A store that also speaks to servers that must not hold a queue: to say why."""
    store = Store(url)
    store.trust()
    return store
