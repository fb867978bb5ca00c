"""What is wrong with a queue, in the words of the dashboard, and the order that puts trouble first."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from reliq.model.stats import Stats

OLDEST = 300.0  #: seconds after which the oldest ready message is too old; as the alert ReliqOldestMessageTooOld


@dataclass(frozen=True, slots=True)
class State:
    """A state that a queue may be in; a queue may be in several."""

    name: str  #: in addresses
    label: str
    look: str  #: how its badge looks
    holds: Callable[[Stats], bool]


def _is_consumed(stats: Stats) -> bool:
    """Whether anybody takes messages: `receive` and `reliq sqs` are no consumers, but hold what they have received."""
    return stats.consumers > 0 or stats.processing > 0


#: The worst first: the order of the queues on the first page.
TROUBLE = (
    State("away", "partly away", "failed", lambda one: one.unseen > 0),
    State("dead", "dead letters", "failed", lambda one: one.dead > 0),
    State("late", "too old", "failed", lambda one: not one.paused and one.oldest_ready_age > OLDEST),
    State("unattended", "no consumers", "paused", lambda one: one.ready > 0 and not (_is_consumed(one) or one.paused)),
    State("breaker", "breaker", "paused", lambda one: one.breaker != "closed"),
    State("full", "nearly full", "paused", lambda one: 0 < 0.9 * one.max_length < one.ready + one.delayed),
    State("paused", "paused", "paused", lambda one: one.paused),
    State("limited", "limited", "paused", lambda one: one.limited_by not in ("", "breaker")),
)
CALM = (
    State("running", "running", "running", _is_consumed),
    State("idle", "idle", "idle", lambda one: not _is_consumed(one)),
)

#: How the list may be ordered: by trouble, by name, or by a number, the largest first.
NUMBERS = ("ready", "processing", "delayed", "dead", "oldest", "consumers")
ORDERS = ("trouble", "name", *NUMBERS)


def states(stats: Stats) -> list[State]:
    """Return what is wrong with a queue, the worst first; for a queue without trouble whether it is running or idle."""
    return [one for one in TROUBLE if one.holds(stats)] or [next(one for one in CALM if one.holds(stats))]


def counts(found: Iterable[Stats]) -> dict[State, int]:
    """Return how many queues are in each state, without those that no queue is in."""
    every = [states(stats) for stats in found]
    tally = {one: sum(one in some for some in every) for one in (*TROUBLE, *CALM)}
    return {one: count for one, count in tally.items() if count}


def chosen(found: Mapping[str, Stats], text: str, state: str, order: str) -> list[Stats]:
    """Return the queues with this text in their name that are in a state, all for an empty one, in an order."""
    wanted = [
        stats
        for name, stats in found.items()
        if text.strip().lower() in name.lower() and (not state or state in (one.name for one in states(stats)))
    ]
    return sorted(wanted, key=lambda stats: (_place(stats, order), stats.queue))


def _place(stats: Stats, order: str) -> float:
    match order:
        case "name":
            return 0
        case "oldest":
            return -stats.oldest_ready_age
        case number if number in NUMBERS:
            return float(-getattr(stats, number))
        case _:
            return (*TROUBLE, *CALM).index(states(stats)[0])
