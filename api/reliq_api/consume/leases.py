"""Settle and extend by the id of a lease. A lease over HTTP is a consumer without a connection: its processing list in
Redis is all its state, so that any process of the service, started at any time, can settle it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reliq import ops
from reliq.model.backoff import exponential
from reliq.model.element import Undecodable
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.policy import Policy, Retry
from reliq.ops import Move, Settled, Steps
from reliq.protocol.outcomes import buried, failure_now, released, retried

CODES = {Settled.DONE: "done", Settled.ALREADY: "already", Settled.LOST: "lost"}

_SETTLED_REMEMBERED = 60.0  #: seconds for which a repeated settle is answered `already`, not `lost`
_ENTRY_BYTES = 600  #: memory of a remembered message besides its element
_DEFAULT = Policy(exponential())  # the default policy of a worker


@dataclass(frozen=True, slots=True)
class Outcome:
    """The wanted outcome of one message."""

    verb: Literal["ack", "retry", "dead", "release"]
    id: str
    delay: float | None = None
    text: str = ""


class Elements:
    """The messages of a lease: elements by id, oldest first, as an id may occur twice."""

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

    def __init__(self, largest: int = 64 * 1024 * 1024) -> None:
        self._leases: OrderedDict[str, Elements] = OrderedDict()
        self._largest = largest
        self._size = 0

    def add(self, lease: str, messages: Sequence[Message]) -> None:
        elements = Elements((message.id, message.element) for message in messages)
        self._leases[lease] = elements
        self._size += elements.size
        while self._size > self._largest:
            self._size -= self._leases.popitem(last=False)[1].size

    def pop(self, lease: str) -> Elements | None:
        """Take the elements out of the cache: a second settle at the same time reads them back."""
        elements = self._leases.pop(lease, None)
        if elements is not None:
            self._size -= elements.size
        return elements

    def put_back(self, lease: str, elements: Elements) -> None:
        if not elements.empty:
            self._leases[lease] = elements
            self._size += elements.size


def settle(keys: QueueKeys, lease: str, outcomes: Sequence[Outcome], elements: Elements | None) -> Steps[list[str]]:
    """Settle; return a code for each outcome: done, already or lost. `elements`: the lease's elements, if known."""
    if elements is None:
        elements = yield from _read_back(keys, lease)
    acks: list[bytes] = []
    moves: list[Move] = []
    places: tuple[list[int], list[int]] = ([], [])
    for place, outcome in enumerate(outcomes):
        element = elements.take(outcome.id)
        if element is None:
            continue
        if outcome.verb == "ack":
            acks.append(element)
        else:
            moves.append(_move(Message.decode(keys.queue, element), lease, outcome))
        places[outcome.verb != "ack"].append(place)
    if not acks and not moves:
        return ["already" if (yield _known(keys, lease)) else "lost"] * len(outcomes)
    request: list[ops.Op[Any]] = [ops.settle(keys, lease, 0, acks, moves)]
    if elements.empty:
        request.append(_finish(keys, lease))
    answer: ops.Claimed = (yield request)[0]
    codes = ["lost" if answer.status == "lost" else "already"] * len(outcomes)
    for place, code in zip(places[0] + places[1], answer.codes, strict=True):
        codes[place] = CODES[Settled(code)]
    if "lost" in codes and (yield _known(keys, lease)):  # another request has just settled the last message
        return ["already" if code == "lost" else code for code in codes]
    return codes


def _known(keys: QueueKeys, lease: str) -> ops.Op[bool]:
    """Return the op that reads whether the lease is valid, or ended because everything was settled."""
    return ops.lease_known(keys, lease)


def _read_back(keys: QueueKeys, lease: str) -> Steps[Elements]:
    pairs: list[tuple[str, bytes]] = []
    held = yield ops.read_back(keys, lease)
    for element in reversed(held):
        try:
            pairs.append((Message.decode(keys.queue, element).id, element))
        except Undecodable:
            continue
    return Elements(pairs, others=len(held) - len(pairs))


def _finish(keys: QueueKeys, lease: str) -> ops.Op[bool]:
    return ops.finish(keys, lease, _SETTLED_REMEMBERED)


def _move(message: Message, lease: str, outcome: Outcome) -> Move:
    match outcome.verb:
        case "release":
            return released(message, outcome.delay or 0.0)
        case "dead":
            return buried(message, failure_now(lease, "Dead", outcome.text), "rejected")
    failure = failure_now(lease, "Retry", outcome.text or "retried by its consumer")
    delay = _DEFAULT.delay(message.failures + 1, Retry(delay=outcome.delay))
    return buried(message, failure, "max_failures") if delay is None else retried(message, failure, delay)


def extend(keys: QueueKeys, lease: str, seconds: float) -> Steps[bool]:
    """Extend a lease; return whether it is valid and holds messages."""
    alive, held = yield [ops.heartbeat(keys, lease, seconds), ops.held_count(keys, lease)]
    if alive and not held:
        yield _finish(keys, lease)
    return bool(alive and held)
