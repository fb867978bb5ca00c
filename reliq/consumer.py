"""What one consumer holds of one queue: claim, settle, and the read-back after an answer that never came.

`Holdings` is the protocol, shared by the worker, the HTTP leases and the consumers below; `Consumer` is its face for
code that wants to claim and settle by hand.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from reliq import ops, settings
from reliq.errors import InvalidSetting, LeaseLost, OutcomeUnknown, QueueFull, ReliqError
from reliq.heartbeat import Heartbeat, Lease
from reliq.keys import QueueKeys, connection_name, new_owner, next_life
from reliq.message import Failure, Message, Undecodable, cut, wrapped
from reliq.ops import Move, Steps
from reliq.settings import Duration, seconds, whole
from reliq.store import Store

_PAUSE_LOOK = 0.2  #: seconds after which a paused queue is looked at again


class Holdings:
    """The steps of one consumer. Its callers run them one at a time."""

    def __init__(self, keys: QueueKeys, owner: str, lease: float) -> None:
        self.keys = keys
        self.lease = lease
        self.consumer = owner
        self.held: dict[bytes, Message] = {}  #: by element, as the processing list has them
        self.buried: list[Move] = []  #: put into the dead letters on claiming, because expired or undecodable
        self.clock_offset = 0.0  #: seconds the Redis server's clock is ahead of time.monotonic()
        self._arrived: list[Message] = []  #: taken, and not handed to the caller yet
        self._dying: list[Move] = []  #: taken, and not put into the dead letters yet
        self.cyclic = False  #: members of a cycle have arrived in this queue
        self._members = False  #: some have just arrived: are they still in it?
        self._gone = False  #: the lease is lost: an answer that is still under way brings what others have by now
        self._afresh = False  #: the life before this one ended with a lost lease
        self._registered = False
        self._paused = False  #: what the latest claim said
        self._uncertain = False  #: an answer was lost: the list may hold what we do not know of
        self._uncounted = 0  #: moved by BLMOVE, which moves no counter

    @property
    def alive(self) -> bool:
        """Whether there is a lease to renew."""
        return self._registered

    def claim(self, limit: int) -> Steps[list[Message]]:
        """Up to `limit` messages, without waiting; oldest first."""
        _, messages = yield from self.settle((), (), limit)
        return messages

    def settle(
        self, acks: Sequence[bytes], moves: Sequence[Move] = (), limit: int = 0
    ) -> Steps[tuple[str, list[Message]]]:
        """Settle, and claim up to `limit` next messages in the same step.

        Answers the codes (d, a or l a message, acks first) and the messages claimed. After an error nothing is
        forgotten: the same call may be repeated, and messages that had been taken come with the next claim.
        """
        if limit:
            yield from self._be_ready()
        limit_now = 0 if self._arrived else limit
        if acks or moves or self._uncounted:
            request = ops.settle(self.keys, self.consumer, self.lease, acks, moves, limit_now, self._uncounted)
        elif limit_now:
            request = ops.claim(self.keys, self.consumer, self.lease, limit_now)
        else:
            return "", self._hand_out() if limit else []
        answer: ops.Claimed = yield from self._ask(request)
        self._uncounted = 0
        for element in acks:
            self.held.pop(element, None)
        for move in moves:
            self.held.pop(move.element, None)
        yield from self._take(answer)
        return answer.codes, self._hand_out() if limit else []

    def wait(self, limit: int, timeout: float) -> Steps[list[Message]]:
        """Wait for a message, at most `timeout` seconds; then take up to `limit` in the same round trip."""
        if self._paused:  # BLMOVE knows no pause
            yield ops.Sleep(min(timeout, _PAUSE_LOOK))
        if self._paused or self._arrived or self._uncertain or not self._registered:
            messages = yield from self.claim(limit)
            if messages or self._paused or not self._registered:
                return messages
        more = ops.claim(self.keys, self.consumer, self.lease, limit - 1)
        try:
            moved, answer = yield from self._ask([ops.block(self.keys, self.consumer, timeout), more])
        except QueueFull:  # a full Redis refuses BLMOVE, but not the claim behind it: read back what that has moved
            yield ops.Sleep(min(timeout, 0.1))
            return (yield from self.claim(limit))
        yield from self._take(answer, moved)
        if self._paused:
            yield from self._respect_pause()
        return self._hand_out()

    def leave(self) -> Steps[None]:
        """Give back what is held, uncharged, and end the consumer's life."""
        if not self._registered:
            return
        if self._uncertain:
            yield from self._read_back()
        yield from self._bury()
        yield from self.settle((), [released(message) for message in list(self.held.values())])
        yield ops.forget(self.keys, self.consumer, leaving=True)
        self._registered = False

    def lose(self) -> None:
        """The heartbeat has found no lease: what is held belongs to others. From any thread."""
        self._gone = True
        for message in list(self.held.values()):
            message.lost = True

    def end_life(self) -> None:
        """The lease is lost: the monitor has taken everything back. Start afresh, under a new name."""
        for message in self.held.values():
            message.lost = True
        self.held.clear()
        self._arrived.clear()
        self._dying.clear()
        self.consumer = next_life(self.consumer)
        self._registered = self._uncertain = self._paused = self._members = self._gone = False
        self._afresh = True
        self._uncounted = 0

    def _be_ready(self) -> Steps[None]:
        """Registered, and certain of what is held."""
        if not self._registered:
            yield [ops.announce(self.keys.queue), ops.register(self.keys, self.consumer, self.lease)]
            self._registered = True
            if self._afresh:
                yield from self._count_lost_lease()
        elif self._uncertain:
            yield from self._read_back()
            if not self._registered:
                yield from self._be_ready()
        if self._paused:
            yield from self._respect_pause()
        if self._members:
            yield from self._drop_removed()

    def _respect_pause(self) -> Steps[None]:
        """Give back what a BLMOVE took from a paused queue."""
        if self._arrived:
            yield from self.settle((), [released(message) for message in self._arrived])
            self._arrived.clear()

    def _drop_removed(self) -> Steps[None]:
        """What was removed from its cycle while it was ready leaves the queue now."""
        members = [message for message in self._arrived if message.in_cycle]
        still = yield ops.command("HMGET", self.keys.cycle, *(message.group for message in members))
        self._members = False
        for message, member in zip(members, still, strict=True):
            if member is None or not member.startswith(message.id.encode() + b" "):
                self._arrived.remove(message)
                del self.held[message.element]
                self._dying.append(Move(message.element, "gone", "cancelled", message.id))
        yield from self._bury()

    def _count_lost_lease(self) -> Steps[None]:
        self._afresh = False
        try:
            yield ops.command("HINCRBY", self.keys.counters, "lease_lost", 1)
        except QueueFull:  # a full Redis counts nothing; its consumers must go on, to drain it
            return

    def _ask(self, request: ops.Request) -> Steps[Any]:
        try:
            return (yield request)
        except ReliqError:
            self._uncertain = True
            raise

    def _read_back(self) -> Steps[None]:
        """Adopt what the processing list holds and we do not know of: an answer was lost on its way."""
        alive, elements, now = yield [
            ops.heartbeat(self.keys, self.consumer, self.lease),
            ops.read_back(self.keys, self.consumer),
            ops.server_time(),
        ]
        self._uncertain = False
        if not alive:
            self.end_life()
            return
        dying = {move.element for move in self._dying}
        self._sort([one for one in reversed(elements) if one not in self.held and one not in dying], now)
        yield from self._bury()

    def _take(self, answer: ops.Claimed, moved: bytes | None = None) -> Steps[None]:
        """Note what a claim has brought; `moved` by the BLMOVE in front of it."""
        if answer.status == "lost" or self._gone:
            self.end_life()
            return
        self._paused = answer.status == "paused"
        if moved is not None:
            self._uncounted += 1
            self._sort([moved], answer.now)
        self._sort(answer.elements, answer.now)
        if self._dying:
            yield from self._bury()
        if self._members:
            yield from self._drop_removed()

    def _sort(self, elements: Iterable[bytes], now: int) -> None:
        """The messages to be handled, and those that are to die: what does not decode, and what has expired."""
        queue = self.keys.queue
        self.clock_offset = now / 1000 - time.monotonic()
        for element in elements:
            try:
                message = Message.decode(queue, element)
            except Undecodable:
                self._dying.append(undecodable(element))
                continue
            if message.extra is not None:
                if 0 < message.expires_at <= now:
                    self._dying.append(Move(element, "dead", "dead:expired", message.id, message.buried("expired")))
                    continue
                if message.in_cycle:
                    self.cyclic = self._members = True
            message.holder = self
            self.held[element] = message
            self._arrived.append(message)

    def _bury(self) -> Steps[None]:
        if self._dying:
            yield ops.settle(self.keys, self.consumer, self.lease, (), self._dying)
            self.buried += [move for move in self._dying if move.destination == "dead"]
            self._dying.clear()

    def _hand_out(self) -> list[Message]:
        messages, self._arrived = self._arrived, []
        return messages


def undecodable(element: bytes) -> Move:
    """To the dead letters, raw."""
    identity, again = wrapped(element)
    return Move(element, "dead", "dead:decode", identity, again)


def released(message: Message, delay: float = 0.0) -> Move:
    """Back to the tail of the queue, to be taken next; uncharged. With a delay: out of the way for a while."""
    return Move(message.element, "delayed" if delay else "tail", "released", message.id, message.again(), delay)


def retried(message: Message, failure: Failure, delay: float) -> Move:
    """Failed once more: back into the queue after `delay` seconds."""
    again = message.failed(failure)
    return Move(message.element, "delayed" if delay else "head", "retried", message.id, again, delay)


def buried(message: Message, failure: Failure, reason: str) -> Move:
    """To the dead letters, because a handler failed on it or refused it."""
    return Move(message.element, "dead", f"dead:{reason}", message.id, message.failed(failure, reason))


def failure_now(worker: str, error_class: str, text: str) -> Failure:
    return Failure(time.time_ns() // 1_000_000, worker, cut(error_class, 200), cut(text))


def checked_lease(lease: Duration) -> float:
    return seconds(lease, "lease", settings.LEASE_SHORTEST, settings.LEASE_LONGEST)


def settleable(
    holdings: Holdings, messages: Sequence[Message], move: Callable[[Message], Move] | None
) -> tuple[list[bytes], list[Move]]:
    """The acks, or with `move` the moves, of those messages whose lease was not lost; raises InvalidSetting."""
    for message in messages:
        if not isinstance(message, Message):
            raise InvalidSetting(f"cannot settle {message!r}: give a message that claim() answered")
        if message.holder is not holdings:
            raise InvalidSetting(f"cannot settle {message!r} here: another consumer holds it")
    ours = [message for message in messages if not message.lost]
    return ([message.element for message in ours], []) if move is None else ([], [move(message) for message in ours])


def lease_lost(queue: str, lost: int, of: int) -> LeaseLost:
    return LeaseLost(
        f"the lease of this consumer of {queue!r} ran out and the monitor took back what it held: "
        f"{lost} of the {of} messages of this call may be running elsewhere"
    )


class Consumer:
    """Claims and settles by hand. A context: leaving it gives back what was not settled.

        with app.queue("orders").consumer(lease=30) as consumer:
            for message in consumer.claim(limit=10, wait=5):
                consumer.ack(message)

    While the context lasts, a thread renews the lease: however long the work takes, nobody else gets the messages.
    Without the context nobody renews it. A message that was settled before is left as it is: settling again is no
    error. For one thread at a time.
    """

    def __init__(self, store: Store, keys: QueueKeys, lease: Duration = settings.LEASE) -> None:
        self.lease = checked_lease(lease)
        self._store = store
        self._owner = new_owner()
        self._holdings = Holdings(keys, self._owner, self.lease)
        self._link = store.link(connection_name(self._owner))
        self._heartbeat: Heartbeat | None = None
        self._closed = False
        self._lock = threading.RLock()  # the heartbeat may find the lease lost at any moment

    @property
    def id(self) -> str:
        """Its id in Redis; a new one after every lost lease."""
        return self._holdings.consumer

    def __enter__(self) -> Self:
        self._heartbeat = Heartbeat(self._store, self._owner, self.lease, self._leases, self._lost)
        self._heartbeat.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed = True
        try:
            with self._lock:
                self._store.run(self._holdings.leave(), self._link)
        finally:
            if self._heartbeat is not None:
                self._heartbeat.stop()
            self._link.close()

    def claim(self, limit: int = 1, wait: Duration = 0) -> list[Message]:
        """Up to `limit` messages; empty when nothing came within `wait` seconds. Raises InvalidSetting once closed."""
        if self._closed:
            raise InvalidSetting("this consumer has ended with its `with` block: make a new one")
        whole(limit, "limit", 1, settings.BATCH_LARGEST)
        until = time.monotonic() + seconds(wait, "wait")
        with self._lock:
            messages = self._claim(limit)
            while not messages and (left := until - time.monotonic()) > 0.001:
                timeout = min(left, settings.BLOCK, self.lease / settings.HEARTBEATS_PER_LEASE)
                messages = self._store.run(self._holdings.wait(limit, timeout), self._link)
        return messages

    def _claim(self, limit: int) -> list[Message]:
        try:
            return self._store.run(self._holdings.claim(limit), self._link)
        except OutcomeUnknown:  # the answer was lost: the second try reads back what the first one moved
            return self._store.run(self._holdings.claim(limit), self._link)

    def ack(self, *messages: Message) -> None:
        """Handled: gone for good. Raises LeaseLost when the monitor had taken one back before."""
        self._settle(messages)

    def retry(self, message: Message, delay: Duration = 0, error: str = "retried by its consumer") -> None:
        """Failed: try again after `delay`. Counts as a failure."""
        failure = failure_now(self.id, "Retry", error)
        self._settle((message,), lambda one: retried(one, failure, seconds(delay, "delay")))

    def dead(self, message: Message, reason: str) -> None:
        """Give up: to the dead letters, with reason `rejected` and this text as its last error."""
        failure = failure_now(self.id, "Dead", str(reason))
        self._settle((message,), lambda one: buried(one, failure, "rejected"))

    def release(self, *messages: Message) -> None:
        """Hand back untouched: to the tail of the queue, taken next, nothing counted."""
        self._settle(messages, released)

    def heartbeat(self) -> bool:
        """Renew the lease now; False when it is lost. The context's thread does it anyway."""
        with self._lock:
            if not self._holdings.alive:
                return False
            beat = ops.heartbeat(self._holdings.keys, self.id, self.lease)
            alive = bool(self._store.call(beat, self._link))
            if not alive:
                self._holdings.end_life()
            return alive

    def _settle(self, messages: Sequence[Message], move: Callable[[Message], Move] | None = None) -> None:
        """Ack the messages, or move them; raises LeaseLost after it has settled those that were still held."""
        acks, moves = settleable(self._holdings, messages, move)
        with self._lock:
            codes, _ = self._store.run(self._holdings.settle(acks, moves), self._link)
        lost = len(messages) - len(codes) + codes.count("l")
        if lost:
            raise lease_lost(self._holdings.keys.queue, lost, len(messages))

    def _leases(self) -> list[Lease]:
        holdings = self._holdings
        return [Lease(holdings.keys, holdings.consumer, self.lease)] if holdings.alive else []

    def _lost(self, lease: Lease) -> None:
        with self._lock:
            if lease.consumer == self._holdings.consumer:
                self._holdings.end_life()
