"""The op that reads the statistics of a queue."""

from collections.abc import Collection
from functools import partial
from typing import Any

from reliq.model.keys import QueueKeys
from reliq.model.stats import Stats, age_of_oldest
from reliq.ops import signatures
from reliq.ops.commands import names_of
from reliq.ops.request import Op, optional_int, scripted

MOST_CONSUMERS = 1000  #: of a queue, whose messages are counted at one instant


def stats(keys: QueueKeys, consumers: Collection[str]) -> Op[Stats]:
    """Read the statistics of a queue, including the messages that these consumers hold.

    They are exact if these are all of its consumers, and not more than MOST_CONSUMERS.
    """
    call = signatures.stats(keys, lists=map(keys.processing, consumers))
    return scripted(call, partial(_read, keys, frozenset(consumers)))


def _read(keys: QueueKeys, counted: frozenset[str], reply: list[Any]) -> Stats:
    now, ready, waiting, delayed, dead, processing, prepared, parked, paused, *more = reply
    high, low, members, following, overdue, limited_by, breaker, *more = more
    schedules, next_tick, max_length, there, *counters = more
    many = isinstance(there, int)
    consumers, next_at = [] if many else names_of(there), float(next_tick)
    number = there if many else len(consumers)
    return Stats(
        queue=keys.logical, ready=ready, processing=processing, delayed=delayed, dead=dead, waiting=waiting,
        oldest_ready_age=age_of_oldest(keys.queue, following, now), consumers=number, paused=bool(paused),
        counters={name.decode(): int(count) for name, count in sorted(zip(counters[::2], counters[1::2], strict=True))},
        prepared=prepared, parked=parked, limited_by=limited_by.decode(), breaker=breaker.decode(),
        overdue=float(overdue) / 1000,
        max_length=optional_int(max_length) or 0, high=high, low=low, members=members, schedules=schedules,
        next_tick=next_at / 1000, tick_overdue=max(0.0, now - next_at) / 1000 if schedules else 0.0,
        exact=not many and counted.issuperset(consumers),
    )  # fmt: skip
