"""The statistics of a queue: one kind of value for programs, HTTP, the command line, metrics and the audit.

A field says what it means and how the values of the homes of a queue are put together; the HTTP schema and the
reference are made from this.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from reliq.contract.counters import balance
from reliq.model.element import Undecodable
from reliq.model.message import Message

#: Where the messages of a queue are.
STATES = ("prepared", "ready", "processing", "delayed", "parked", "dead")


def _first(values: Sequence[Any]) -> Any:
    return values[0]


def _added(values: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in values:
        total.update(one)
    return dict(total)


def _first_except(usual: str) -> Callable[[Iterable[str]], str]:
    return lambda values: next((one for one in values if one != usual), usual)


def _text(text: str, whole: Callable[[Any], Any] = sum) -> dict[str, Any]:
    """Return the metadata of a field: what it means; `whole` makes the value of a queue from those of its homes."""
    return {"text": text, "whole": whole}


@dataclass(frozen=True, slots=True)
class Stats:
    """The statistics of a queue at one instant."""

    queue: str = field(metadata=_text("its name", _first))
    ready: int = field(metadata=_text("messages that may start, and those that wait for their key"))
    processing: int = field(metadata=_text("messages that consumers hold"))
    delayed: int = field(metadata=_text("messages that are not due"))
    dead: int = field(metadata=_text("dead letters"))
    waiting: int = field(metadata=_text("of the ready messages, those behind another message of their key"))
    oldest_ready_age: float = field(
        metadata=_text("seconds since the oldest next message of any priority was sent; 0.0 without one", max)
    )
    consumers: int = field(metadata=_text("consumers that may hold messages"))
    paused: bool = field(metadata=_text("whether messages are kept from the workers", any))
    counters: dict[str, int] = field(
        default_factory=dict, metadata=_text("since the queue exists: enqueued, acked, retried, ...", _added)
    )
    prepared: int = field(default=0, metadata=_text("invisible until their producers decide"))
    parked: int = field(default=0, metadata=_text("messages that wait for a signal"))
    limited_by: str = field(
        default="",
        metadata=_text("the limit that gives out nothing now: held, breaker, rate, concurrency", _first_except("")),
    )
    breaker: str = field(
        default="closed",
        metadata=_text("open or half_open while the breaker keeps messages from the workers", _first_except("closed")),
    )
    overdue: float = field(
        default=0.0, metadata=_text("seconds since the first delayed message was due; 0.0 if none is due", max)
    )
    max_length: int = field(default=0, metadata=_text("the limit of the policy; 0 = unlimited"))
    high: int = field(default=0, metadata=_text("ready messages with high priority"))
    low: int = field(default=0, metadata=_text("ready messages with low priority"))
    members: int = field(default=0, metadata=_text("members of the cycle"))
    schedules: int = field(default=0, metadata=_text("schedules with a next tick"))
    next_tick: float = field(
        default=0.0, metadata=_text("seconds since the epoch at which the first of these is due; 0.0 without one", max)
    )
    tick_overdue: float = field(default=0.0, metadata=_text("seconds since it was due; 0.0 if none is due", max))
    exact: bool = field(
        default=True, metadata=_text("whether the messages of all consumers were counted at the same instant", all)
    )
    unseen: int = field(default=0, metadata=_text("parts of the queue that did not answer, and are not counted"))

    @property
    def normal(self) -> int:
        """Ready messages of normal priority that may start."""
        return self.ready - self.waiting - self.high - self.low

    @property
    def missing(self) -> int:
        """Enqueued messages that are nowhere: in no state, and not counted as gone.

        0 is what reliq promises. Below 0: messages that were never enqueued, such as a second copy or one pushed
        without the enqueue script.
        """
        here: int = sum(getattr(self, state) for state in STATES)
        return balance(self.counters) - here


def whole(parts: Sequence[Stats], unseen: int = 0) -> Stats:
    """Return the statistics of a queue from those of its homes, the first one first.

    `unseen`: homes that did not answer.
    """
    if len(parts) == 1 and not unseen:
        return parts[0]
    values = {one.name: one.metadata["whole"]([getattr(part, one.name) for part in parts]) for one in fields(Stats)}
    found = Stats(**values)
    return replace(found, exact=False, unseen=unseen) if unseen else found


def age_of_oldest(queue: str, elements: Iterable[bytes], now: int) -> float:
    """Return the seconds since the oldest of these elements was sent; 0.0 without elements."""
    ages = [0.0]
    for element in elements:
        with contextlib.suppress(Undecodable):
            ages.append((now - Message.decode(queue, element).enqueued_at) / 1000)
    return max(ages)
