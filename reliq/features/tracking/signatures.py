"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable, Sequence

from reliq.ops.request import Argument, Call


def biography(*, history: str, id: Argument, start: Argument, most: float) -> Call:
    return "tracking/biography", (history,), (id, start, most)


def forget_tracked(*, config: str, followed: str, cursor: Argument, limit: Argument) -> Call:
    return "tracking/forget_tracked", (config, followed), (cursor, limit)


def search(
    *,
    bodies: str,
    key: str,
    start: float,
    most: float,
    most_bytes: float,
    before: float,
    text: Argument,
    shown: float,
    largest: float,
    around: float,
    sorted: bool,
) -> Call:
    return (
        "tracking/search",
        (bodies, key),
        (start, most, most_bytes, before, text, shown, largest, around, int(sorted)),
    )


def sweep(
    *,
    places: Sequence[str],
    delayed: str,
    index: str,
    key: str,
    start: Argument,
    most: float,
    most_bytes: float,
    removals: float,
    kind: Argument,
    wanted: Argument,
    headers: Iterable[Argument],
) -> Call:
    return "tracking/sweep", (*places, delayed, index, key), (start, most, most_bytes, removals, kind, wanted, *headers)


def sweep_header(*, name: Argument, value: Argument, pair: Argument) -> tuple[Argument, ...]:
    return (name, value, pair)


def tell(*, told: str, processing: str, id: Argument, kept: Argument) -> Call:
    return "tracking/tell", (told, processing), (id, kept)
