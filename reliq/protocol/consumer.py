"""The steps of one consumer: claim, settle, and the read-back after a lost reply.

Shared by the worker, the HTTP leases and the consumers that claim by hand.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from reliq import forks, ops
from reliq.errors import InvalidSetting, QueueFull
from reliq.model.element import Undecodable
from reliq.model.keys import QueueKeys, is_connected, next_life, unconnected
from reliq.model.message import Message
from reliq.ops import Destination, Move, Settled, Steps
from reliq.ops.schema import Counter
from reliq.protocol.bodies import read_bodies
from reliq.protocol.held import LARGE, HeldMessages, State
from reliq.protocol.limits import Limits
from reliq.protocol.outcomes import expired, released, undecodable
from reliq.runtime.moment import Moment

_FULL_LOOK = 0.05  #: seconds between two looks whether held messages are settled
_PAUSE_LOOK = 0.2  #: seconds between two looks at a paused queue
_LEASE_TRUSTED = 0.9  #: of a lease: for so long after a renewal its messages are surely this consumer's


class ConsumerSteps:
    """The steps of one consumer. Its callers run them one at a time."""

    def __init__(self, keys: QueueKeys, owner: str, lease: float) -> None:
        self._mark = forks.mark()
        self.keys = keys
        self.lease = lease
        self.consumer = owner
        self.keeps_marks = False  #: it says which redelivered message it tries
        self.reads_bodies = True  #: a claim reads large bodies; else its caller reads them
        self.buried: list[Move] = []  #: made dead letters on claiming, because expired or undecodable
        self.clock_offset = 0.0  #: seconds the Redis server's clock is ahead of time.monotonic()
        self._arrived: list[Message] = []  #: taken, but not yet handed to the caller
        self._unread: list[Message] = []  #: taken, but their bodies, which are apart, not yet read
        self._latest: list[Message] = []  #: taken; newer ones of their dedup keys may wait behind them
        self._dying: list[Move] = []  #: taken, but not yet made dead letters
        self._held = HeldMessages()
        self.limits = Limits(keys)
        self.cyclic = False  #: members of a cycle have arrived in this queue
        self._members = False  #: some have just arrived: are they still in it?
        self._state = State.NEW
        self._gone = False  #: the lease is lost: an answer that is still under way brings what others have by now
        self._paused = False  #: what the latest claim said
        self._named = True  #: its connections carry its name; else only the lease tells that it lives
        self._under_way = 0  #: calls without an answer so far
        self._verified_at = 0.0  #: by time.monotonic(): when the processing list was last compared with `held`
        self._settled_elsewhere: set[bytes] | None = None  #: settled by the watchdog while a read-back is under way
        self._handed: list[Message] = []  #: what the latest claim answered to its caller
        self.trusted_until = Moment.never()  #: until then the lease surely lasts, by both clocks

    @property
    def is_parents(self) -> bool:
        """Whether this is a forked child, and the consumer that of the process that forked it."""
        return self._mark != forks.mark()

    @property
    def held(self) -> Mapping[bytes, Message]:
        """The messages in the processing list by element, oldest first."""
        return self._held.by_element

    def hold_at_most(self, size: int) -> None:
        """Claim no further messages while the held ones have this many bytes."""
        self._held.most_bytes = size

    @property
    def alive(self) -> bool:
        """Whether there is a lease to renew."""
        return self._state in (State.REGISTERED, State.UNCERTAIN)

    @property
    def to_be_verified(self) -> bool:
        """Whether the next claim must read back the processing list; no other call may be under way then."""
        if self._state is State.REGISTERED:
            return time.monotonic() - self._verified_at > self.lease
        return self._state is State.UNCERTAIN

    def connected(self, named: bool) -> None:
        """Note a new connection: Redis may not be in the state in which the former connection left it."""
        self._named = named
        self._doubt()

    def _doubt(self) -> None:
        if self._state is State.REGISTERED:
            self._state = State.UNCERTAIN

    def note_settled(self, elements: Iterable[bytes]) -> None:
        """Note elements that another thread has settled. Thread-safe."""
        elements = list(elements)
        settled = self._settled_elsewhere  # the end of a read-back takes it away at any moment
        if settled is not None:
            settled.update(elements)  # first: a read-back looks into `held` first
        self._held.remove_all(elements)

    def renewed(self, sent_at: Moment) -> None:
        """Note the confirmation of a lease renewal that was sent at `sent_at`. Thread-safe."""
        self.trusted_until = sent_at.after(self.lease * _LEASE_TRUSTED)

    def accepted(self) -> None:
        """Note that the caller has received the messages of the latest claim."""
        self._handed = []

    def interrupted(self) -> None:
        """Note that the caller did not receive the latest claim: its messages come with the next claim."""
        self._arrived = [message for message in self._handed if message.element in self.held] + self._arrived
        self._handed = []

    def claim(self, limit: int) -> Steps[list[Message]]:
        """Claim up to `limit` messages without waiting; oldest first."""
        _, messages = yield from self.settle((), (), limit)
        return messages

    def settle(
        self, acks: Sequence[bytes], moves: Sequence[Move] = (), limit: int = 0, beside: Sequence[ops.Op[Any]] = ()
    ) -> Steps[tuple[str, list[Message]]]:
        """Settle, and claim up to `limit` next messages in the same step.

        `beside`: other ops for the same round trip. Answers the codes (`Settled`, one a
        message, acks first) and the messages claimed. After an error nothing is forgotten: the same call may be
        repeated, and messages that had been taken come with the next claim.
        """
        self._check_process()
        if limit:
            yield from self._be_ready()
        limit_now = 0 if self._arrived or self.limits.resting else limit
        codes = ""
        if acks or moves or beside:
            codes = yield from self._settle(acks, moves, limit_now, beside)
        elif limit_now and (room := self._held.room()):
            yield from self._claim(limit_now, room)
        else:
            return "", self._hand_out() if limit else []
        yield from self._sort_out()
        return codes, self._hand_out() if limit else []

    def _claim(self, limit: int, room: int) -> Steps[None]:
        """Claim messages, within the limits of the queue if it has some."""
        with self._asking():
            sent_at = Moment.now()
            if not self.limits.apply:
                answer = yield ops.claim(self.keys, self.consumer, self.lease, limit, room)
                self.limits.note_plain(answer)
            if self.limits.apply:
                answer = yield from self.limits.claim(self.consumer, self.lease, limit, room)
            self._note(answer, sent_at, claimed=True)

    def _settle(
        self, acks: Sequence[bytes], moves: Sequence[Move], limit: int, beside: Sequence[ops.Op[Any]]
    ) -> Steps[str]:
        """Settle and claim with one call, or with a second one if messages are not where they should be.

        In a queue with limits the claim is an op of its own, in the same round trip.
        """
        row = self._held.row_of(acks) if self._state is State.REGISTERED else 0
        limited, plain = (limit, 0) if self.limits.apply else (0, limit)
        with self._asking():
            sent_at = Moment.now()
            with self._held.leaving(row):
                answers = yield [self.settle_op(acks, moves, plain, row), *beside]
            answer: ops.Claimed = answers[0]
            if answer.status == "elsewhere":
                sent_at = Moment.now()
                answer = yield self.settle_op(acks, moves, plain)
            self._held.remove_all([*acks, *(move.element for move in moves)])
            self._note(answer, sent_at, claimed=plain > 0)
        if plain and self.limits.note_plain(answer):
            limited = plain
        if limited and answer.status != "lost" and (room := self._held.room()):
            yield from self._claim(limited, room)
        return answer.codes

    def settle_op(
        self, acks: Sequence[bytes], moves: Sequence[Move], limit: int = 0, row: int = 0
    ) -> ops.Op[ops.Claimed]:
        """Return the op that settles; another thread may use it to settle, and reports that with `note_settled`."""
        return self._held.settle_op(self.keys, self.consumer, self.lease, acks, moves, limit, row)

    def wait(self, limit: int, timeout: float) -> Steps[list[Message]]:
        """Wait at most `timeout` seconds for a message, then take up to `limit` in the same round trip."""
        self._check_process()
        if self._paused:  # BLMOVE ignores the pause
            yield ops.Sleep(min(timeout, _PAUSE_LOOK))
        if self._paused or self._arrived or self.to_be_verified or not self.alive:
            messages = yield from self.claim(limit)
            if messages or self._paused or not self.alive:
                return messages
        if not (room := self._held.room()):
            yield ops.Sleep(min(timeout, _FULL_LOOK))
            return []
        if self.limits.apply:
            with contextlib.suppress(QueueFull):  # a full Redis refuses to wait, but not the claim
                yield self.limits.pause(timeout)
            return (yield from self.claim(limit))
        more = ops.claim(self.keys, self.consumer, self.lease, limit - 1, room)
        try:
            with self._asking():
                sent_at = Moment.now()
                moved, answer = yield [ops.block(self.keys, self.consumer, timeout), more]
                self._note(answer, sent_at, claimed=True, moved=moved)
        except QueueFull:  # a full Redis refuses BLMOVE but not the claim after it: read back what that moved
            yield ops.Sleep(min(timeout, 0.1))
            return (yield from self.claim(limit))
        yield from self._sort_out()
        if self._paused or self.limits.note_plain(answer):
            yield from self._give_back_arrived()
        return self._hand_out()

    def leave(self) -> Steps[None]:
        """Give back the held messages, without charging a delivery, and unregister the consumer."""
        if not self.alive:
            return
        forgotten = False
        while self.alive and not forgotten:
            if self._state is State.UNCERTAIN:
                yield from self._read_back()
            yield from self._bury()
            yield from self.settle((), [released(message) for message in list(self.held.values())])
            forgotten = yield ops.forget(self.keys, self.consumer, leaving=True)
            if not forgotten:
                self._doubt()  # its list is not empty: a call with a lost reply has filled it
        self._state = State.NEW

    def lose(self) -> None:
        """Note that the heartbeat found no lease: the held messages belong to others now. Thread-safe."""
        self._gone = True
        for message in list(self.held.values()):
            message.lost = True

    def end_life(self) -> None:
        """End this life after a lost lease: the monitor has taken everything back. The next life has a new name."""
        for message in list(self.held.values()):
            message.lost = True
        self._held.clear()
        self._arrived.clear()
        self._unread.clear()
        self._latest.clear()
        self._dying.clear()
        self._handed = []  # the list itself is the caller's
        self.consumer = next_life(self.consumer)
        self._state = State.ENDED
        self._paused = self._members = self._gone = False

    def be_registered(self) -> Steps[None]:
        """Register the consumer unless it is registered: it becomes known to monitors and holds a lease."""
        if self.alive:
            return
        sent_at = Moment.now()
        yield [ops.announce(self.keys.queue), ops.register(self.keys, self.consumer, self.lease, self.keeps_marks)]
        if not self._named and is_connected(self.consumer):
            former, self.consumer = self.consumer, unconnected(self.consumer)
            yield [
                ops.register(self.keys, self.consumer, self.lease, self.keeps_marks),
                ops.forget(self.keys, former, leaving=True),
            ]
        before, self._state = self._state, State.REGISTERED
        self._verified_at = time.monotonic()
        self.renewed(sent_at)
        if before is State.ENDED:
            yield from self._count_lost_lease()

    def _check_process(self) -> None:
        """Refuse to work in a forked child: it would share the processing list with its parent."""
        if self.is_parents:
            raise InvalidSetting(
                f"this consumer of {self.keys.queue!r} belongs to the process that forked this one: make a new one here"
            )

    def _be_ready(self) -> Steps[None]:
        """Make sure that the consumer is registered and that `held` matches the processing list."""
        yield from self.be_registered()
        if self.to_be_verified and not self._under_way:
            yield from self._verify()
            yield from self.be_registered()
        if self._latest:
            yield from self._take_newest()
        if self._unread:
            yield from self._read_bodies()
        if self._paused:
            yield from self._give_back_arrived()
        if self._members:
            yield from self._drop_removed()

    def _give_back_arrived(self) -> Steps[None]:
        """Give back the message that a BLMOVE took from a queue that is paused or has limits."""
        if self._arrived:
            yield from self.settle((), [released(message) for message in self._arrived])
            self._arrived.clear()

    def _drop_removed(self) -> Steps[None]:
        """Remove arrived messages of members that have left the cycle meanwhile."""
        members = [message for message in self._arrived if message.in_cycle]
        still = yield ops.cycle_entries(self.keys, [message.group for message in members])
        self._members = False
        for message, member in zip(members, still, strict=True):
            if member is None or not member.startswith(message.id.encode() + b" "):
                self._arrived.remove(message)
                self._held.remove(message.element)
                self._dying.append(Move(message.element, Destination.GONE, Counter.CANCELLED, message.id))
        yield from self._bury()

    def _count_lost_lease(self) -> Steps[None]:
        with contextlib.suppress(QueueFull):  # a full Redis counts nothing, but its consumers must go on and drain it
            yield ops.count(self.keys, Counter.LEASE_LOST)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Wrap a call that may move messages: if its answer is not noted, the processing list must be read back."""
        self._under_way += 1
        try:
            yield
        except BaseException:
            self._doubt()
            raise
        finally:
            self._under_way -= 1

    def _verify(self) -> Steps[None]:
        """Check, once per lease or when uncertain, whether the processing list holds more than `held`."""
        if self._state is State.REGISTERED:
            length = yield ops.held_count(self.keys, self.consumer)
            self._verified_at = time.monotonic()
            if length <= len(self.held) + len(self._dying):
                return
        yield from self._read_back()

    def _read_back(self) -> Steps[None]:
        """Adopt the messages in the processing list that `held` lacks: moved by a call with a lost reply, or back
        there because Redis lost its latest writes.
        """
        settled = self._settled_elsewhere = set()
        try:
            sent_at = Moment.now()
            alive, elements, now = yield [
                ops.heartbeat(self.keys, self.consumer, self.lease),
                ops.read_back(self.keys, self.consumer),
                ops.server_time(),
            ]
            self._state, self._verified_at = State.REGISTERED, time.monotonic()
            if not alive or self._gone:
                self.end_life()
                return
            self.renewed(sent_at)
            dying = {move.element for move in self._dying}
            # In this order: a watchdog that settles a message meanwhile adds it to `settled` before it leaves `held`.
            unknown = [one for one in reversed(elements) if not (one in self.held or one in settled or one in dying)]
            self._sort(unknown, now)
        finally:
            self._settled_elsewhere = None
        yield from self._bury()

    def _note(self, answer: ops.Claimed, sent_at: Moment, *, claimed: bool, moved: bytes | None = None) -> None:
        """Note the answer of a call; `moved`: the element from the BLMOVE before it."""
        if answer.status == "lost" or self._gone:
            self.end_life()
            return
        self.renewed(sent_at)
        if claimed:
            self._paused = answer.status == "paused"
        if moved is not None:
            self._held.uncounted.add(moved)
            self._sort([moved], answer.now)
        self._sort(answer.elements, answer.now)

    def _sort_out(self) -> Steps[None]:
        """Take newer messages that wait, read bodies that are apart, and bury messages that are not to be handled."""
        if self._latest:
            yield from self._take_newest()
        if self._unread:
            yield from self._read_bodies()
        if self._dying:
            yield from self._bury()
        if self._members:
            yield from self._drop_removed()

    def _sort(self, elements: Iterable[bytes], now: int) -> None:
        """Sort arrived elements into messages to handle and messages to bury: undecodable or expired ones."""
        queue, held = self.keys.queue, self._held.by_element
        self.clock_offset = now / 1000 - time.monotonic()
        for element in elements:
            try:
                message = Message.decode(queue, element)
            except Undecodable:
                self._dying.append(undecodable(element))
                continue
            if (extra := message.extra) is not None:
                if 0 < extra.expires_at <= now:
                    self._dying.append(expired(message))
                    continue
                if extra.group and message.is_latest:
                    self._latest.append(message)
                if extra.cycle:
                    self.cyclic = self._members = True
                if message.reference:
                    if self.reads_bodies:
                        self._unread.append(message)
                    self._held.note_large(message)
            elif len(element) > LARGE:  # from a producer that stores no body apart
                self._held.note_large(message)
            message.holder = self
            held[element] = message
            self._arrived.append(message)

    def _take_newest(self) -> Steps[None]:
        """Take newer messages of their dedup keys in the place of the arrived ones, if such wait behind them."""
        elements = yield ops.newest(self.keys, self.consumer, [message.group for message in self._latest])
        newer = []
        for message, element in zip(self._latest, elements, strict=True):
            if element == message.element or message.element not in self.held:
                continue
            if element and message.element in self._held.uncounted:
                self._held.uncounted.add(element)
            if self.limits.probe == message.element:
                self.limits.probe = element
            self._held.remove(message.element)
            self._arrived.remove(message)
            self._unread = [one for one in self._unread if one is not message]
            if element and element not in self.held:  # else a read-back has adopted it
                newer.append(element)
        self._sort(newer, round((time.monotonic() + self.clock_offset) * 1000))
        self._latest.clear()

    def _read_bodies(self) -> Steps[None]:
        """Read the bodies that are apart from their elements."""
        yield from read_bodies(self.keys, self._unread)
        for message in self._unread:
            # Without a body its lease is lost, or another program has deleted the body.
            if not message.body_is_read and self._held.remove(message.element) is not None:
                self._arrived.remove(message)
                self._dying.append(undecodable(message.element))
        self._unread.clear()

    def _bury(self) -> Steps[None]:
        if self._dying:
            dying = list(self._dying)
            answer = yield self.settle_op((), dying)
            done = [move for move, code in zip(dying, answer.codes, strict=True) if code == Settled.DONE]
            self.buried += [move for move in done if move.destination is Destination.DEAD]
            self._held.uncounted.difference_update(move.element for move in dying)
            self._dying.clear()

    def _hand_out(self) -> list[Message]:
        self._handed, self._arrived = self._arrived, []
        return self._handed
