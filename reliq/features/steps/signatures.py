"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable, Sequence

from reliq.ops.request import Argument, Call


def leave_record(*, followed: str, waits: str, id: Argument, kept: float) -> Call:
    return "steps/leave_record", (followed, waits), (id, kept)


def park(
    *,
    places: Sequence[str],
    parked: str,
    waits: str,
    told: str,
    lease: str,
    processing: str,
    slots: Sequence[str],
    id: Argument,
    name: Argument,
    position: Argument,
    sent: Argument,
    signal: Argument,
    timeout: Argument,
    again: Argument,
    frees: bool,
    uncounted: bool,
) -> Call:
    return (
        "steps/park",
        (*places, parked, waits, told, lease, processing, *slots),
        (id, name, position, sent, signal, timeout, again, int(frees), int(uncounted)),
    )


def put_record(
    *,
    followed: str,
    config: str,
    waits: str,
    brought: str,
    id: Argument,
    head: Argument,
    kept: float,
    fields: Iterable[Argument],
) -> Call:
    return "steps/put_record", (followed, config, waits, brought), (id, head, kept, *fields)


def record(
    *,
    followed: str,
    config: str,
    lease: str,
    processing: str,
    id: Argument,
    name: Argument,
    position: Argument,
    sent: Argument,
    nonce: Argument,
    number: float,
    entry: Argument,
) -> Call:
    return "steps/record", (followed, config, lease, processing), (id, name, position, sent, nonce, number, entry)


def recorded(*, followed: str, id: Argument) -> Call:
    return "steps/recorded", (followed,), (id,)


def remove_parked(
    *, places: Sequence[str], parked: str, waits: str, counter: Argument, ids: Iterable[Argument]
) -> Call:
    return "steps/remove_parked", (*places, parked, waits), (counter, *ids)


def signal(
    *, places: Sequence[str], parked: str, waits: str, id: Argument, signal: Argument, value: Argument, early: Argument
) -> Call:
    return "steps/signal", (*places, parked, waits), (id, signal, value, early)


def sleep(
    *,
    places: Sequence[str],
    delayed: str,
    index: str,
    told: str,
    lease: str,
    processing: str,
    slots: Sequence[str],
    id: Argument,
    name: Argument,
    position: Argument,
    sent: Argument,
    nonce: Argument,
    number: float,
    entry: Argument,
    delay: float,
    again: Argument,
    counter: Argument,
    frees: bool,
    uncounted: bool,
) -> Call:
    return (
        "steps/sleep",
        (*places, delayed, index, told, lease, processing, *slots),
        (id, name, position, sent, nonce, number, entry, delay, again, counter, int(frees), int(uncounted)),
    )


def unpark_due(*, places: Sequence[str], parked: str, waits: str, limit: float) -> Call:
    return "steps/unpark_due", (*places, parked, waits), (limit,)
