"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call, Record, Records, flat


def biography(keys: NamedKeys, *, id: Argument, start: Argument, most: float) -> Call:
    return "tracking/biography", (keys.history,), (id, start, most)


def forget_tracked(keys: NamedKeys, *, cursor: Argument, limit: Argument) -> Call:
    return "tracking/forget_tracked", (keys.config, keys.followed), (cursor, limit)


def search(
    keys: NamedKeys, *, key: str, start: float, most: float, most_bytes: float, before: float, text: Argument,
    shown: float, largest: float, around: float, sorted: bool,
) -> Call:
    return (
        "tracking/search",
        (keys.bodies, key),
        (start, most, most_bytes, before, text, shown, largest, around, int(sorted)),
    )


def sweep(
    keys: NamedKeys, *, key: str, start: Argument, most: float, most_bytes: float, removals: float, kind: Argument,
    wanted: Argument, headers: Records, call: str | None = None,
) -> Call:
    return (
        "tracking/sweep",
        (*keys.places, keys.delayed, keys.index, key, *(() if call is None else (call,))),
        (start, most, most_bytes, removals, kind, wanted, *flat(headers)),
    )


def sweep_header(*, name: Argument, value: Argument, pair: Argument) -> Record:
    return (name, value, pair)


def tell(keys: NamedKeys, *, processing: str, id: Argument, sent: float, kept: Argument) -> Call:
    return "tracking/tell", (keys.told, processing), (id, sent, kept)
