"""Runs ops against Redis for the tasks of an event loop: the same contract as `store`, by the same rules."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
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
_LOOK_EVERY = 0.2  #: seconds between two looks at a connection that should stay open

AioCall = Callable[[Request, "AioLink", float | None], Awaitable[Any]]

_of_parents: list[Any] = []  # connections that closing, or being collected, would take from the parent's selector


class AioLink:
    """One asyncio connection; the same contract as Link."""

    def __init__(self, store: "AioStore | ClusterNode", name: str = "") -> None:
        self._store: Any = store
        self._name = name
        self._connection: Any = None
        self._mark = forks.mark()
        self._epoch = store.epoch
        self.watching = False  #: until the transaction, also when the connection is lost: the steps must begin again
        self.lives = 0
        self.named = False  #: the server knows its name
        self.on_connect: Callable[[bool], None] | None = None  #: told of each new connection, and whether it is named
        self._identity: Identity | None = None  #: of the latest connection, also when it is lost
        self.follow: Callable[[Node, Request, int], Awaitable[Any]] | None = None  #: in a cluster, to where a key moves

    async def perform(self, request: Request) -> Any:
        """Send it once and read the answer. Raises Lost, Busy or a ReliqError."""
        if isinstance(request, Sleep):
            await asyncio.sleep(request.seconds)
            return None
        if self.connected and self.ended:
            await self.close()  # found out before a command is sent into the void
        if isinstance(request, Watch):
            self.watching = False
        replies = await self._exchange(commands_of(request))
        if unknown := unknown_scripts(replies):
            await self._load(request, replies, unknown)
        if self.follow is not None and (moving := asked_elsewhere(request, replies)):
            for place, node in moving:
                replies[place] = await self.follow(node, request, place)
        watched = self.watching
        if isinstance(request, (Watch, Transaction)):
            self.watching = isinstance(request, Watch)
        try:
            answer = read(request, replies)
            if self._store.sentinels is not None and waits(request):
                await self._ask_for_failover(self._store.sentinels)
            return answer
        except Busy as refusal:
            self.watching = watched  # a transaction that was refused has ended the watch: it cannot be repeated alone
            if refusal.elsewhere:
                await self._depart()
            raise

    async def _load(self, request: Request, replies: list[Any], unknown: list[int]) -> None:
        """Load the scripts that the server did not know, and run them now."""
        commands = commands_of(request)
        try:
            answers = await self._exchange([*loading(request), *(commands[place] for place in unknown)])
        except Lost as error:
            error.sent = error.sent or carried_out(request, replies)
            raise
        for place, answer in zip(unknown, answers[-len(unknown) :], strict=True):
            replies[place] = answer

    async def ask(self, request: Request, place: int) -> Any:
        """Run one command of a request on the node that its key is moving to."""
        asking = [("ASKING",), commands_of(request)[place]]
        try:
            _, reply = await self._exchange(asking)
            if unknown_scripts([reply]):
                *_, reply = await self._exchange([*loading(request), *asking])
        except Lost as error:
            error.sent = True  # of the request, another part
            raise
        return reply

    async def _ask_for_failover(self, sentinels: Sentinels) -> None:
        """Raise Lost where a failover takes the master from here: what replicas have confirmed may be lost."""
        address = (self._connection.host, int(self._connection.port))
        if not await asyncio.to_thread(sentinels.vouch, address):
            raise Lost(sent=True, cause="a failover is under way")

    async def _depart(self) -> None:
        """Leave a server that is no master any more, and have the other links of the store look where that is."""
        self._store.depart(self._epoch)
        await self.close()

    async def release(self) -> None:
        """End a run of steps: what it watched is watched no more."""
        if self.watching:
            await self.close()
            self.watching = False

    async def _exchange(self, commands: list[Command]) -> list[Any]:
        task = asyncio.current_task()
        cancelled = task.cancelling() if task else 0
        connection = await self._connected()
        packed = pack(commands)
        try:
            await connection.send_packed_command(packed)
            if task and task.cancelling() > cancelled:
                raise asyncio.CancelledError  # noqa: TRY301  redis-py sends by wait_for, which forgets it in Python 3.11
            if self._store.sentinels is not None:
                return await self._replies_of_master(connection, len(commands))
            return [await self._reply(connection) for _ in commands]
        except connection_ended(aio=True) as error:
            await self.close()
            raise failed(error, sent=True) from None
        except BaseException:
            await self.close()  # cancelled between send and answer: the next reader would read this answer
            raise

    async def _replies_of_master(self, connection: Any, count: int) -> list[Any]:
        """Wait for replies, but not for those of a server that is no master any more; raises Lost."""

        async def read_all() -> list[Any]:
            return [await self._reply(connection) for _ in range(count)]

        reading = asyncio.ensure_future(read_all())
        try:
            while not (await asyncio.wait({reading}, timeout=_LOOK_EVERY))[0]:
                if self._epoch != self._store.epoch:
                    raise Lost(sent=True, cause="the master is elsewhere")
            return reading.result()
        finally:
            reading.cancel()

    @staticmethod
    async def _reply(connection: Any) -> Any:
        try:
            return await connection.read_response()
        except redis_errors().ResponseError as error:
            return error

    async def _connected(self) -> Any:
        self._leave_to_parent()
        if self._epoch != self._store.epoch:
            await self.close()
        if self._connection is None:
            if self.watching:
                raise Lost(sent=False, cause="the connection that watched is gone")
            self._epoch = self._store.epoch
            if self._store.sentinels is not None:
                await asyncio.to_thread(
                    self._store.sentinels.master
                )  # else the next line waits for it in the event loop
            connection = self._store.new_connection()
            try:
                await connection.connect()
            except (redis_errors().RedisError, *connection_ended(aio=True)) as error:
                await connection.disconnect(nowait=True)
                raise failed(error, sent=False) from None
            self._connection = connection
            self.lives += 1
            if self.lives > 1:
                self._store.check_again()
            if self._name:
                await self._introduce()
            if self.on_connect is not None:
                self.on_connect(self.named)
        return self._connection

    def _leave_to_parent(self) -> None:
        """In a forked child: let go of the parent's connection without a word to its event loop, which both share."""
        mark = forks.mark()
        if self._mark != mark:
            if self._connection is not None:
                _of_parents.append(self._connection)
            self._connection, self._identity = None, None  # the parent's is not to be ended
            self._mark, self.watching, self.named = mark, False, False

    async def _introduce(self) -> None:
        """Name the new connection, and have the server end the one before it."""
        try:
            replies = await self._exchange(introduction(self._name, self._identity))
            self.named, self._identity = introduced(replies, self.named)
        except Lost as error:
            raise Lost(sent=False, cause=error.cause) from None  # the caller's request has not been sent yet
        except Busy:
            await self.close()
            raise

    @property
    def ended(self) -> bool:
        """Whether the server has closed the connection meanwhile. Looks at what the event loop knows: costs no call."""
        reader, writer = self._connection._reader, self._connection._writer  # noqa: SLF001  redis-py tells no other way
        if reader is None or writer is None or self._epoch != self._store.epoch:
            return True
        return bool(reader.at_eof() or reader.exception() is not None or writer.transport.is_closing())

    async def wait_closed(self, timeout: float) -> bool:
        """Wait until the server closes the connection, at most `timeout` seconds; True when it has."""
        until = time.monotonic() + timeout
        while not (ended := self.connected and self.ended) and (left := until - time.monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left, _LOOK_EVERY))  # the event loop tells no other way
        return ended

    @property
    def connected(self) -> bool:
        """Whether there is a connection; it may have ended."""
        return self._connection is not None

    async def close(self) -> None:
        self._leave_to_parent()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with contextlib.suppress(*connection_ended(aio=True)):
                await connection.disconnect(nowait=True)


class AioClusterLink(AioLink):
    """A connection to each node of a Redis Cluster that was needed so far; the same contract."""

    def __init__(self, store: "AioStore", name: str = "") -> None:
        super().__init__(store, name)
        self._links: dict[Node, AioLink] = {}

    async def perform(self, request: Request) -> Any:
        """Send each node its part, and read the answers."""
        if isinstance(request, Sleep):
            return await super().perform(request)
        if isinstance(request, Watch):
            await self.release()
        try:
            parts = split(request, await self._slots())
            return merged(request, parts, await self._ask_all(parts))
        except (Lost, Busy):
            self._store.learn(None)  # somebody else may have them now
            raise
        finally:
            self.watching = any(link.watching for link in self._links.values())
            self.lives = sum(link.lives for link in self._links.values())

    async def _ask_all(self, parts: Sequence[Part]) -> list[Any]:
        answers: list[Any] = []
        changed = False
        for part in parts:
            try:
                answers.append(await self._ask(part))
            except (Lost, Busy) as error:
                error.sent = error.sent or changed
                raise
            except QueueFull:
                if changed and all(repeatable(one.request) for one in parts):
                    raise carried_out_in_part() from None
                raise
            changed = changed or not only_reads(part.request)
        return answers

    async def _ask(self, part: Part) -> Any:
        if part.node is not ANY:
            return await self._at(part.node).perform(part.request)
        failure: Exception = Busy("it has no nodes")
        for node in self._store.known_nodes():
            try:
                return await self._at(node).perform(part.request)
            except Lost as error:
                failure = error
                if error.sent:
                    break
        raise failure

    def _at(self, node: Node | None) -> AioLink:
        node = addressed(node, self._links)
        if node not in self._links:
            link = self._links[node] = AioLink(ClusterNode(self._store, node), self._name)
            link.on_connect = self.on_connect
            link.follow = lambda node, request, place: self._at(node).ask(request, place)
        return self._links[node]

    async def _slots(self) -> Slots:
        if self._store.slots is None:
            failure: Exception = Busy("it has no nodes")
            # First those that we speak to: one that is unreachable takes seconds to say so.
            for node in sorted(self._store.known_nodes(), key=lambda node: node not in self._links):
                try:
                    self._store.learn(await self._at(node).perform(cluster_slots(node)))
                    break
                except (Lost, Busy, RedisUnavailable) as error:
                    failure = error
                except ReliqError:
                    raise no_cluster(self._store.where) from None
            else:
                raise failure
        found: Slots = self._store.slots
        return found

    @property
    def connected(self) -> bool:
        return any(link.connected for link in self._links.values())

    @property
    def ended(self) -> bool:
        return any(link.connected and link.ended for link in self._links.values())

    async def release(self) -> None:
        """End a run of steps, on every node."""
        for link in self._links.values():
            await link.release()
        self.watching = False

    async def close(self) -> None:
        await super().close()
        for link in self._links.values():
            await link.close()


class AioStore(Server):
    """A Redis server, for the tasks of one event loop; the same contract as Store."""

    def __init__(
        self, url: str, *, allow_eviction: bool = False, timeout: float = settings.SEND_TIMEOUT, connect: Any = None
    ) -> None:
        super().__init__(url, aio=True, allow_eviction=allow_eviction, timeout=timeout, connect=connect)
        self._idle: deque[AioLink] = deque()

    async def run(self, steps: Steps[T], link: AioLink | None = None, timeout: float | None = None) -> T:
        """Run steps to their end. Raises what they raise, RedisUnavailable, or OutcomeUnknown."""
        if link is not None:
            return await self._drive(steps, link, timeout)
        borrowed = self._idle.pop() if self._idle else self.link()
        try:
            return await self._drive(steps, borrowed, timeout)
        finally:
            self._idle.append(borrowed)

    async def call(self, request: Request, link: AioLink, timeout: float | None = None) -> Any:
        """Run one request."""
        if not self._checked:
            await self._check(link, timeout)
        return await self._send(request, link, timeout)

    async def _check(self, link: AioLink, timeout: float | None) -> None:
        """Refuse a server that must not hold a queue, before anybody's first call."""
        await self._step(self.check(), link, timeout, self._send)

    async def _send(self, request: Request, link: AioLink, timeout: float | None) -> Any:
        try:
            return await link.perform(request)
        except (Lost, Busy) as failure:
            return await self._again(request, link, failure, timeout)

    async def _again(self, request: Request, link: AioLink, failure: Lost | Busy, timeout: float | None) -> Any:
        patience = Patience(request, self.where, self.timeout if timeout is None else timeout, link.watching)
        while True:
            await asyncio.sleep(patience.after(failure))
            try:
                return await link.perform(request)
            except (Lost, Busy) as again:
                failure = again
            except ReliqError as error:
                raise patience.refused(error) from None

    async def _drive(self, steps: Steps[T], link: AioLink, timeout: float | None) -> T:
        try:
            return await self._step(steps, link, timeout)
        finally:
            await link.release()

    async def _step(self, steps: Steps[T], link: AioLink, timeout: float | None, call: AioCall | None = None) -> T:
        call = call or self.call
        try:
            request = next(steps)
            while True:
                try:
                    answer = await call(request, link, timeout)
                except BaseException as error:  # noqa: BLE001  a cancellation too: the steps must know that there is no answer
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    def link(self, name: str = "") -> AioLink:
        """A connection of one's own; `name` is what CLIENT LIST shows."""
        return AioClusterLink(self, name) if self.sharded else AioLink(self, name)

    async def close(self) -> None:
        """Close the idle connections; the next call opens new ones."""
        while self._idle:
            await self._idle.pop().close()
        if self.sentinels is not None:
            self.sentinels.close()
