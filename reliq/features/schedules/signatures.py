"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call, Record, Records, flat


def fates(keys: NamedKeys, *, lists: Iterable[str], most: float, ids: Iterable[Argument]) -> Call:
    return (
        "schedules/fates",
        (*keys.places, keys.delayed, keys.dead, keys.index, keys.receipts, keys.parked, *lists),
        (most, *ids),
    )


def fire(keys: NamedKeys, *, schedules: Records) -> Call:
    return (
        "schedules/fire",
        (*keys.places, keys.delayed, keys.ticks, keys.schedule_states, keys.runs),
        (*flat(schedules),),
    )


def fire_schedule(
    *, name: Argument, expected: Argument, state: Argument, next_due: Argument, due: Argument, run: Argument,
    missed: Argument, count: Argument, messages: Records,
) -> Record:
    return (name, expected, state, next_due, due, run, missed, count, *flat(messages))


def fire_message(*, element: Argument, body: Argument) -> Record:
    return (element, body)


def schedule_index(*, owners: str, changes: Records) -> Call:
    return "schedules/schedule_index", (owners,), (*flat(changes),)


def schedule_index_change(*, name: Argument, expected: Argument, queue: Argument) -> Record:
    return (name, expected, queue)


def schedule_put(keys: NamedKeys, *, changes: Records) -> Call:
    return "schedules/schedule_put", (keys.schedules, keys.schedule_states, keys.ticks), (*flat(changes),)


def schedule_put_change(
    *, name: Argument, expected: Argument, definition: Argument, state: Argument, due: Argument,
) -> Record:
    return (name, expected, definition, state, due)


def schedule_ran(keys: NamedKeys, *, name: Argument, run: Argument) -> Call:
    return "schedules/schedule_ran", (keys.schedules, keys.runs), (name, run)


def schedule_remove(keys: NamedKeys, *, name: Argument, expected: Argument, call: str | None = None) -> Call:
    return (
        "schedules/schedule_remove",
        (keys.schedules, keys.schedule_states, keys.ticks, keys.runs, *(() if call is None else (call,))),
        (name, expected),
    )


def ticks(
    *, ticks: Iterable[str], ahead: Argument, most_due: Argument, most_soon: Argument, seen: Iterable[Argument],
) -> Call:
    return "schedules/ticks", (*ticks,), (ahead, most_due, most_soon, *seen)
