"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable, Sequence

from reliq.ops.request import Argument, Call


def delete_received(
    *, places: Sequence[str], received: str, receipts: str, early: str, late: bool, handles: Iterable[Argument]
) -> Call:
    return "receipts/delete_received", (*places, received, receipts, early), (int(late), *handles)


def delete_received_handle(*, name: Argument, key_group: Argument) -> tuple[Argument, ...]:
    return (name, key_group)


def keep_received(*, received: str, receipts: str, attempt: str, visible: float, first: float, limit: float) -> Call:
    return "receipts/keep_received", (received, receipts, attempt), (visible, first, limit)


def purge_received(
    *, places: Sequence[str], received: str, receipts: str, early: str, limit: float, ids: Iterable[Argument]
) -> Call:
    return "receipts/purge_received", (*places, received, receipts, early), (limit, *ids)


def receive(
    *,
    places: Sequence[str],
    processing: str,
    received: str,
    receipts: str,
    early: str,
    slots: Sequence[str],
    flow: str,
    buckets: str,
    visible: float,
    kept: float,
    consumer: Argument,
    moves: Iterable[Argument],
    attempt: str | None = None,
) -> Call:
    return (
        "receipts/receive",
        (
            *places,
            processing,
            received,
            receipts,
            early,
            *slots,
            flow,
            buckets,
            *(() if attempt is None else (attempt,)),
        ),
        (visible, kept, consumer, *moves),
    )


def receive_move(
    *, former: Argument, again: Argument, name: Argument, line: Argument, mark: Argument
) -> tuple[Argument, ...]:
    return (former, again, name, line, mark)


def receive_again(*, received: str, receipts: str, attempt: str, visible: float) -> Call:
    return "receipts/receive_again", (received, receipts, attempt), (visible,)


def return_due(*, places: Sequence[str], received: str, receipts: str, early: str, limit: Argument) -> Call:
    return "receipts/return_due", (*places, received, receipts, early), (limit,)


def set_visibility(
    *, places: Sequence[str], received: str, receipts: str, early: str, late: bool, changes: Iterable[Argument]
) -> Call:
    return "receipts/set_visibility", (*places, received, receipts, early), (int(late), *changes)


def set_visibility_change(*, name: Argument, visible: Argument, key_group: Argument) -> tuple[Argument, ...]:
    return (name, visible, key_group)
