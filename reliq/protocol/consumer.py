"""The steps of one consumer, of a worker, over HTTP or by hand: claim, settle, and read back after a lost reply."""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from reliq import forks, ops
from reliq.contract import values
from reliq.errors import InvalidSetting, OutcomeUnknown, QueueFull
from reliq.model.element import BLANK
from reliq.model.keys import QueueKeys, is_connected, next_life, unconnected
from reliq.model.message import Message
from reliq.model.worker import Doing, encoded
from reliq.ops import Move, Op, Settled, Steps
from reliq.ops.schema import Counter
from reliq.protocol.arrivals import Arrivals
from reliq.protocol.claimant import AT_ONCE, Claimant, settlements
from reliq.protocol.held_messages import State, UnderWay
from reliq.protocol.holder import HeldSteps
from reliq.protocol.lease import Trust
from reliq.protocol.outcomes import released
from reliq.protocol.oversized import takeable
from reliq.runtime.moment import Moment
from reliq.runtime.process import this_process

_FULL_LOOK = 0.05  #: seconds between two looks whether held messages are settled
_PAUSE_LOOK = 0.2  #: seconds between two looks at a paused queue
_PASSING_OVER = 1.0  #: seconds in which a claim looks for a message behind expired ones


class ConsumerSteps(HeldSteps):
    """The steps of one consumer. Its callers run them one at a time."""

    def __init__(
        self, keys: QueueKeys, owner: str, lease: float, *, may_age: bool = False, keeps_marks: bool = False,
        doing: Doing | None = None, title: str = "", most_bytes: int | None = None,
    ) -> None:  # fmt: skip
        """`may_age`: as in Trust. `keeps_marks`: it says which redelivered message it tries. `doing`: a worker's at its
        start. `title`: what it is called instead of its process. `most_bytes`: with so many held, it claims no more.
        """
        super().__init__(keys, Claimant(keys, owner, lease))
        self._mark = forks.mark()
        self.lease = lease
        self.trust = Trust(lease, may_age)
        self.title = title
        self._doing = doing
        self._keeps_marks = keeps_marks
        self._held.most_bytes = most_bytes
        self.arrivals = Arrivals(keys, self, self._held, self.limits)
        self._state = State.NEW
        self._gone = False  #: the lease is lost: an answer that is still under way brings what others have by now
        self._paused = False  #: what the latest claim said
        self._announced = False  #: its queue is in the set of all queues
        self._named = True  #: its connections carry its name; else only the lease tells that it lives
        self._under_way = UnderWay(self._doubt)  #: calls that may move messages
        self._verified_at = 0.0  #: by time.monotonic(): when the processing list was last compared with `held`
        self.came_at = time.monotonic()  #: when a claim last brought something, or this consumer was told of something
        self._looked_at = 0.0  #: by time.monotonic(): when it last claimed

    @property
    def is_parents(self) -> bool:
        """Whether this is a forked child, and the consumer that of the process that forked it."""
        return self._mark != forks.mark()

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

    def _register(self) -> Op[int]:
        return self.claimant.register(
            marks=self._keeps_marks, about=encoded(this_process(self.title), self.lease, self._doing)
        )

    def _doubt(self) -> None:
        if self._state is State.REGISTERED:
            self._state = State.UNCERTAIN

    def _renewing_now(self) -> Moment | None:
        """Decide whether the next call renews the lease; return its moment if it does."""
        self.claimant.renews = self.trust.is_to_be_renewed()
        return Moment.now() if self.claimant.renews else None

    def claim(self, limit: int) -> Steps[list[Message]]:
        """Claim up to `limit` messages without waiting; oldest first.

        Those that have expired are passed over, for a second at most.
        """
        until = time.monotonic() + min(_PASSING_OVER, self.lease / values.HEARTBEATS_PER_LEASE)
        while True:
            came_at = self.came_at
            _, messages = yield from self.settle((), (), limit)
            if messages or self.came_at == came_at or time.monotonic() > until:
                return messages

    def settle(
        self, acks: Sequence[bytes], moves: Sequence[Move] = (), limit: int = 0, also: Sequence[ops.Op[Any]] = ()
    ) -> Steps[tuple[str, list[Message]]]:
        """Settle, and claim up to `limit` next messages in the same step.

        `also`: other ops for the same round trip. Answers the codes (`Settled`, one a message, acks first) and the
        messages claimed. After an error nothing is forgotten: the same call may be repeated, and messages that had been
        taken come with the next claim.
        """
        self._check_process()
        if limit:
            yield from self._be_ready()
            if self.arrivals.messages:
                self.arrivals.pass_over([*acks, *(move.element for move in moves)])
        limit_now = 0 if self.arrivals.messages or self.limits.resting else limit
        codes = ""
        if acks or moves or also:
            codes = yield from self._settle(acks, (yield from takeable(moves)), limit_now, also)
        elif limit_now and (room := self._held.room()):
            yield from self._claim(limit_now, room)
        else:
            return "", self.arrivals.hand_out() if limit else []
        yield from self.arrivals.complete(self.consumer, self._settle_moves)
        return codes, self.arrivals.hand_out() if limit else []

    def _claim(self, limit: int, room: int) -> Steps[None]:
        """Claim messages, within the limits of the queue if it has some."""
        with self._under_way:
            renewed_at = self._renewing_now()
            answer = yield from self.claimant.claim(self.limits, limit, room)
            self._note(answer, renewed_at, claimed=True)

    def _settle(
        self, acks: Sequence[bytes], moves: Sequence[Move], limit: int, also: Sequence[ops.Op[Any]]
    ) -> Steps[str]:
        """Settle and claim with one call, or with several if the messages are many or the queue has limits."""
        codes, total = "", len(acks) + len(moves)
        *earlier, (acks, moves) = settlements(acks, moves, self._held.row_of)
        for early_acks, early_moves in earlier:
            codes += yield from self._settle_some(early_acks, early_moves, 0, ())
            if not self.alive:
                return codes + Settled.LOST * (total - len(codes))
        return codes + (yield from self._settle_some(acks, moves, limit, also))

    def _settle_some(
        self, acks: Sequence[bytes], moves: Sequence[Move], limit: int, also: Sequence[ops.Op[Any]]
    ) -> Steps[str]:
        """Settle and claim: with the call that settles, and with a second one what that could not bring."""
        at_once = ops.CLAIMS_NEXT if limit and self.limits.apply else min(limit, AT_ONCE)
        with self._under_way:
            answer, renewed_at = yield from self._call_settle(acks, moves, at_once, also)
            codes = self.note_answer(acks, moves, answer.codes)
            self._note(answer, renewed_at, claimed=at_once > 0)
        yield from self.after_settling(acks, moves, codes)
        left = self.limits.left_to_claim(limit, at_once, answer)
        if left and (room := self._held.room()):
            yield from self._claim(left, room)
        return codes

    def _call_settle(
        self, acks: Sequence[bytes], moves: Sequence[Move], limit: int, also: Sequence[ops.Op[Any]]
    ) -> Steps[tuple[ops.Claimed, Moment | None]]:
        """Settle the first acks as a row, else each by its place; return also the moment if that renewed the lease."""
        row = self._held.row_of(acks) if self._state is State.REGISTERED else 0
        renewed_at = self._renewing_now()
        self._held.leaving += row
        try:
            answer, *_ = yield [self.settle_op(acks, moves, limit, row), *also]
            if answer.status == "elsewhere":
                renewed_at = self._renewing_now()
                answer = yield self.settle_op(acks, moves, limit)
        except OutcomeUnknown:
            self.note_unanswered(acks, moves)
            raise
        finally:
            self._held.leaving -= row
        return answer, renewed_at

    def has_buried(self, element: bytes) -> bool:
        """Whether a message that a claim has brought does not run: it had expired, or is not there any more."""
        return element not in self.held and not self._under_way.calls

    @property
    def rests(self) -> bool:
        """Whether there is nothing to do until the key `awaited` exists."""
        return self._state is State.REGISTERED and self.awaits

    @property
    def idle(self) -> bool:
        """Whether a claim would bring nothing now: the queue was empty for a while, and BLMOVE tells of a message.

        In a cycle claims also begin the round that a slow visit holds.
        """
        if self.limits.apply or not self.rests or self.to_be_verified or self.arrivals.cyclic:
            return self.limits.idle
        now = time.monotonic()
        look = values.SLOW_LOOK if self.trust.may_age else self.lease / values.HEARTBEATS_PER_LEASE  # this renews it
        return now - self.came_at > values.EMPTY_FOR and now - self._looked_at < look

    @property
    def awaits(self) -> bool:
        """Whether a claim brings nothing until the key `awaited` exists, if it brought nothing now."""
        return not (self._paused or self._gone or self.arrivals.messages or self.limits.resting or self.limits.looks)

    def wait(self, limit: int, timeout: float) -> Steps[list[Message]]:
        """Wait at most `timeout` seconds for a message, then take up to `limit` in the same round trip."""
        self._check_process()
        if self._paused:  # BLMOVE ignores the pause
            yield ops.Sleep(min(timeout, _PAUSE_LOOK))
        if self._paused or self.arrivals.messages or self.to_be_verified or not self.alive:
            messages = yield from self.claim(limit)
            if messages or self._paused or not self.alive:
                return messages
        if not (room := self._held.room()):
            yield ops.Sleep(min(timeout, _FULL_LOOK))
            return []
        if self.limits.apply:
            with contextlib.suppress(QueueFull):  # a full Redis refuses to wait, but not the claim
                if not (yield from self.limits.pause(self.consumer, timeout)):
                    return []
            return (yield from self.claim(limit))
        renewed_at = self._renewing_now()
        more = self.claimant.claim_op(min(limit, AT_ONCE) - 1, room, held=len(self.held))
        block = ops.block(self.keys, self.consumer, timeout)
        try:
            with self._under_way:
                if self.idle:
                    if (moved := (yield block)) is None:
                        return []
                    answer = yield more
                else:
                    moved, answer = yield [block, more]
                self._note(answer, renewed_at, claimed=True, moved=moved)
        except QueueFull:  # a full Redis refuses BLMOVE but not the claim after it: read back what that moved
            yield ops.Sleep(min(timeout, 0.1))
            return (yield from self.claim(limit))
        yield from self.arrivals.complete(self.consumer, self._settle_moves)
        if self._paused or self.limits.note_plain(answer):
            yield from self._give_back_arrived()
        if moved == BLANK and not self.arrivals.messages:  # more may follow, and BLMOVE passes over one at a time
            return (yield from self.claim(limit))
        return self.arrivals.hand_out()

    def recall(self) -> Steps[list[Message]]:
        """Return what calls without an answer have taken; claim no more."""
        if self.alive:
            yield from self._be_ready()
        return self.arrivals.hand_out()

    def leave(self) -> Steps[None]:
        """Give back the held messages, without charging a delivery, and unregister the consumer.

        Work on them may have begun: they keep what they have taken of the rates.
        """
        if not self.alive:
            return
        forgotten = False
        while self.alive and not forgotten:
            if self._state is State.UNCERTAIN:
                yield from self._read_back()
            yield from self.arrivals.bury(self._settle_moves)
            yield from self.settle((), [released(one, started=True) for one in reversed([*self.held.values()])])
            forgotten = yield self.claimant.forget()
            if not forgotten:
                self._doubt()  # its list is not empty: a call with a lost reply has filled it
        self._state = State.NEW

    def lose(self) -> None:
        """Note that the heartbeat found no lease: the held messages belong to others now. Thread-safe."""
        self._gone = True
        for message in list(self.held.values()):
            message.lost = True

    def end_lost_life(self) -> None:
        """End this life if its lease was lost; not while an answer is under way, which ends it."""
        if self._gone and not self._under_way.calls:
            self.end_life()

    def end_life(self) -> None:
        """End this life after a lost lease: the monitor has taken everything back. The next life has a new name."""
        self.limits.probe = None  # first: it is not among the held ones from now on
        for message in list(self.held.values()):
            message.lost = True
        self._held.clear()
        self.lives.clear()
        self.arrivals.clear()
        self.claimant.id = next_life(self.consumer)
        self._state = State.ENDED
        self._paused = self._gone = False

    def ensure_registered(self) -> Steps[None]:
        """Register the consumer unless it is registered: it becomes known to monitors and holds a lease."""
        if self.alive:
            return
        sent_at = Moment.now()
        announced, _ = yield [ops.announce(self.keys.queue), self._register()]
        self._announced = announced is not None
        if not self._named and is_connected(self.consumer):
            forget_former = self.claimant.forget()
            self.claimant.id = unconnected(self.consumer)
            yield [self._register(), forget_former]
        before, self._state = self._state, State.REGISTERED
        self._verified_at = time.monotonic()
        self.trust.renewed(sent_at)
        if before is State.ENDED:
            with contextlib.suppress(QueueFull, OutcomeUnknown):  # a full Redis counts nothing; its consumers drain it
                yield ops.count(self.keys, Counter.LEASE_LOST, once=True)

    def _check_process(self) -> None:
        """Refuse to work in a forked child: it would share the processing list with its parent."""
        if self.is_parents:
            raise InvalidSetting(
                f"this consumer of {self.keys.logical!r} belongs to the process that forked this one: "
                "make a new one here"
            )

    def _be_ready(self) -> Steps[None]:
        """Make sure that the consumer is registered and that `held` matches the processing list."""
        yield from self.ensure_registered()
        if self.to_be_verified and not self._under_way.calls:
            yield from self._verify()
            yield from self.ensure_registered()
        yield from self.arrivals.read(self.consumer)
        if self._paused:
            yield from self._give_back_arrived()
        yield from self.arrivals.drop_removed(self._settle_moves)

    def _give_back_arrived(self) -> Steps[None]:
        """Give back the message that a BLMOVE took from a queue that is paused or has limits."""
        arrived = self.arrivals.messages
        if arrived:
            yield from self.settle((), [released(message, started=True) for message in arrived])  # BLMOVE took no token
            arrived.clear()

    def _verify(self) -> Steps[None]:
        """Check, once per lease or when uncertain, whether the processing list holds more than `held`."""
        if self._state is State.REGISTERED:
            missing = [] if self._announced else [ops.announce(self.keys.queue)]
            length, *announced = yield [ops.held_count(self.keys, self.consumer), *missing]
            self._announced, self._verified_at = announced != [None], time.monotonic()
            if length <= len(self.held) + len(self.arrivals.dying):
                return
        yield from self._read_back()

    def _read_back(self) -> Steps[None]:
        """Adopt the messages in the processing list that `held` lacks: moved by a call with a lost reply, or back
        there because Redis lost its latest writes.
        """
        settled = self._settled_elsewhere = set()
        try:
            sent_at = Moment.now()
            alive, elements, now, *prober = yield [
                ops.heartbeat(self.keys, self.consumer, self.lease),
                ops.read_back(self.keys, self.consumer),
                ops.server_time(),
                *([ops.prober(self.keys)] if self.limits.reports else []),
            ]
            self._state, self._verified_at = State.REGISTERED, time.monotonic()
            if not alive or self._gone:
                self.end_life()
                return
            self.trust.renewed(sent_at)
            dying = {move.element for move in self.arrivals.dying}
            # In this order: a watchdog that settles a message meanwhile adds it to `settled` before it leaves `held`.
            unknown = [one for one in reversed(elements) if not (one in self.held or one in settled or one in dying)]
            if unknown and prober == [self.consumer.encode()]:
                self.limits.probe = unknown[-1]  # an open breaker gives out nothing else
            self.arrivals.sort(unknown, now, doubtful=True)
        finally:
            self._settled_elsewhere = None
        yield from self.arrivals.bury(self._settle_moves)

    def _note(
        self, answer: ops.Claimed, renewed_at: Moment | None, *, claimed: bool, moved: bytes | None = None
    ) -> None:
        """Note the answer of a call; `moved`: the element from the BLMOVE before it."""
        if answer.status == "lost" or self._gone:
            self.end_life()
            return
        if renewed_at is not None:
            self.trust.renewed(renewed_at)
        if claimed:
            self._paused = answer.status == "paused"
            self._looked_at = time.monotonic()
            if moved is not None or answer.elements:
                self.came_at = self._looked_at
        if moved is not None:
            if moved != BLANK:
                self._held.uncounted.add(moved)
            self.arrivals.sort([moved], answer.now)
        self.arrivals.sort(answer.elements, answer.now)
