"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call, Record, Records, flat


def change_delay(keys: NamedKeys, *, changes: Records) -> Call:
    return "receipts/change_delay", (keys.delayed, keys.index), (*flat(changes),)


def change_delay_change(*, id: Argument, due: Argument) -> Record:
    return (id, due)


def delete_flying(keys: NamedKeys, *, late: bool, names: Iterable[Argument]) -> Call:
    return (
        "receipts/delete_flying",
        (keys.messages, keys.waiting, keys.active, keys.cycle, keys.counters, keys.config, keys.bodies, keys.received,
        keys.receipts, keys.early),
        (int(late), *names),
    )


def delete_received(keys: NamedKeys, *, late: bool, handles: Records) -> Call:
    return (
        "receipts/delete_received",
        (*keys.places, keys.received, keys.receipts, keys.early),
        (int(late), *flat(handles)),
    )


def delete_received_handle(*, name: Argument, key_group: Argument) -> Record:
    return (name, key_group)


def keep_received(keys: NamedKeys, *, attempt: str, visible: float, first: float, limit: float) -> Call:
    return "receipts/keep_received", (keys.received, keys.receipts, attempt), (visible, first, limit)


def purge_received(keys: NamedKeys, *, limit: float, ids: Iterable[Argument], call: str | None = None) -> Call:
    return (
        "receipts/purge_received",
        (*keys.places, keys.received, keys.receipts, keys.early, *(() if call is None else (call,))),
        (limit, *ids),
    )


def receive(
    keys: NamedKeys, *, processing: str, visible: float, kept: float, consumer: Argument, moves: Records,
    attempt: str | None = None,
) -> Call:
    return (
        "receipts/receive",
        (*keys.places, processing, keys.received, keys.receipts, keys.early, *keys.slots, keys.flow, keys.buckets,
        *(() if attempt is None else (attempt,))),
        (visible, kept, consumer, *flat(moves)),
    )


def receive_move(*, former: Argument, again: Argument, name: Argument, line: Argument, mark: Argument) -> Record:
    return (former, again, name, line, mark)


def receive_again(keys: NamedKeys, *, attempt: str, visible: float) -> Call:
    return "receipts/receive_again", (keys.received, keys.receipts, attempt), (visible,)


def receive_ready(
    keys: NamedKeys, *, visible: float, limit: float, room: float, most: float, runs: bool, nonces: Argument,
) -> Call:
    return (
        "receipts/receive_ready",
        (keys.messages, keys.waiting, keys.active, keys.cycle, keys.counters, keys.config, keys.bodies, keys.received,
        keys.receipts, keys.early),
        (visible, limit, room, most, int(runs), nonces),
    )


def return_due(keys: NamedKeys, *, limit: Argument) -> Call:
    return "receipts/return_due", (*keys.places, keys.received, keys.receipts, keys.early), (limit,)


def set_visibility(keys: NamedKeys, *, late: bool, changes: Records, call: str | None = None) -> Call:
    return (
        "receipts/set_visibility",
        (*keys.places, keys.received, keys.receipts, keys.early, *(() if call is None else (call,))),
        (int(late), *flat(changes)),
    )


def set_visibility_change(*, name: Argument, visible: Argument, key_group: Argument) -> Record:
    return (name, visible, key_group)
