"""Runs ops against Redis, one at a time or many in a pipeline. For threads; `aiostore` does the same for asyncio.

redis-py is used for its connections only: its clients re-send commands whose reply was lost, which leaves two copies of
an LPUSH. Here a command is sent once; whether it may be sent again is the op's own word (`Op.repeatable`). When no
answer comes, the caller is told which it is: `RedisUnavailable` = surely not carried out, `OutcomeUnknown` = maybe.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from reliq import forks, settings
from reliq.cluster import ANY, Node, Part, Slots, merged, split
from reliq.errors import QueueFull, RedisUnavailable, ReliqError
from reliq.introduction import Identity, introduced, introduction
from reliq.ops import Request, Sleep, Steps, Transaction, Watch
from reliq.retry import Patience
from reliq.sentinel import Sentinels
from reliq.server import ClusterNode, Server, addressed
from reliq.wire import (
    Busy,
    Command,
    Lost,
    asked_elsewhere,
    carried_out,
    carried_out_in_part,
    cluster_slots,
    commands_of,
    connection_ended,
    failed,
    loading,
    no_cluster,
    only_reads,
    pack,
    read,
    redis_errors,
    repeatable,
    unknown_scripts,
    waits,
)

T = TypeVar("T")
Call = Callable[[Request, "Link", float | None], Any]

_LOOK_EVERY = 0.25  #: seconds between two looks whether the master is elsewhere
_IDLE = 1.0  #: seconds after which a connection is looked at before it is used again


class Owed:
    """The replies to commands that were sent together."""

    __slots__ = ("count", "lost", "replies")

    def __init__(self, count: int) -> None:
        self.count = count
        self.replies: list[Any] | None = None
        self.lost = False


class Link:
    """One connection. Reconnects when it has to; every reconnect counts up `lives`."""

    def __init__(self, store: "Store | ClusterNode", name: str = "") -> None:
        self._store: Any = store
        self._name = name
        self._connection: Any = None
        self._mark = forks.mark()
        self._used_at = 0.0
        self.connected_at = 0.0  #: by time.monotonic()
        self._epoch = store.epoch
        self.watching = False  #: until the transaction, also when the connection is lost: the steps must begin again
        self.lives = 0
        self.named = False  #: the server knows its name
        self.on_connect: Callable[[bool], None] | None = None  #: told of each new connection, and whether it is named
        self._identity: Identity | None = None  #: of the latest connection, also when it is lost
        self.follow: Callable[[Node, Request, int], Any] | None = None  #: in a cluster, to where a key is moving
        self._owed: deque[Owed] = deque()  #: of what was sent, in this order

    @property
    def reconnected(self) -> bool:
        """Whether it has had an earlier connection."""
        return self.lives > 1

    def perform(self, request: Request) -> Any:
        """Send it once and read the answer. Raises Lost, Busy or a ReliqError."""
        if isinstance(request, Sleep):
            time.sleep(request.seconds)
            return None
        return self.finish(request, self.begin(request))

    def begin(self, request: Request) -> Any:
        """Send it once, and answer a ticket for `finish`. Others may be begun and finished meanwhile. Raises Lost."""
        if isinstance(request, Watch):
            self.watching = False
        return self._send(commands_of(request))

    def finish(self, request: Request, ticket: Any) -> Any:
        """Read the answer to what was begun. Raises as `perform`."""
        replies = self._receive(ticket)
        if unknown := unknown_scripts(replies):
            self._load(request, replies, unknown)
        if self.follow is not None and (moving := asked_elsewhere(request, replies)):
            for place, node in moving:
                replies[place] = self.follow(node, request, place)
        watched = self.watching
        if isinstance(request, (Watch, Transaction)):
            self.watching = isinstance(request, Watch)
        try:
            answer = read(request, replies)
            if self._store.sentinels is not None and waits(request):
                self._ask_for_failover(self._store.sentinels)
            return answer
        except Busy as refusal:
            self.watching = watched  # a transaction that was refused has ended the watch: it cannot be repeated alone
            if refusal.elsewhere:
                self._depart()
            raise

    def _load(self, request: Request, replies: list[Any], unknown: list[int]) -> None:
        """Load the scripts that the server did not know, and run them now."""
        commands = commands_of(request)
        try:
            answers = self._exchange([*loading(request), *(commands[place] for place in unknown)])
        except Lost as error:
            error.sent = error.sent or carried_out(request, replies)
            raise
        for place, answer in zip(unknown, answers[-len(unknown) :], strict=True):
            replies[place] = answer

    def ask(self, request: Request, place: int) -> Any:
        """Run one command of a request on the node that its key is moving to."""
        asking = [("ASKING",), commands_of(request)[place]]
        try:
            _, reply = self._exchange(asking)
            if unknown_scripts([reply]):
                *_, reply = self._exchange([*loading(request), *asking])
        except Lost as error:
            error.sent = True  # of the request, another part
            raise
        return reply

    def _ask_for_failover(self, sentinels: Sentinels) -> None:
        """Raise Lost where a failover takes the master from here: what replicas have confirmed may be lost."""
        address = (self._connection.host, int(self._connection.port))
        if not sentinels.vouch(address):
            raise Lost(sent=True, cause="a failover is under way")

    def _depart(self) -> None:
        """Leave a server that is no master any more, and have the other links of the store look where that is."""
        self._store.depart(self._epoch)
        self.close()

    def release(self) -> None:
        """End a run of steps: what it watched is watched no more."""
        if self.watching:
            self.close()
            self.watching = False

    def _exchange(self, commands: list[Command]) -> list[Any]:
        return self._receive(self._send(commands))

    def _send(self, commands: list[Command]) -> Owed:
        connection = self._connected()
        packed = pack(commands)
        owed = Owed(len(commands))
        self._owed.append(owed)
        try:
            connection.send_packed_command(packed)
        except connection_ended() as error:
            self.close()
            raise failed(error, sent=True) from None  # a write that fails half way may have delivered a whole command
        except BaseException:
            self.close()
            raise
        return owed

    def _receive(self, owed: Owed) -> list[Any]:
        """Its replies; those that are owed before them are read on the way, and kept."""
        while owed.replies is None:
            if owed.lost:
                raise Lost(sent=True, cause="ConnectionError")
            first = self._owed[0]
            try:
                if self._store.sentinels is not None:
                    self._wait_for_answer()
                first.replies = [self._reply(self._connection) for _ in range(first.count)]
            except connection_ended() as error:
                self.close()
                raise failed(error, sent=True) from None
            except BaseException:
                self.close()  # an interrupt: the next reader would read the rest of this answer
                raise
            self._owed.popleft()
        return owed.replies

    def _wait_for_answer(self) -> None:
        """Wait as long as a reply may take, but not for a server that is no master any more; raises Lost."""
        until = time.monotonic() + self._connection.socket_timeout
        while time.monotonic() < until and not self._connection.can_read(_LOOK_EVERY):
            if self._epoch != self._store.epoch:
                raise Lost(sent=True, cause="the master is elsewhere")

    @staticmethod
    def _reply(connection: Any) -> Any:
        try:
            return connection.read_response()
        except redis_errors().ResponseError as error:
            return error

    def _connected(self) -> Any:
        mark = forks.mark()
        if self._mark != mark:
            self._connection, self._mark = None, mark  # the socket is the parent's
            self._identity, self.named = None, False  # and is not to be ended
            self._forget()
        if self._epoch != self._store.epoch and not self._owed:
            self.close()
        now = time.monotonic()
        if self._connection is not None and not self._owed and now - self._used_at > _IDLE and self._ended():
            self.close()  # found out before a command is sent into the void
        self._used_at = now
        if self._connection is None:
            if self.watching:
                raise Lost(sent=False, cause="the connection that watched is gone")
            self._epoch = self._store.epoch
            connection = self._store.new_connection()
            try:
                connection.connect()
            except (redis_errors().RedisError, OSError) as error:
                connection.disconnect()
                raise failed(error, sent=False) from None
            self._connection = connection
            self.lives += 1
            self.connected_at = now
            if self.lives > 1:
                self._store.check_again()
            if self._name:
                self._introduce()
            if self.on_connect is not None:
                self.on_connect(self.named)
        return self._connection

    def _introduce(self) -> None:
        """Name the new connection, and have the server end the one before it."""
        try:
            replies = self._exchange(introduction(self._name, self._identity))
            self.named, self._identity = introduced(replies, self.named)
        except Lost as error:
            raise Lost(sent=False, cause=error.cause) from None  # the caller's request has not been sent yet
        except Busy:
            self.close()
            raise

    def _ended(self) -> bool:
        """Whether the server has closed the connection meanwhile, or said what nobody asked for."""
        try:
            return bool(self._connection.can_read(0))
        except connection_ended():
            return True

    def wait_closed(self, timeout: float) -> bool:
        """Wait until the server closes the connection, at most `timeout` seconds; True when it has."""
        until = time.monotonic() + timeout
        try:
            while (left := until - time.monotonic()) > 0:
                if self._connected().can_read(min(left, _LOOK_EVERY)) or self._epoch != self._store.epoch:
                    self.close()
                    return True
        except (Lost, Busy, ReliqError, redis_errors().RedisError, OSError):
            self.close()
            return True
        return False

    def _forget(self) -> None:
        """What was asked on this connection will never be answered."""
        for owed in self._owed:
            owed.lost = True
        self._owed.clear()

    def close(self) -> None:
        self._forget()
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None


class ClusterLink(Link):
    """A connection to each node of a Redis Cluster that was needed so far; the same contract."""

    def __init__(self, store: "Store", name: str = "") -> None:
        super().__init__(store, name)
        self._links: dict[Node, Link] = {}

    @property
    def reconnected(self) -> bool:
        return any(link.reconnected for link in self._links.values())

    def begin(self, request: Request) -> Any:
        """Send it, where one node has all of it; else `finish` does it all."""
        if isinstance(request, Watch):
            self.release()
        with self._learning():
            parts = split(request, self._slots())
            whole = len(parts) == 1 and parts[0].node is not ANY
            return parts, self._at(parts[0].node).begin(parts[0].request) if whole else None

    def finish(self, request: Request, ticket: Any) -> Any:
        """Read the answers, having sent each node its part."""
        parts, begun = ticket
        with self._learning():
            if begun is not None:
                return merged(request, parts, [self._at(parts[0].node).finish(parts[0].request, begun)])
            return merged(request, parts, list(self._ask_all(parts)))

    def _ask_all(self, parts: Sequence[Part]) -> Iterator[Any]:
        changed = False
        for part in parts:
            try:
                yield self._ask(part)
            except (Lost, Busy) as error:
                error.sent = error.sent or changed
                raise
            except QueueFull:
                if changed and all(repeatable(one.request) for one in parts):
                    raise carried_out_in_part() from None
                raise
            changed = changed or not only_reads(part.request)

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """Note what becomes of the links; where one fails, somebody else may have the slots now."""
        try:
            yield
        except (Lost, Busy):
            self._store.learn(None)
            raise
        finally:
            links = self._links.values()
            self.watching = any(link.watching for link in links)
            self.lives = sum(link.lives for link in links)
            self.connected_at = max((link.connected_at for link in links), default=0.0)

    def _ask(self, part: Part) -> Any:
        if part.node is not ANY:
            return self._at(part.node).perform(part.request)
        failure: Exception = Busy("it has no nodes")
        for node in self._store.known_nodes():
            try:
                return self._at(node).perform(part.request)
            except Lost as error:
                failure = error
                if error.sent:
                    break
        raise failure

    def _at(self, node: Node | None) -> Link:
        node = addressed(node, self._links)
        if node not in self._links:
            link = self._links[node] = Link(ClusterNode(self._store, node), self._name)
            link.on_connect = self.on_connect
            link.follow = lambda node, request, place: self._at(node).ask(request, place)
        return self._links[node]

    def _slots(self) -> Slots:
        if self._store.slots is None:
            failure: Exception = Busy("it has no nodes")
            # First those that we speak to: one that is unreachable takes seconds to say so.
            for node in sorted(self._store.known_nodes(), key=lambda node: node not in self._links):
                try:
                    self._store.learn(self._at(node).perform(cluster_slots(node)))
                    break
                except (Lost, Busy, RedisUnavailable) as error:
                    failure = error
                except ReliqError:
                    raise no_cluster(self._store.where) from None
            else:
                raise failure
        found: Slots = self._store.slots
        return found

    def wait_closed(self, timeout: float) -> bool:
        for link in list(self._links.values())[:1]:
            return link.wait_closed(timeout)
        return super().wait_closed(timeout)

    def release(self) -> None:
        """End a run of steps, on every node."""
        for link in self._links.values():
            link.release()
        self.watching = False

    def close(self) -> None:
        super().close()
        for link in self._links.values():
            link.close()


class Store(Server):
    """A Redis server, for threads: any number of them may run steps at once."""

    def __init__(
        self, url: str, *, allow_eviction: bool = False, timeout: float = settings.SEND_TIMEOUT, connect: Any = None
    ) -> None:
        """`connect` makes a redis-py connection; given by tests that bring a server of their own."""
        super().__init__(url, aio=False, allow_eviction=allow_eviction, timeout=timeout, connect=connect)
        self._idle: deque[Link] = deque()

    def run(self, steps: Steps[T], link: Link | None = None, timeout: float | None = None) -> T:
        """Run steps to their end. Raises what they raise, RedisUnavailable, or OutcomeUnknown."""
        if link is not None:
            return self._drive(steps, link, timeout)
        borrowed = self._take()
        try:
            return self._drive(steps, borrowed, timeout)
        finally:
            self._idle.append(borrowed)

    def start(self, steps: Steps[T], link: Link, timeout: float | None = None) -> Callable[[], T]:
        """Send the first request of steps, and answer what runs them to their end; until then the link is theirs.

        Raises what the steps raise before that request; what is answered raises as `run`.
        """
        if not self._checked:
            self._check(link, timeout)
        try:
            request = next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return lambda: result
        failure: Lost | Busy | None = None
        try:
            ticket = link.begin(request)
        except (Lost, Busy) as error:
            failure = error

        def finish(request: Request, link: Link, timeout: float | None) -> Any:
            try:
                if failure is not None:
                    raise failure
                return link.finish(request, ticket)
            except (Lost, Busy) as error:
                return self._again(request, link, error, timeout)

        return lambda: self._drive(steps, link, timeout, under_way=(request, finish))

    def call(self, request: Request, link: Link | None = None, timeout: float | None = None) -> Any:
        """Run one request."""
        if link is None:
            with self.borrow() as borrowed:
                return self.call(request, borrowed, timeout)
        if not self._checked:
            self._check(link, timeout)
        return self._send(request, link, timeout)

    def _check(self, link: Link, timeout: float | None) -> None:
        """Refuse a server that must not hold a queue, before anybody's first call."""
        self._step(self.check(), link, timeout, self._send)

    def _send(self, request: Request, link: Link, timeout: float | None) -> Any:
        try:
            return link.perform(request)
        except (Lost, Busy) as failure:
            return self._again(request, link, failure, timeout)

    def _again(self, request: Request, link: Link, failure: Lost | Busy, timeout: float | None) -> Any:
        patience = Patience(request, self.where, self.timeout if timeout is None else timeout, link.watching)
        while True:
            time.sleep(patience.after(failure))
            try:
                return link.perform(request)
            except (Lost, Busy) as again:
                failure = again
            except ReliqError as error:
                raise patience.refused(error) from None

    def _drive(
        self, steps: Steps[T], link: Link, timeout: float | None, under_way: tuple[Request, Call] | None = None
    ) -> T:
        try:
            return self._step(steps, link, timeout, under_way=under_way)
        finally:
            link.release()

    def _step(
        self,
        steps: Steps[T],
        link: Link,
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
                    answer = ask(request, link, timeout)
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
    def borrow(self) -> Iterator[Link]:
        """A link of the pool, for as long as the context lasts."""
        link = self._take()
        try:
            yield link
        finally:
            self._idle.append(link)

    def _take(self) -> Link:
        try:
            return self._idle.pop()
        except IndexError:
            return self.link()

    def link(self, name: str = "") -> Link:
        """A connection of one's own; `name` is what CLIENT LIST shows."""
        return ClusterLink(self, name) if self.sharded else Link(self, name)

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
