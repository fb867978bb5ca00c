"""Settle and extend by the id of a lease. A lease over HTTP is a consumer without a connection: its processing list in
Redis is all its state, so that any process of the service, started at any time, can settle it.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from reliq import ops
from reliq.model.backoff import exponential
from reliq.model.element import Undecodable
from reliq.model.keys import QueueKeys, run_of
from reliq.model.life import Life, Report
from reliq.model.message import Message
from reliq.model.policy import Policy, Retry
from reliq.ops import Move, Settled, Steps
from reliq.ops.held import not_held
from reliq.ops.schema import Counter
from reliq.protocol.claimant import Claimant
from reliq.protocol.features import TAGS
from reliq.protocol.holds import of_lease
from reliq.protocol.lives import cancelled_of, has_left
from reliq.protocol.outcomes import buried, cancelled, failure_now, released, retried

_SETTLED_REMEMBERED = 60.0  #: seconds for which a repeated settle is answered `already`, not `lost`
_ENTRY_BYTES = 600  #: memory of a remembered message besides its element
_REMEMBERED = 64 * 1024 * 1024  #: bytes of the leases that a process remembers
_DEFAULT = Policy(exponential())  # the default policy of a worker


@dataclass(frozen=True, slots=True)
class Outcome:
    """The wanted outcome of one message."""

    verb: Literal["ack", "retry", "dead", "release"]
    id: str
    delay: float | None = None
    text: str = ""


class Elements:
    """The messages of a lease, as elements by id. An id may occur twice; its elements are in order, oldest first."""

    __slots__ = ("_by_id", "_left", "size")

    def __init__(self, pairs: Iterable[tuple[str, bytes]], others: int = 0) -> None:
        self._by_id: dict[str, list[bytes]] = {}
        self._left = others  #: including undecodable elements, which have no id
        self.size = 0
        for identity, element in pairs:
            self._by_id.setdefault(identity, []).append(element)
            self._left += 1
            self.size += len(element) + _ENTRY_BYTES

    @property
    def empty(self) -> bool:
        return self._left == 0

    def take(self, identity: str) -> bytes | None:
        elements = self._by_id.get(identity)
        if not elements:
            return None
        self._left -= 1
        return elements.pop(0)


class Remembered:
    """A cache of the leases given by this process, so that a settle need not read them back. Losing it is harmless."""

    def __init__(self) -> None:
        self._leases: OrderedDict[tuple[str, str], Elements] = OrderedDict()  #: by queue and lease
        self._size = 0

    def add(self, queue: str, lease: str, messages: Sequence[Message]) -> None:
        elements = Elements((message.id, message.element) for message in messages)
        self._leases[queue, lease] = elements
        self._size += elements.size
        while self._size > _REMEMBERED:
            self._size -= self._leases.popitem(last=False)[1].size

    def pop(self, queue: str, lease: str) -> Elements | None:
        """Take the elements out of the cache: a second settle at the same time reads them back."""
        elements = self._leases.pop((queue, lease), None)
        if elements is not None:
            self._size -= elements.size
        return elements

    def put_back(self, queue: str, lease: str, elements: Elements) -> None:
        if not elements.empty:
            self._leases[queue, lease] = elements
            self._size += elements.size


def settle(keys: QueueKeys, lease: str, outcomes: Sequence[Outcome], elements: Elements | None) -> Steps[list[str]]:
    """Settle; return a code for each outcome, of `Settled`. `elements`: the lease's elements, if known."""
    if elements is None:
        elements = yield from _read_back(keys, lease)
    taken = [(place, one, element) for place, one in enumerate(outcomes) if (element := elements.take(one.id))]
    acked = [one for one in taken if one[1].verb == "ack"]
    moved = [one for one in taken if one[1].verb != "ack"]
    lives = yield from _lives(keys, [element for *_, element in moved])
    acks = [element for *_, element in acked]
    moves = [_move(Message.decode(keys.queue, element), lease, outcome, lives) for _, outcome, element in moved]
    places = [place for place, *_ in (*acked, *moved)]  # in the order of the codes
    if not places:
        return ["already" if (yield ops.lease_known(keys, lease)) else "lost"] * len(outcomes)
    ids = [outcomes[place].id for place in places]
    also: list[ops.Op[Any]] = [ops.count_notes(keys, ids)]
    if elements.empty:
        also.append(_finish(keys, lease))
    answer: ops.Claimed
    answer, notes, *_ = yield from Claimant(keys, lease, 0).settle(acks, moves, also=also)
    if notes:
        yield from _forget(keys, ids, len(acks), moves, answer.codes)
    codes = ["lost" if answer.status == "lost" else "already"] * len(outcomes)
    instead = [False] * len(acks) + [move.counter == Counter.CANCELLED for move in moves]
    for place, code, is_cancelled in zip(places, answer.codes, instead, strict=True):
        codes[place] = (Settled.CANCELLED if is_cancelled and code == Settled.DONE else Settled(code)).code
    if "lost" in codes and (yield ops.lease_known(keys, lease)):  # another request has just settled the last message
        return ["already" if code == "lost" else code for code in codes]
    return codes


def _read_back(keys: QueueKeys, lease: str) -> Steps[Elements]:
    held = yield ops.read_back(keys, lease)
    messages = _readable(keys, held)
    return Elements(((message.id, message.element) for message in messages), others=len(held) - len(messages))


def _read_held(keys: QueueKeys, lease: str) -> Steps[list[Message]]:
    return _readable(keys, (yield ops.read_back(keys, lease)))


def _readable(keys: QueueKeys, held: Sequence[bytes]) -> list[Message]:
    """Return the messages of a lease, oldest first, without elements that do not decode."""
    messages = []
    for element in reversed(held):
        with suppress(Undecodable):
            messages.append(Message.decode(keys.queue, element))
    return messages


def _finish(keys: QueueKeys, lease: str) -> ops.Op[bool]:
    return ops.forget(keys, lease, leaving=True, settled_for=_SETTLED_REMEMBERED)


class _Lives:
    """What is known of the messages of a lease that are put back: the holder that their elements are made with."""

    def __init__(self, lives: Mapping[bytes, Life]) -> None:
        self.lives = lives

    def report(self, message: Message, report: Report) -> Awaitable[None]:
        raise AssertionError("consumers over HTTP report with the call `progress`")

    def act(self, message: Message, asked: object) -> Any:
        raise AssertionError("consumers over HTTP have calls for steps")


def _lives(keys: QueueKeys, elements: Sequence[bytes]) -> Steps[_Lives]:
    """Read which of these messages were cancelled, and about which something was reported."""
    if not elements:
        return _Lives({})
    messages = [Message.decode(keys.queue, element) for element in elements]
    reads = (ops.reported_tag, *TAGS)
    charges = [ops.exists(keys.charged(run_of(message.tag))) for message in messages]
    told, *answers = yield [
        ops.told(keys), *charges, *(read(keys, message.id) for message in messages for read in reads)
    ]  # fmt: skip
    charged, tags = answers[: len(messages)], answers[len(messages) :]
    lives = {}
    for message, is_charged in zip(messages, charged, strict=True):
        life = lives[message.element] = Life(stored=any(tag is not None for tag in tags[: len(reads)]))
        life.charged = is_charged
        del tags[: len(reads)]
    for message in cancelled_of(messages, told):
        lives[message.element].cancelled = True
    return _Lives(lives)


def _forget(keys: QueueKeys, ids: Sequence[str], acks: int, moves: Sequence[Move], codes: str) -> Steps[None]:
    """Delete the notes about the messages, acks first, that have left the queue now."""
    leaves = [True] * acks + [move.destination.leaves for move in moves]
    gone = [one for one, left, code in zip(ids, leaves, codes, strict=True) if has_left(code, left)]
    if gone:
        yield [ops.forget_reports(keys, gone), ops.forget_told(keys, gone)]


def _move(message: Message, lease: str, outcome: Outcome, lives: _Lives) -> Move:
    message.holder = lives
    if message.cancelled and outcome.verb != "dead":
        return cancelled(message)
    match outcome.verb:
        case "release":
            return released(message, outcome.delay or 0.0)
        case "dead":
            return buried(message, failure_now(lease, "Dead", outcome.text), "rejected")
    failure = failure_now(lease, "Retry", outcome.text or "retried by its consumer")
    delay = _DEFAULT.delay(message.failures + 1, Retry(delay=outcome.delay))
    return buried(message, failure, "max_failures") if delay is None else retried(message, failure, delay)


def extend(keys: QueueKeys, lease: str, seconds: float) -> Steps[list[str] | None]:
    """Extend a lease; return the ids of its cancelled messages, or None if it is over or holds no messages."""
    alive, held, told = yield [ops.heartbeat(keys, lease, seconds), ops.held_count(keys, lease), ops.told(keys)]
    if alive and not held:
        yield _finish(keys, lease)
    if not (alive and held):
        return None
    if not told:
        return []
    return [message.id for message in cancelled_of((yield from _read_held(keys, lease)), told)]


def report(keys: QueueKeys, lease: str, identity: str, report: Report) -> Steps[None]:
    """Store what the consumer reports about a message of the lease; raises LeaseLost if it is not there any more."""
    hold = yield from of_lease(keys, lease, identity)
    if not (yield ops.report(hold, report)):
        raise not_held(hold.message)


def states(keys: QueueKeys, messages: Sequence[Message]) -> Steps[dict[str, bytes]]:
    """Read the checkpoints of earlier consumers of these messages, by id."""
    started = [message for message in messages if message.was_started]
    if not started:
        return {}
    reports = yield [ops.reported(keys, one.id) for one in started]
    return {
        one.id: found.state
        for one, found in zip(started, reports, strict=True)
        if found and found.state is not None and found.is_about(one.enqueued_at)
    }
