"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable, Sequence

from reliq.ops.request import Argument, Call


def fates(
    *,
    places: Sequence[str],
    delayed: str,
    dead: str,
    index: str,
    lists: Iterable[str],
    most: float,
    ids: Iterable[Argument],
) -> Call:
    return "schedules/fates", (*places, delayed, dead, index, *lists), (most, *ids)


def fire(
    *, places: Sequence[str], delayed: str, ticks: str, states: str, runs: str, schedules: Iterable[Argument]
) -> Call:
    return "schedules/fire", (*places, delayed, ticks, states, runs), (*schedules,)


def fire_schedule(
    *,
    name: Argument,
    expected: Argument,
    state: Argument,
    next_due: Argument,
    due: Argument,
    run: Argument,
    missed: Argument,
    count: Argument,
    messages: Iterable[Argument],
) -> tuple[Argument, ...]:
    return (name, expected, state, next_due, due, run, missed, count, *messages)


def fire_message(*, element: Argument, body: Argument) -> tuple[Argument, ...]:
    return (element, body)


def schedule_put(*, schedules: str, states: str, ticks: str, changes: Iterable[Argument]) -> Call:
    return "schedules/schedule_put", (schedules, states, ticks), (*changes,)


def schedule_put_change(
    *, name: Argument, expected: Argument, definition: Argument, state: Argument, due: Argument
) -> tuple[Argument, ...]:
    return (name, expected, definition, state, due)


def schedule_remove(*, schedules: str, states: str, ticks: str, runs: str, names: Iterable[Argument]) -> Call:
    return "schedules/schedule_remove", (schedules, states, ticks, runs), (*names,)


def ticks(
    *, ticks: Iterable[str], ahead: Argument, most_due: Argument, most_soon: Argument, seen: Iterable[Argument]
) -> Call:
    return "schedules/ticks", (*ticks,), (ahead, most_due, most_soon, *seen)
