"""What the rules of the observer share: all messages, and what has happened to all of them."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from reliq.model.element import BLANK, Envelope, Undecodable, decode_envelope
from reliq.model.keys import QueueKeys, logical_name
from reliq.model.partitions import Layout, read_layout
from tests.simulation.server import Contents
from tests.simulation.stories import (
    DEAD,
    DELAYED,
    FLYING,
    PARKED,
    PREPARED,
    PROCESSING,
    READY,
    Message,
    Place,
    Story,
    Violation,
)

_STATES = {
    "processing": PROCESSING,
    "receipts": PROCESSING,
    "delayed": DELAYED,
    "dead": DEAD,
    "half": PREPARED,
    "parked": PARKED,
}
_NO_MESSAGES = ("lease", "counters", "config")
_GROUP, _LINE = 16, 32  #: where the turn, and the element, begin in a member of `waiting`


class World:
    """All messages, as the server has them and as their callers know them."""

    def __init__(self, clock: Any, server: Any) -> None:
        self.clock = clock
        self.server = server
        self.where: dict[Message, Place] = {}
        self.stories: dict[Message, Story] = {}
        self.contents: Contents = {}
        self.placed: dict[str, dict[str, list[tuple[Message, Place]]]] = defaultdict(dict)  #: by queue and key
        self.layouts: dict[str, Layout] = defaultdict(Layout)  #: of the queues with partitions
        self.given_up: dict[str, float] = defaultdict(lambda: float("-inf"))  #: when queues gave these partitions up
        self.resized: dict[str, list[float]] = defaultdict(list)  #: when changes of their numbers were stored
        self.limits: dict[str, dict[str, Any]] = defaultdict(dict)
        self.expected: set[Message] = set()  #: that reliq itself sends
        self.schedules: dict[tuple[str, str], Any] = {}
        self.cancels: set[tuple[str, str]] = set()  #: queue, and id or key, of all cancels that were called
        self.restarted = False
        self.restarted_at = 0.0
        self.disturbed = False  #: all processes are: the server was away or full
        self._envelopes: dict[bytes, Envelope | None] = {}

    def processes(self) -> list[Any]:
        """Return the living processes; set by the simulation."""
        return []

    def restarted_since(self, when: float) -> bool:
        """Whether the server was restarted from an older state since then."""
        return self.restarted and when <= self.restarted_at

    def cancelled(self, message: Message) -> bool:
        """Whether a cancel that fits the message was called: of its id, its key or its limit key."""
        (queue, identity), story = message, self.stories[message]
        return not self.cancels.isdisjoint({(queue, identity), (queue, story.key), (queue, story.limit_key)})

    def excused(self, process: Any) -> bool:
        """Whether a fault has hit the process."""
        return bool(process.disturbed or self.disturbed)

    def partitions(self, queue: str) -> list[str]:
        """Return all partitions that the queue has ever had."""
        return sorted({queue, *(one for one in self.placed if logical_name(one) == queue)})

    def there(self, partition: str) -> list[Message]:
        """Return the messages that are in a partition."""
        return [message for placed in self.placed[partition].values() for message, _ in placed]

    def check_given_up(self, queue: str) -> None:
        """No partition that the queue has given up holds anything."""
        for one in set(self.partitions(queue)).difference(self.layouts[queue].every(queue)):
            if left := self.there(one):
                raise Violation(f"{queue} has given up its partition {one}, in which {left} are")

    def envelope(self, element: bytes) -> Envelope:
        known = self._envelopes.get(element)
        if known is None:
            try:
                known = self._envelopes[element] = decode_envelope(element)
            except (Undecodable, ValueError) as error:
                raise Violation(f"{element!r} does not decode: {error}") from None
        return known

    # --- what the server has ---

    def read(self, keys: Iterable[str]) -> tuple[dict[Message, list[Place]], dict[Message, list[Place]]]:
        """Read these keys, which have changed; return the places of their messages before and after that."""
        before: dict[Message, list[Place]] = defaultdict(list)
        after: dict[Message, list[Place]] = defaultdict(list)
        for key in keys:
            queue, kind, rest = _parts(key)
            if kind == "config":
                self._note_layout(queue, self.contents.get(key, []))
            if kind in _NO_MESSAGES:
                continue
            for message, place in self.placed[queue].pop(key, ()):
                before[message].append(place)
            if key in self.contents:
                self.placed[queue][key] = placed = self._places(queue, kind, rest, self.contents[key])
                for message, place in placed:
                    after[message].append(place)
        return before, after

    def _note_layout(self, queue: str, items: list[bytes]) -> None:
        layout = read_layout(items[0].decode() if items else None)
        if layout.moving and not self.layouts[queue].moving:
            self.resized[queue].append(self.clock.now)
        for one in set(self.layouts[queue].every(queue)).difference(layout.every(queue)):
            self.given_up[one] = self.clock.now
        self.layouts[queue] = layout

    def _places(self, queue: str, kind: str, rest: str, items: list[bytes]) -> list[tuple[Message, Place]]:
        state, logical = _STATES.get(kind, READY), logical_name(queue)
        scored, flies = state in (DELAYED, DEAD) or kind == "receipts", kind == "receipts"
        found = []
        for place, item in enumerate(items[::2] if scored else items):
            if item == BLANK:
                continue
            element, line = (item[_LINE:], _line(item)) if kind == "waiting" else (item, "")
            score = float(items[2 * place + 1]) / 1000 if scored else 0.0
            if state == PARKED:
                head, _, element = item.partition(b"\n")
                until, _, line = head.decode().split(" ", 2)
                score = float(until) / 1000 or float("inf")
            consumer = FLYING if flies else rest if state == PROCESSING else ""
            found.append(((logical, self.envelope(element).id), Place(state, consumer, element, score, queue, line)))
        return found

    def lease(self, place: Place) -> list[bytes] | None:
        """Return the deadline of the consumer that holds a message."""
        return self.contents.get(QueueKeys(place.queue).lease(place.consumer))


def _line(item: bytes) -> str:
    """Return the turn of a member of `waiting`; behind a vertical tab that of one which waits for its flow."""
    return ("\v" if item.startswith(b"\v") else "") + item[_GROUP:_LINE].decode()


def _parts(key: str) -> tuple[str, str, str]:
    """Return the queue of a key, the kind, and what follows it."""
    queue, _, rest = key.removeprefix("reliq:{").partition("}:")
    return queue, *rest.partition(":")[::2]


def queues_of(keys: Iterable[str]) -> set[str]:
    """Return the queues that have these keys."""
    return {_parts(key)[0] for key in keys}
