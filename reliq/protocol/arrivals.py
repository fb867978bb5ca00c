"""Messages that a consumer has taken, until its caller has received them.

They are sorted as they arrive. Then newer ones take the place of some, bodies that are apart are read, and those that
are not to be handled are buried. All of it may be repeated after a lost answer.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.element import BLANK, Undecodable
from reliq.model.keys import QueueKeys
from reliq.model.life import Holder
from reliq.model.message import Message
from reliq.ops import Destination, Move, Settled, Steps
from reliq.ops.schema import Counter
from reliq.protocol.bodies import read_bodies
from reliq.protocol.held_messages import LARGE, HeldMessages
from reliq.protocol.limits import Limits
from reliq.protocol.lives import cancelled_of
from reliq.protocol.outcomes import cancelled, expired, passed_over, undecodable
from reliq.protocol.oversized import takeable

SettleMoves = Callable[[Sequence[Move]], ops.Op[ops.Claimed]]


class Arrivals:
    """What one consumer has taken; `messages` are those to be handed to its caller."""

    def __init__(self, keys: QueueKeys, holder: Holder, held: HeldMessages, limits: Limits) -> None:
        """`holder` becomes the holder of each message; those to be handled are added to `held`."""
        self.messages: list[Message] = []
        self.dying: list[Move] = []  #: taken, but not yet made dead letters
        self.buried: list[Move] = []  #: made dead letters, because expired or undecodable
        self.reads_bodies = True  #: large bodies are read here; else the caller reads them
        self.cyclic = False  #: members of a cycle have arrived in this queue
        self.clock_offset = 0.0  #: seconds the Redis server's clock is ahead of time.monotonic()
        self._keys = keys
        self._holder = holder
        self._held = held
        self._limits = limits
        self._handed: list[Message] = []  #: those that the latest claim answered to the caller
        self._unread: list[Message] = []  #: their bodies, which are apart, are not read yet
        self._latest: list[Message] = []  #: newer ones of their dedup keys may wait behind them
        self._members = False  #: members of a cycle have just arrived: are they still in it?

    def clear(self) -> None:
        """Forget everything: the lease is lost."""
        self.messages.clear()
        self._handed = []  # the list itself is the caller's
        self.dying.clear()
        self._unread.clear()
        self._latest.clear()
        self._members = False

    def pass_over(self, settled: Collection[bytes]) -> None:
        """Forget what is settled now: a read-back has found it, because Redis has lost that it was elsewhere."""
        self.messages = [one for one in self.messages if one.element not in settled]

    def hand_out(self) -> list[Message]:
        """Return the messages for the caller, which tells later whether they were `accepted`."""
        self._handed, self.messages = self.messages, []
        return self._handed

    def accepted(self) -> None:
        """Note that the caller has received the messages of the latest claim."""
        self._handed = []

    def not_received(self, messages: Iterable[Message] | None = None) -> None:
        """Note that the caller did not receive these, or all, of the latest claim: they come with the next one."""
        lost = self._handed if messages is None else messages
        self.messages[:0] = [message for message in lost if message.element in self._held.by_element]
        self._handed = []

    def complete(self, consumer: str, settle: SettleMoves) -> Steps[None]:
        """Do all that is to be done before the messages are handed out. `settle` makes the op that moves messages."""
        yield from self.read(consumer)
        yield from self.bury(settle)
        yield from self.drop_removed(settle)
        yield from self.drop_cancelled(settle)

    def read(self, consumer: str) -> Steps[None]:
        """Take newer messages that wait, and read the bodies that are apart."""
        if self._latest:
            yield from self._take_newest(consumer)
        if self._unread:
            yield from self._read_bodies()

    def sort(self, elements: Iterable[bytes], now: int, *, doubtful: bool = False) -> None:
        """Sort arrived elements into messages to handle and messages to bury: undecodable or expired ones.

        `doubtful`: they were found in the processing list, and have perhaps been run before.
        """
        queue, held = self._keys.logical, self._held.by_element
        self.clock_offset = now / 1000 - time.monotonic()
        for element in elements:
            try:
                message = Message.decode(queue, element)
            except Undecodable:
                self.dying.append(passed_over(element) if element == BLANK else undecodable(element))
                continue
            message.doubtful = doubtful
            if (extra := message.extra) is not None:
                if 0 < extra.expires_at <= now:
                    self.dying.append(expired(message))
                    continue
                if extra.group and message.is_latest:
                    self._latest.append(message)
                if extra.batch:
                    self._held.batches[element] = extra.batch
                if extra.cycle:
                    self.cyclic = self._members = True
                if message.reference:
                    if self.reads_bodies:
                        self._unread.append(message)
                    self._held.note_large(message)
            elif len(element) > LARGE:  # from a producer that stores no body apart
                self._held.note_large(message)
            message.holder = self._holder
            held[element] = message
            self.messages.append(message)

    def _take_newest(self, consumer: str) -> Steps[None]:
        """Take newer messages of their dedup keys in the place of the arrived ones, if such wait behind them."""
        elements = yield ops.newest(self._keys, consumer, [message.group for message in self._latest])
        newer, replaced = [], []
        for message, element in zip(self._latest, elements, strict=True):
            if element == message.element or message.element not in self._held.by_element:
                continue
            if element and message.element in self._held.uncounted:
                self._held.uncounted.add(element)
            if self._limits.probe == message.element:
                self._limits.probe = element
            self._held.remove(message.element)
            self.messages.remove(message)
            self._unread = [one for one in self._unread if one is not message]
            if element and message.was_started:
                replaced.append(message.id)
            if element and element not in self._held.by_element:  # else a read-back has adopted it
                newer.append(element)
        self.sort(newer, round((time.monotonic() + self.clock_offset) * 1000))
        self._latest.clear()
        if replaced:
            with contextlib.suppress(ReliqError):  # what is left expires
                yield ops.forget_reports(self._keys, replaced)

    def _read_bodies(self) -> Steps[None]:
        """Read the bodies that are apart from their elements."""
        yield from read_bodies(self._keys, self._unread)
        for message in self._unread:
            # Without a body its lease is lost, or another program has deleted the body.
            if not message.body_is_read and self._held.remove(message.element) is not None:
                self.messages.remove(message)
                self.dying.append(undecodable(message.element))
        self._unread.clear()

    def bury(self, settle: SettleMoves) -> Steps[None]:
        """Make dead letters of the messages that are not to be handled, and delete cancelled ones."""
        if self.dying:
            dying = yield from takeable(list(self.dying))
            answer = yield settle(dying)
            done = [move for move, code in zip(dying, answer.codes, strict=True) if code != Settled.LOST]
            self.buried += [move for move in done if move.destination is Destination.DEAD]
            self._held.uncounted.difference_update(move.element for move in dying)
            self.dying.clear()
            self._limits.note_moves(dying)
            if gone := [move.id for move in done if move.counter == Counter.CANCELLED]:
                with contextlib.suppress(ReliqError):  # what is left expires
                    yield [ops.forget_told(self._keys, gone), ops.forget_reports(self._keys, gone)]

    def drop_removed(self, settle: SettleMoves) -> Steps[None]:
        """Remove arrived messages of members that have left the cycle meanwhile."""
        if not self._members:
            return
        members = [message for message in self.messages if message.in_cycle]
        still = yield ops.cycle_entries(self._keys, [message.group for message in members])
        self._members = False
        pairs = zip(members, still, strict=True)
        left = [one for one, member in pairs if member is None or not member.startswith(one.id.encode() + b" ")]
        yield from self._bury_cancelled(left, settle)

    def drop_cancelled(self, settle: SettleMoves) -> Steps[None]:
        """Remove messages that were cancelled while a consumer held them that has died."""
        again = [message for message in self.messages if message.redelivered]
        if not again:
            return
        yield from self._bury_cancelled(cancelled_of(again, (yield ops.told(self._keys))), settle)

    def _bury_cancelled(self, messages: Iterable[Message], settle: SettleMoves) -> Steps[None]:
        for message in messages:
            self.messages.remove(message)
            self._held.remove(message.element)
            self.dying.append(cancelled(message, started=False))
        yield from self.bury(settle)
