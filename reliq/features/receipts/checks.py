"""What callers give for messages in flight, checked before anything is sent."""

from collections.abc import Iterable

from reliq.contract import values
from reliq.errors import InvalidSetting
from reliq.features.receipts.model import ReceiveRequest

LONGEST = 12 * 3600.0  #: seconds for which a message may be invisible


def check_wanted(wanted: ReceiveRequest) -> ReceiveRequest:
    """Return what a receive asks for; raises InvalidSetting."""
    values.whole(wanted.limit, "limit", 1, values.MAX_BATCH)
    if wanted.most_receives is not None:
        values.whole(wanted.most_receives, "most_receives", 1, values.MAX_COUNT)
    if wanted.most_in_flight is not None:
        values.whole(wanted.most_in_flight, "most_in_flight", 1, 10**12)
    if wanted.attempt is not None and not values.unicode_text(wanted.attempt, "attempt"):
        raise InvalidSetting("attempt is empty: give an id of this receive, or None")
    return wanted


def checked_visibility(value: values.Duration) -> float:
    """Return the seconds of a visibility; raises InvalidSetting."""
    return values.seconds(value, "visibility", longest=LONGEST)


def checked_changes(changes: object) -> list[tuple[str, float]]:
    """Return receipts, each with the seconds of its visibility; raises InvalidSetting."""
    try:
        pairs = [(receipt, visibility) for receipt, visibility in changes]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InvalidSetting(f"changes is {changes!r}: give a list of receipts, each with its visibility") from None
    receipts = checked_receipts([receipt for receipt, _ in pairs])
    return [(one, checked_visibility(seconds)) for one, (_, seconds) in zip(receipts, pairs, strict=True)]


def checked_receipts(receipts: object) -> list[str]:
    """Return the receipts; raises InvalidSetting."""
    if not isinstance(receipts, list) and (isinstance(receipts, str) or not isinstance(receipts, Iterable)):
        raise InvalidSetting(f"receipts is {receipts!r}: give them in a list")
    checked = list(receipts)
    for one in checked:
        if not isinstance(one, str):
            raise InvalidSetting(f"a receipt is {one!r}: give the `receipt` of a received message")
    return checked
