"""Runs steps against Redis, for threads; `aiostore` is the asyncio counterpart.

redis-py is used for its connections only: its clients repeat commands after a lost reply, which leaves two copies of
an LPUSH. Here a command is sent once; `Op.repeatable` says whether it may be sent again. Without a reply the caller
gets either `RedisUnavailable`, certainly not carried out, or `OutcomeUnknown`, perhaps carried out.
"""

import functools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from reliq.contract import values
from reliq.errors import ReliqError
from reliq.ops import Request, Steps, Together, Watch
from reliq.ops.topology import Node
from reliq.runtime.advice import warn_of_blocking
from reliq.transport.cluster import ClusterConnection
from reliq.transport.connection import Connection
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.retry import CallRetry
from reliq.transport.server import IDLE_MOST, ClusterNode, Server

T = TypeVar("T")


class Store(Server):
    """A Redis server, for any number of threads."""

    def __init__(
        self, url: str, *, allow_eviction: bool = False, timeout: float = values.SEND_TIMEOUT, connect: Any = None
    ) -> None:
        """Set the target. `connect` makes a redis-py connection; given by tests with a server of their own."""
        super().__init__(url, aio=False, allow_eviction=allow_eviction, timeout=timeout, connect=connect)
        self._idle: deque[Connection] = deque()

    def run(self, steps: Steps[T], connection: Connection | None = None, timeout: float | None = None) -> T:
        """Run steps to their end. Raises the errors of the steps, RedisUnavailable or OutcomeUnknown."""
        warn_of_blocking()
        if connection is not None:
            return self._drive(steps, connection, timeout)
        borrowed = self._take()
        try:
            return self._drive(steps, borrowed, timeout)
        finally:
            self._give_back(borrowed)

    def run_apart(self, steps: Steps[T]) -> T:
        """Run steps that wait for long."""
        return self.run(steps)

    def start(self, steps: Steps[T], connection: Connection, timeout: float | None = None) -> "PendingCall[T]":
        """Send the first request of steps; the `result()` of the returned call runs them to their end.

        Raises what the steps raise before that request.
        """
        if not self._checked:
            self._check(connection, timeout)
        return PendingCall(self, steps, connection, timeout)

    def call(
        self, request: Request | Together, connection: Connection | None = None, timeout: float | None = None
    ) -> Any:
        """Run one request."""
        if isinstance(request, Together):
            return self._together(request.steps, timeout)
        if connection is None:
            with self.borrow() as borrowed:
                return self.call(request, borrowed, timeout)
        if not self._checked:
            self._check(connection, timeout)
        return self._send(request, connection, timeout)

    def _together(self, steps: Sequence[Steps[Any]], timeout: float | None) -> list[Any]:
        """Send the first requests of all steps over one connection, then run one after the other to its end."""
        with self.borrow() as connection:
            started = [_outcome(functools.partial(self.start, one, connection, timeout)) for one in steps]
            for one in started:
                if isinstance(one, PendingCall):
                    one.receive()  # before one that is refused leaves the server, and closes the connection of all
            return [_outcome(one.result) if isinstance(one, PendingCall) else one for one in started]

    def _check(self, connection: Connection, timeout: float | None) -> None:
        """Refuse a server that must not hold a queue, before the first call."""
        self._run(self.check(), lambda request: self._send(request, connection, timeout))

    def _send(self, request: Request, connection: Connection, timeout: float | None) -> Any:
        began = time.monotonic()
        try:
            return connection.perform(request)
        except (ConnectionLost, TryAgain) as failure:
            return self.repeat(request, connection, failure, began + self.patience(timeout))

    def repeat(self, request: Request, connection: Connection, failure: ConnectionLost | TryAgain, until: float) -> Any:
        """Send a request that failed again, for as long as it may be repeated, `until` its time is over."""
        patience = CallRetry(request, self.where, until, connection.watching, self._known)
        while True:
            time.sleep(patience.after(failure))
            try:
                return connection.perform(request)
            except (ConnectionLost, TryAgain) as again:
                failure = again
            except ReliqError as error:
                raise patience.refused(error) from None

    def _drive(self, steps: Steps[T], connection: Connection, timeout: float | None) -> T:
        try:
            return self._run(steps, lambda request: self.call(request, connection, timeout))
        finally:
            connection.release()

    def _run(self, steps: Steps[T], ask: Callable[[Any], Any]) -> T:
        try:
            request = next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        return self.go_on(steps, lambda: ask(request), ask)

    @staticmethod
    def go_on(steps: Steps[T], answer: Callable[[], Any], ask: Callable[[Any], Any]) -> T:
        """Run steps that wait for `answer()` to their end; `ask` carries out what they request then."""
        try:
            while True:
                try:
                    reply = answer()
                except BaseException as error:  # noqa: BLE001  an interrupt too: the steps must know that there is no answer
                    request = steps.throw(error)
                else:
                    request = steps.send(reply)
                answer = functools.partial(ask, request)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        """A connection of the pool, for as long as the context lasts."""
        connection = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _take(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self.connection()

    def _give_back(self, connection: Connection) -> None:
        """Keep a connection for the next call, and close the one that was idle for longest if that is too long."""
        now = connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if len(self._idle) > 1:
            with suppress(IndexError):  # another thread took it
                if now - self._idle[0].idle_since > IDLE_MOST:
                    self._idle.popleft().close()

    def connector(self) -> "Store":
        """Return a store of the same server for threads: this one."""
        return self

    def connection(self, name: str = "") -> Connection:
        """Return a new connection for exclusive use; `name` is its name in CLIENT LIST."""
        return ClusterConnection(self, name) if self.sharded else Connection(self, name)

    def connection_to(self, node: Node, name: str = "") -> Connection:
        """Return a new connection to a node of the cluster, for what belongs to the node and to no key."""
        return Connection(ClusterNode(self, node), name)

    def redirect(self, url: str, connect: Any = None) -> None:
        super().redirect(url, connect)
        self.close()

    def close(self) -> None:
        """Close the idle connections; the next call opens new ones."""
        self._end_watches()
        while self._idle:
            self._idle.pop().close()
        if self.sentinels is not None:
            self.sentinels.close()


def _outcome(call: Callable[[], T]) -> T | ReliqError:
    try:
        return call()
    except ReliqError as error:
        return error


class PendingCall(Generic[T]):
    """Steps with their first request sent; the connection is reserved for them until `result`."""

    def __init__(self, store: Store, steps: Steps[T], connection: Connection, timeout: float | None) -> None:
        self._store = store
        self._steps = steps
        self._connection = connection
        self._timeout = timeout
        self._began = time.monotonic()
        self._request: Request | Together | None = None  #: None: the steps ended without a request
        self._failure: ConnectionLost | TryAgain | None = None
        self._ticket: Any = None
        try:
            self._request = next(steps)
            if not isinstance(self._request, (Together, Watch)):  # nothing else may run before what follows a watch
                self._ticket = connection.begin(self._request)
        except StopIteration as stop:
            self._value: T = stop.value
        except (ConnectionLost, TryAgain) as error:
            self._failure = error

    def result(self) -> T:
        """Read the answer and run the steps to their end. Raises as `Store.run`."""
        if self._request is None:
            return self._value
        try:
            return self._store.go_on(self._steps, functools.partial(self._answer, self._request), self._ask)
        finally:
            self._connection.release()

    def receive(self) -> None:
        """Wait for the answer to the first request."""
        if self._ticket is not None:
            self._connection.receive(self._ticket)

    @property
    def arrived(self) -> bool:
        """Whether `result` need not wait for the answer to the first request."""
        return self._request is None or self._failure is not None or self._connection.arrived(self._ticket)

    def _answer(self, request: Any) -> Any:
        try:
            if self._failure is not None:
                raise self._failure
            if self._ticket is None:
                return self._ask(request)
            return self._connection.finish(request, self._ticket)
        except (ConnectionLost, TryAgain) as error:
            until = self._began + self._store.patience(self._timeout)
            return self._store.repeat(request, self._connection, error, until)

    def _ask(self, request: Request | Together) -> Any:
        return self._store.call(request, self._connection, self._timeout)


def unchecked_store(url: str) -> Store:
    """Return a store that accepts servers that cannot hold a queue, to report why they cannot."""
    store = Store(url)
    store.trust()
    return store
