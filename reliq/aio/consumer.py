"""Claiming and settling by hand."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self
from weakref import WeakSet

from reliq.aio.connections import Connections
from reliq.aio.heartbeat import Heartbeat
from reliq.aio.holding import Holding
from reliq.aio.home_waiter import HomeWaiter
from reliq.aio.unbroken import finish
from reliq.contract import values
from reliq.contract.values import Duration, seconds, whole
from reliq.errors import InvalidSetting, OutcomeUnknown, RedisUnavailable, RedisUnsuitable, ReliqError
from reliq.model.keys import QueueKeys, new_owner, next_life
from reliq.model.message import Message
from reliq.ops import Move, Sleep, one
from reliq.ops.topology import Node
from reliq.protocol.away import AwayNodes
from reliq.protocol.claiming import PATIENCE, HomeLook, to_look_at
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.homes import QueueHomes
from reliq.protocol.lease import Lease
from reliq.protocol.outcomes import buried, failure_now, released, retried
from reliq.protocol.settlement import checked_lease
from reliq.runtime.advice import advise
from reliq.runtime.blocks import AsyncBlock
from reliq.runtime.pieces import grouped
from reliq.transport.aiostore import AioStore

log = logging.getLogger("reliq.partitions")

_WAIT = 0.2  #: seconds between two looks at several homes, where the server does not tell that one has messages
_ENOUGH = 0.001  #: seconds that are too short to wait


class Consumer(AsyncBlock):
    """Claims and settles by hand. A context: leaving it releases what was not settled.

        async with app.queue("orders").consumer(lease=30) as consumer:
            for message in await consumer.claim(limit=10, wait=5):
                await consumer.ack(message)

    Within the context a thread or task renews the lease, however long the work takes. Settling a message again is no
    error and changes nothing. One thread or task claims at a time.
    """

    def __init__(self, store: AioStore, homes: QueueHomes, lease: Duration = values.LEASE) -> None:
        self.lease = checked_lease(lease)  #: seconds
        self._store = store
        self._homes = homes
        self._layout: object = None  #: by which its homes were found
        self._owner = new_owner()
        self._connections: dict[Node | None, Connections] = {}  #: to each node of a cluster, as far as it is known
        self._first = self._held_at(homes.first.keys, self._owner)
        self._holdings = {homes.queue: self._first}  #: one for each home of the queue
        self._heartbeat: Heartbeat | None = None
        self._waiter: HomeWaiter | None = None  #: of several homes, once it has waited
        self._former: WeakSet[ConsumerSteps] = WeakSet()  #: of homes that are not there any more
        self._lives: dict[str, str] = {}  #: the id that follows in such a home, should it come back
        self._turn = 0
        self._entered = False
        self._closed = False

    def _held_at(self, keys: QueueKeys, identity: str) -> Holding:
        """Return what this holds of one home: nothing yet."""
        node = self._store.node_of(keys.messages)
        if node not in self._connections:
            self._connections[node] = Connections(self._store, self._owner)
        return Holding(self._store, keys, self.lease, identity, self._connections[node])

    @property
    def id(self) -> str:
        """Its id in Redis; a new one after every lost lease."""
        return self._first.id

    async def __aenter__(self) -> Self:
        if self._entered or self._closed:
            raise InvalidSetting("a consumer has one `async with` block: make a new one")
        self._entered = True
        self._heartbeat = Heartbeat(self._store, self._owner, self.lease, self._leases, self._lost)
        self._heartbeat.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._closed:
            return
        self._entered, self._closed = False, True
        leaving = [holding for holding in self._holdings.values() if holding.steps.alive]
        failed = await finish(self._leave())
        if failed and len(failed) == len(leaving):
            raise next(iter(failed.values()))
        for name, failure in failed.items():
            text = "not_unregistered queue=%s error=%s: the monitor returns what it held when the lease ends"
            log.warning(text, name, failure)

    async def _leave(self) -> dict[str, ReliqError]:
        """Leave every home, and let the lease end; return the errors of homes."""
        failed: dict[str, ReliqError] = {}
        away = AwayNodes(self._store.node_of)
        try:
            for name, holding in self._holdings.items():
                try:
                    await holding.leave(away)
                except ReliqError as one:
                    failed[name] = one
                    away.note(holding.keys, one)
        finally:  # also when the event loop ends meanwhile
            if self._heartbeat is not None and not self._first.steps.is_parents:
                await self._heartbeat.stop()
        return failed

    async def claim(self, limit: int = 1, wait: Duration = 0) -> list[Message]:
        """Return up to `limit` messages; none if nothing came within `wait` seconds. Raises InvalidSetting once closed.

        With partitions: one that fails stops no other; raises its error only if all of them fail.
        """
        if self._closed:
            raise InvalidSetting("this consumer has ended with its `async with` block: make a new one")
        if not self._entered:
            advise(
                f"a consumer of {self._homes.queue!r} claims outside of its context: its lease is not renewed, "
                f"so other consumers get its messages after {self.lease:g} s; write async with queue.consumer() as "
                "consumer"
            )
        whole(limit, "limit", 1, values.MAX_BATCH)
        until = time.monotonic() + (waits := seconds(wait, "wait"))
        patient_until = max(until, time.monotonic() + self._store.timeout)
        in_vain = 0
        while True:
            try:
                if self._layout is not self._homes.layout or not self._homes.fresh:
                    await self._follow()
                if len(self._holdings) == 1:
                    return await self._claim_alone(limit, until)
                messages = await self._claim(limit, all_homes=waits < _WAIT)  # news may be on its way
            except (RedisUnavailable, OutcomeUnknown) as error:  # of all homes
                if len(self._holdings) == 1 or isinstance(error, RedisUnsuitable) or time.monotonic() > patient_until:
                    raise
                await self._store.run(one(Sleep(_WAIT)))
                continue
            left = until - time.monotonic()
            if messages or left <= _ENOUGH:
                return messages
            in_vain = in_vain + 1 if await self._wait(left, in_vain) else 0

    async def _follow(self) -> None:
        """Hold messages of the homes that are new, and leave those that are not there any more."""
        every = await self._store.run(self._homes.known())
        self._layout = self._homes.layout
        for keys in every:
            if keys.queue not in self._holdings:
                identity = self._lives.get(keys.queue, self._owner)
                self._holdings[keys.queue] = self._held_at(keys, identity)
        for name in self._holdings.keys() - {keys.queue for keys in every}:
            if not self._holdings[name].steps.held:
                holding = self._holdings.pop(name)
                self._former.add(holding.steps)
                with suppress(ReliqError):  # its lease is not renewed any more
                    await holding.leave()
                self._lives[name] = next_life(holding.id)

    async def _claim_alone(self, limit: int, until: float) -> list[Message]:
        """Claim from the only home, for which no other has to wait."""
        messages = await self._first.claim(limit)
        while not messages and (left := until - time.monotonic()) > _ENOUGH:
            timeout = min(left, values.BLOCK, self.lease / values.HEARTBEATS_PER_LEASE)
            messages = await self._first.claim(limit, timeout)
        return messages

    async def _claim(self, limit: int, all_homes: bool) -> list[Message]:
        """Claim from those homes that have messages, another one first each time; raises if all fail.

        They are looked at if those that are known to have some gave less than `limit`: all of them, or only those that
        may have messages by what the server has told.
        """
        self._turn += 1
        every = [holding.keys for holding in self._holdings.values()]
        failing, ready = self._homes.failing, self._homes.ready_counts
        look = HomeLook(every if all_homes else to_look_at(every, failing, self._known_empty), failing, ready)
        messages: list[Message] = []
        try:
            look.recall(self._turn, self._owes)
            await self._claim_from(look, limit, messages)
            if len(messages) < limit:
                await self._store.run(look.look(self._turn, self._owes, self._store.node_of))
                await self._claim_from(look, limit, messages)
        except BaseException:
            await self._take_back(messages)
            raise
        if not messages:
            look.end()
        return messages

    async def _claim_from(self, look: HomeLook, limit: int, messages: list[Message]) -> None:
        """Claim from homes, until there are `limit` messages."""
        for keys in look.keys:
            if len(messages) < limit:
                with look.trying(keys):
                    some = await self._holdings[keys.queue].claim(limit - len(messages), 0, PATIENCE)
                    messages += some
                    look.got(keys, some)

    def _owes(self, name: str) -> bool:
        return self._holdings[name].owes

    def _known_empty(self, keys: QueueKeys) -> bool:
        steps = self._holdings[keys.queue].steps
        return self._waiter is not None and steps.awaits and self._waiter.known_empty(steps.awaited)

    async def _wait(self, left: float, in_vain: int) -> bool:
        """Wait a while until one of the homes may have messages; return whether the server has told so.

        `in_vain`: how often in a row it had, and none was left.
        """
        if self._waiter is None and self._entered:
            self._waiter = HomeWaiter(self._store)
        homes = [holding for name, holding in self._holdings.items() if name not in self._homes.failing]
        keys = [holding.steps.awaited for holding in homes if holding.steps.awaits]
        if self._waiter is None or not keys:
            await self._store.run(one(Sleep(min(left, _WAIT))))
            return False
        most = values.BLOCK if len(keys) == len(self._holdings) else _WAIT
        return await self._waiter.wait(keys, min(left, most), _WAIT, in_vain)

    async def _take_back(self, messages: Sequence[Message]) -> None:
        """Give back claimed messages that the caller does not receive."""
        for holding in self._holdings.values():
            if some := [message for message in messages if holding.holds(message)]:
                await holding.give_back(some)

    async def ack(self, *messages: Message) -> None:
        """Remove handled messages. Raises LeaseLost if the monitor has returned one of them to the queue."""
        await self._settle(messages)

    async def retry(self, message: Message, delay: Duration = 0, error: str = "retried by its consumer") -> None:
        """Retry messages after `delay`; this counts as a failure."""
        failure, later = failure_now(self._holder(message).id, "Retry", error), seconds(delay, "delay")
        await self._settle((message,), lambda one: retried(one, failure, later))

    async def dead(self, message: Message, reason: str) -> None:
        """Make messages dead letters, with reason `rejected` and this text as the last error."""
        failure = failure_now(self._holder(message).id, "Dead", str(reason))
        await self._settle((message,), lambda one: buried(one, failure, "rejected"))

    async def release(self, *messages: Message, delay: Duration = 0) -> None:
        """Hand messages back unstarted: they are claimed next, or after `delay`, and are not charged."""
        later = seconds(delay, "delay")
        await self._settle(messages, lambda one: released(one, later))

    async def heartbeat(self) -> bool:
        """Renew the lease now; False when it is lost. The context does this by itself."""
        alive, failure = False, None
        for holding in self._holdings.values():
            try:
                alive = await holding.heartbeat() or alive
            except ReliqError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return alive

    def _leases(self) -> list[Lease]:
        return [lease for holding in list(self._holdings.values()) for lease in holding.leases()]

    def _lost(self, lease: Lease) -> None:
        holding = self._holdings.get(lease.keys.queue)
        if holding is not None and holding.id == lease.consumer:
            holding.steps.lose()

    def _holder(self, message: Message) -> Holding:
        """Return what holds the message; of a message that is not held here any one, to refuse it."""
        return next((holding for holding in self._holdings.values() if holding.holds(message)), self._first)

    def _is_settled(self, message: Message) -> bool:
        """Whether its home is not there any more: that held no message then."""
        return isinstance(message, Message) and message.holder in self._former

    async def _settle(self, messages: Sequence[Message], move: Callable[[Message], Move] | None = None) -> None:
        """Settle the messages of each home; raises the first error in the end."""
        if self._former:
            messages = [message for message in messages if not self._is_settled(message)]
        if len(self._holdings) == 1:
            await self._first.settle(messages, move)
            return
        failure: ReliqError | None = None
        for holding, some in grouped((self._holder(message), message) for message in messages).items():
            try:
                await holding.settle(some, move)
            except ReliqError as error:
                failure = failure or error
        if failure is not None:
            raise failure
