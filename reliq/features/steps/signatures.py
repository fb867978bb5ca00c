"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call


def leave_record(keys: NamedKeys, *, id: Argument, kept: float) -> Call:
    return "steps/leave_record", (keys.followed, keys.waits), (id, kept)


def park(
    keys: NamedKeys, *, lease: str, processing: str, id: Argument, name: Argument, position: Argument, sent: Argument,
    signal: Argument, timeout: Argument, again: Argument, frees: bool, uncounted: bool,
) -> Call:
    return (
        "steps/park",
        (*keys.places, keys.parked, keys.waits, keys.told, lease, processing, *keys.slots),
        (id, name, position, sent, signal, timeout, again, int(frees), int(uncounted)),
    )


def put_record(
    keys: NamedKeys, *, brought: str, id: Argument, head: Argument, kept: float, fields: Iterable[Argument],
) -> Call:
    return "steps/put_record", (keys.followed, keys.config, keys.waits, brought), (id, head, kept, *fields)


def record(
    keys: NamedKeys, *, lease: str, processing: str, id: Argument, name: Argument, position: Argument, sent: Argument,
    nonce: Argument, number: float, entry: Argument,
) -> Call:
    return (
        "steps/record",
        (keys.followed, keys.config, lease, processing),
        (id, name, position, sent, nonce, number, entry),
    )


def recorded(keys: NamedKeys, *, id: Argument) -> Call:
    return "steps/recorded", (keys.followed,), (id,)


def remove_parked(keys: NamedKeys, *, counter: Argument, ids: Iterable[Argument], call: str | None = None) -> Call:
    return (
        "steps/remove_parked",
        (*keys.places, keys.parked, keys.waits, *(() if call is None else (call,))),
        (counter, *ids),
    )


def signal(
    keys: NamedKeys, *, id: Argument, signal: Argument, value: Argument, early: Argument, counted: bool,
    call: str | None = None,
) -> Call:
    return (
        "steps/signal",
        (*keys.places, keys.parked, keys.waits, *(() if call is None else (call,))),
        (id, signal, value, early, int(counted)),
    )


def sleep(
    keys: NamedKeys, *, lease: str, processing: str, id: Argument, name: Argument, position: Argument, sent: Argument,
    nonce: Argument, number: float, entry: Argument, delay: float, again: Argument, counter: Argument, frees: bool,
    uncounted: bool,
) -> Call:
    return (
        "steps/sleep",
        (*keys.places, keys.delayed, keys.index, keys.told, lease, processing, *keys.slots),
        (id, name, position, sent, nonce, number, entry, delay, again, counter, int(frees), int(uncounted)),
    )


def unpark_due(keys: NamedKeys, *, limit: float) -> Call:
    return "steps/unpark_due", (*keys.places, keys.parked, keys.waits), (limit,)
