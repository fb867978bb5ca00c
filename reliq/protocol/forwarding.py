"""Send dead letters on to another queue, by the setting `dead_to`."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from reliq import ops
from reliq.contract.values import MAX_ID
from reliq.errors import InvalidMessage, InvalidSetting, QueueFull, ReliqError
from reliq.model.dead_letter import DEAD_FROM, DeadLetter
from reliq.model.keys import QueueKeys, check_name, dedup_digest
from reliq.model.outgoing import NewMessage
from reliq.ops import Steps
from reliq.ops.coming import Coming
from reliq.ops.schema import Counter
from reliq.ops.sqs import has_redrive_policy
from reliq.protocol import spread
from reliq.protocol.bodies import read_bodies
from reliq.protocol.dead_letters import discarded, last_seen
from reliq.protocol.features import CARRIED, Carried
from reliq.protocol.homes import QueueHomes
from reliq.protocol.listing import Position, walk
from reliq.protocol.producer import ProducerPool
from reliq.protocol.reports import forget_reports
from reliq.runtime.failures import failures

#: Another one: how often they were received, or their handlers failed, before they came to this queue.
RECEIVED_ELSEWHERE: Final = "reliq-receives"

#: Reasons of dead letters that stay: no consumer has failed on them, or no consumer could read them.
_STAYING: Final = frozenset({"expired", "decode", "undecided"})

_DIGITS = 16
_LOOKS = 1000  #: letters that a turn looks at
_WINDOW = 3600.0  #: seconds for which a letter that was sent on is recognized, if it could not be deleted at once


def check_target(queue: str, to: object) -> None:
    """Raise InvalidName, or InvalidSetting for the queue itself."""
    if check_name(to) == queue:
        raise InvalidSetting(f"dead_to of queue {queue!r} is the queue itself: its dead letters would never end")


@dataclass(slots=True)
class Sweep:
    """One look at all dead letters of a home, oldest first, in several turns."""

    start: Position | None = None  #: where the next turn begins; None: with the oldest letter
    full: set[str] = field(default_factory=set)  #: homes of the other queue that had no room: their letters keep order
    refusal: QueueFull | None = None  #: the error of letters for which there is no room

    def note(self, position: Position | None, again: bool) -> None:
        """Note where a turn has ended; None: the next one begins a new sweep. `again`: it begins as this one did."""
        if again or position is None:
            self.full, self.refusal = set(), None
        if not again:
            self.start = position


def forward(keys: QueueKeys, to: str, pool: ProducerPool, at_most: int, sweep: Sweep | None = None) -> Steps[int]:
    """Send up to `at_most` dead letters of a home on to queue `to`, oldest first; return how many.

    A letter is deleted after it was sent; one that was sent before, by a monitor that died in between, is recognized.
    Letters for which the other queue has no room stay, and so do those that cannot be sent. A thousand letters are
    looked at, from where the turn before has ended (`sweep`). Raises QueueFull if there is no room for any.
    Letters of a queue of SQS stay while its dead letter queue is deleted: a send would make that anew.
    """
    if (yield has_redrive_policy(keys.logical)) and not (yield ops.is_queue(to)):
        return 0
    sweep = sweep or Sweep()
    forwarding = Forwarding(keys, to, pool, at_most, sweep)
    now = yield ops.server_time()
    position = yield from walk(
        DeadLetter, keys, keys.dead, ("-inf", f"({now + 1}"), _any, forwarding.send_on, forwarding.gone,
        start=sweep.start,
    )  # fmt: skip
    refusal = sweep.refusal
    sweep.note(position, again=refusal is not None and forwarding.has_one_target)
    if refusal is not None and not forwarding.moved:
        raise refusal
    return forwarding.moved


class Forwarding:
    """One turn with the dead letters of a home."""

    def __init__(self, keys: QueueKeys, to: str, pool: ProducerPool, at_most: int, sweep: Sweep) -> None:
        self.moved = 0
        self.gone = set[bytes]()  #: elements of letters that are deleted here
        self._keys = keys
        self._target = QueueHomes(to, pool)
        self._left = at_most  #: letters that may be sent
        self._looks = _LOOKS  #: letters that are still to be looked at
        self._sweep = sweep

    @property
    def has_one_target(self) -> bool:
        """Whether the other queue has a single home: when that is full, no letter behind is sent before."""
        return not self._target.layout.several

    def send_on(self, found: list[DeadLetter]) -> Steps[bool]:
        """Send some letters on, as many as there is room for, and delete them here; return whether to go on."""
        letters = [one for one in found if _is_sent_on(one)]
        self._looks -= len(found)
        self._left -= len(letters)
        if letters:
            yield from read_bodies(self._keys, letters)
        left = [one for letter in letters if letter.body_is_read and (one := Passage.of(self._keys.logical, letter))]
        if left:
            yield ops.announce(self._target.queue)
        moved, was_refused = self.moved, False
        at_once = len(left)
        while left := (yield from self._with_room(left)):
            some = left[:at_once]
            sent, refusal = yield from self._send(some)
            if sent:
                yield from self._delete([one.letter for one in sent])
            left = [one for one in left if one.letter.element not in self.gone]
            if refusal is None:
                continue
            if len(some) == 1:
                self._sweep.refusal, was_refused = refusal, True
                self._sweep.full.add((yield from self._target.home_of(some[0].message)).queue)
                at_once = len(left)
            else:  # as many as fit: half of them, and so on
                at_once = max(1, len(some) // 2)
        return self._left > 0 and self._looks > 0 and (self.moved > moved or not was_refused)

    def _with_room(self, left: Sequence["Passage"]) -> Steps[list["Passage"]]:
        """Return those whose home in the other queue is not full, as far as that is known."""
        if not self._sweep.full:
            return list(left)
        found = []
        for one in left:
            home = yield from self._target.home_of(one.message)
            if home.queue not in self._sweep.full:
                found.append(one)
        return found

    def _send(self, some: Sequence["Passage"]) -> Steps[tuple[Sequence["Passage"], QueueFull | None]]:
        """Send letters; return those that were enqueued, and why others were not. Raises any other error."""
        try:
            yield from _send(self._keys, self._target, some)
        except ReliqError as error:
            sent = [some[place] for place in error.enqueued]
            if isinstance(error, QueueFull):
                return sent, error
            if sent:  # the others are sent again, and recognized where they were enqueued
                yield from self._delete([one.letter for one in sent])
            raise
        return some, None

    def _delete(self, letters: Sequence[DeadLetter]) -> Steps[None]:
        gone: int = yield ops.discard(self._keys, discarded(letters), Counter.FORWARDED)
        self.gone.update(one.element for one in letters)
        self.moved += gone
        if gone == len(letters):
            yield from forget_reports(self._keys, last_seen(letters))


class Passage(NamedTuple):
    """A dead letter, and the message that it is in the other queue."""

    letter: DeadLetter
    message: NewMessage

    @classmethod
    def of(cls, queue: str, letter: DeadLetter) -> Self | None:
        """Return it; None for a letter that no send takes, as another program may have written it."""
        try:
            return cls(letter, _message(queue, letter))
        except InvalidMessage as error:
            text = "not_forwarded queue=%s id=%s error=%s: it stays a dead letter"
            kind = ("not_forwarded", queue, type(error).__qualname__)
            failures.write(logging.WARNING, kind, text, queue, letter.id, error)
            return None


def _send(keys: QueueKeys, target: QueueHomes, passages: Sequence[Passage]) -> Steps[None]:
    """Send letters to the target; what features keep for them is copied first to each home that is offered them."""
    messages = [one.message for one in passages]
    former = {message.id: letter.id for letter, message in passages}
    copied: list[tuple[Carried, QueueKeys, list[Coming]]] = []
    known = set[tuple[str, str]]()

    def copy(home: QueueKeys, offered: Sequence[NewMessage]) -> Steps[None]:
        new = [one for one in offered if (home.queue, one.id) not in known]
        known.update((home.queue, one.id) for one in new)
        for kept in CARRIED if new else ():
            some = yield from kept.send_on(keys, home, [_coming(home, one, former[one.id]) for one in new])
            copied.extend([(kept, home, some)] if some else [])

    refusal: ReliqError | None = None
    try:
        yield from spread.send(target, messages, before=copy)
    except ReliqError as error:  # of some of them
        refusal = error
    for kept, home, some in copied:
        entered: list[bool] = yield [ops.exists(one.mark) for one in some]
        for is_there, note in ((True, kept.have_come), (False, kept.have_gone)):
            those = [one for one, came in zip(some, entered, strict=True) if bool(came) is is_there]
            if those and (calls := note(home, those)):
                yield calls
    if refusal is not None:
        raise refusal


def _coming(home: QueueKeys, message: NewMessage, former_id: str) -> Coming:
    return Coming(message.id, home.dedup(message.dedup_key or ""), former_id)


def _any(letter: DeadLetter) -> bool:
    return True


def _is_sent_on(letter: DeadLetter) -> bool:
    return letter.readable and letter.reason not in _STAYING


def _message(queue: str, letter: DeadLetter) -> NewMessage:
    message = NewMessage(
        letter.body,
        id=_id_elsewhere(queue, letter),
        headers=letter.headers,
        key=letter.key or None,
        limit_key=None if letter.key else letter.limit_key or None,
        priority=letter.priority,
        cost=letter.cost,
        dedup_key=f"{DEAD_FROM} {queue} {letter.tag}",
        window=_WINDOW,
    )
    # Behind the checks: with them the headers may have a few bytes more than a send may give.
    message.headers = {**message.headers, DEAD_FROM: queue, RECEIVED_ELSEWHERE: str(_receives(letter))}
    message.enqueued_at = letter.enqueued_at
    message.offered = True  # a full queue refuses it again and again
    return message


def _id_elsewhere(queue: str, letter: DeadLetter) -> str:
    """Return the id of a letter in another queue. Copies of one published message have one id, and may meet there."""
    if not letter.routing_key:
        return letter.id
    name = f"{letter.id}:{queue}"
    return name if len(name) <= MAX_ID else f"{letter.id[: MAX_ID - 65]}:{dedup_digest(name)}"


def _receives(letter: DeadLetter) -> int:
    return number(letter.headers.get(RECEIVED_ELSEWHERE, "")) + letter.deliveries + letter.failures


def number(header: str) -> int:
    """Read a number that reliq has put into a header; 0 for what a sender has put there instead."""
    return int(header) if header.isascii() and header.isdecimal() and len(header) < _DIGITS else 0
