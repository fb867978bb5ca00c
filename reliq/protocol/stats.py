"""The one reader of statistics: of a queue, of its homes, and of many queues, 100 in a round trip."""

from collections.abc import Sequence
from dataclasses import replace

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys, logical_name
from reliq.model.partitions import Layout
from reliq.model.stats import Stats, whole
from reliq.ops import Steps
from reliq.runtime.looking import is_away, missing_now, unseen
from reliq.runtime.pieces import pieces

GROUP = 100  #: queues per round trip
_LOOKS = 3  #: reads of a queue while its set of consumers changes
_MOST_UNREADABLE = 20  #: queues; if there are more, the fault is that of the server


def stats_of(keys: QueueKeys) -> Steps[Stats]:
    """Read the statistics of one home."""
    (found,) = yield from _read([keys.queue])
    return found


def read_queues(names: Sequence[str]) -> Steps[list[Stats]]:
    """Read the statistics of each of these queues, each at its own instant; of one with several homes, that of all.

    For an operator who looks, queues and homes that do not answer are left out, unless all of them are.
    """
    readings, unreadable = yield from _readings(names)
    for error in unreadable.values():
        raise error
    return list(readings.values())


def read_homes(queue: str, layout: Layout) -> Steps[dict[str, Stats]]:
    """Read the statistics of each home of a queue that can be read, by the queue that it is in Redis."""
    return (yield from _readable(layout.every(queue), None, {}, "partition"))


def read_readable(names: Sequence[str]) -> Steps[tuple[list[Stats], dict[str, str]]]:
    """Read those queues that can be read; return them, and of each other queue why it cannot be read.

    A key of another application, or a value that reliq did not write, must not hide the other queues. Queues that do
    not answer are treated as by `read_queues`.
    """
    readings, unreadable = yield from _readings(names)
    return list(readings.values()), {name: why_unreadable(error) for name, error in unreadable.items()}


def why_unreadable(error: Exception) -> str:
    """Explain in a sentence why a queue cannot be read, without the values that are in it."""
    if isinstance(error, ReliqError):
        return str(error)
    return f"one of its keys holds a value that reliq did not write ({type(error).__name__})"


def _readings(names: Sequence[str], looks: int = _LOOKS) -> Steps[tuple[dict[str, Stats], dict[str, Exception]]]:
    """Read those queues that can be read; return them, and the errors of the others, by their names.

    Those whose homes have changed meanwhile are read again: the counters of a forgotten one have moved.
    """
    layouts: dict[str, Layout] = {}
    unreadable: dict[str, Exception] = {}
    found = yield from _readable(names, layouts, unreadable, "queue")
    parts = [part for name, layout in layouts.items() if name in found for part in layout.every(name)[1:]]
    if not parts:
        return found, unreadable
    without: dict[str, Exception] = {}
    others = yield from _readable(parts, None, without, "partition")
    unreadable |= {logical_name(name): error for name, error in without.items()}
    readings: dict[str, Stats] = {}
    for name, first in found.items():
        every = layouts[name].every(name)[1:] if name in layouts else []
        if name not in unreadable:
            there = [others[part] for part in every if part in others]
            readings[name] = whole([first, *there], len(every) - len(there))
    moved = (
        (yield from _find_changed({name: layouts[name] for name in readings if name in layouts})) if looks > 1 else []
    )
    if moved:
        again, wrong = yield from _readings(moved, looks - 1)
        return {name: again.get(name, one) for name, one in readings.items() if name not in wrong}, unreadable | wrong
    return readings, unreadable


def _find_changed(layouts: dict[str, Layout]) -> Steps[list[str]]:
    """Return the queues that do not have these homes any more."""
    try:
        now = (yield [ops.layout(QueueKeys(name)) for name in layouts]) if layouts else []
    except ReliqError:  # its homes have just answered
        return []
    return [name for (name, layout), one in zip(layouts.items(), now, strict=True) if one.version != layout.version]


def _readable(
    names: Sequence[str], layouts: dict[str, Layout] | None, unreadable: dict[str, Exception], what: str
) -> Steps[dict[str, Stats]]:
    """Read those of these queues, or homes, that can be read, by halves if some cannot; note the others."""
    found: dict[str, Stats] = {}
    away: Exception | None = None
    groups = [names]
    while groups:
        some = groups.pop()
        try:
            found |= zip(some, (yield from _read(some, layouts)), strict=True)
        except Exception as error:
            missing = is_away(error)
            if missing and (missing_now() is None or not getattr(error, "node", "")):
                raise
            if len(some) > 1:
                groups += [some[len(some) // 2 :], some[: len(some) // 2]]
            elif missing and isinstance(error, ReliqError):
                unseen(f"{what} {some[0]}", error)
                away = error
            elif len(unreadable) == _MOST_UNREADABLE:
                raise
            else:
                unreadable[some[0]] = error
    if away is not None and not found and what == "queue":
        raise away
    return {name: found[name] for name in names if name in found}


def _read(names: Sequence[str], layouts: dict[str, Layout] | None = None) -> Steps[list[Stats]]:
    """Read the statistics of each of these, again while consumers came in between; note the layouts of several."""
    readings = yield from _look(names, layouts)
    for _ in range(_LOOKS - 1):
        unsure = [place for place, one in enumerate(readings) if not one.exact and one.consumers <= ops.MOST_CONSUMERS]
        if not unsure:
            break
        again = yield from _look([names[place] for place in unsure], layouts)
        for place, reading in zip(unsure, again, strict=True):
            readings[place] = reading
    return readings


def _look(names: Sequence[str], layouts: dict[str, Layout] | None) -> Steps[list[Stats]]:
    """Read each of these once, and in the same round trip the consumers of the next group.

    What very many consumers hold is counted apart, so that no call takes long.
    """
    every = [QueueKeys(name) for name in names]
    groups = [*pieces(every, GROUP)]
    readings: list[Stats] = []
    consumers: list[tuple[int, list[str]]] = []
    if groups:
        consumers = yield [_consumers(keys) for keys in groups[0]]
    for following, group in zip([*groups[1:], []], groups, strict=False):
        counts = [
            ops.stats(keys, () if _is_large(*known) else set(known[1]))
            for keys, known in zip(group, consumers, strict=True)
        ]
        reads = [] if layouts is None else [ops.layout(keys) for keys in group]
        # The layouts first: one that is still the same afterwards is that of all numbers.
        replies = yield [*reads, *counts, *map(_consumers, following)]
        if layouts is not None:
            found = zip(group, replies[: len(reads)], strict=True)
            layouts |= {keys.queue: layout for keys, layout in found if layout.several}
        for keys, known, reading in zip(group, consumers, replies[len(reads) :], strict=False):
            if _is_large(*known):
                held = reading.processing + (yield from _count_held(keys, *known))
                readings.append(replace(reading, processing=held))
            else:
                readings.append(reading)
        consumers = replies[len(reads) + len(counts) :]
    return readings


def _consumers(keys: QueueKeys, cursor: int = 0) -> ops.Op[tuple[int, list[str]]]:
    return ops.some_consumers(keys, cursor, 2 * ops.MOST_CONSUMERS)  # so many that half of them come at once


def _is_large(cursor: int, some: Sequence[str]) -> bool:
    """Whether these are the first ones of more consumers than are counted at one instant."""
    return cursor != 0 or len(some) > ops.MOST_CONSUMERS


def _count_held(keys: QueueKeys, cursor: int, some: Sequence[str]) -> Steps[int]:
    """Count the messages of very many consumers, from `some` and the place of the next ones on."""
    counts: dict[str, int] = {}
    while True:
        if some:
            counts |= zip(some, (yield [ops.held_count(keys, one) for one in some]), strict=True)
        if not cursor:
            return sum(counts.values())
        cursor, some = yield _consumers(keys, cursor)
