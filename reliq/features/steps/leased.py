"""Steps, sleeps and waits of a message that is leased over HTTP: between two calls all is in Redis."""

from typing import Final

from reliq.errors import InvalidMessage
from reliq.features.steps import ops as own
from reliq.features.steps.model import TIMED_OUT, Book, Entry, check_step_name, group_of, stored_signal
from reliq.features.steps.ops import Parting
from reliq.features.steps.steps import check_own, check_status, resting
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.ops.held import Hold
from reliq.ops.schema import Counter
from reliq.protocol.holds import of_lease

#: What an entry says of its step, by its kind.
states: Final = {"s": "done", "f": "failed", "r": "tried", "b": "begun", "z": "slept", "x": "again"}


class Leased:
    """A message of a lease. Its steps are found by their names alone: the order in which they are asked for is free."""

    def __init__(self, keys: QueueKeys, lease: str, identity: str) -> None:
        self._keys = keys
        self._lease = lease
        self._id = identity

    def entries(self) -> Steps[list[Entry]]:
        """Return what is recorded; raises LeaseLost, and InvalidMessage for the record of another message."""
        hold = yield from self._hold()
        return list((yield from self._book(hold)).entries)

    def step(self, name: str, result: object) -> Steps[tuple[bytes, bool]]:
        """Store a result, unless the step has one; return what is stored, and whether it was before."""
        hold = yield from self._hold()
        book, found = yield from self._entry(hold, check_step_name(name))
        if found.kind == "s":
            return found.value, True
        _check_unused(found, found.kind == "z")
        entry = found._replace(kind="s", value=stored_signal(result))
        check_status(hold.message, (yield own.record(hold, book.number(entry), entry.encoded())))
        return entry.value, False

    def sleep(self, name: str, seconds: float) -> Steps[str]:
        """Return "over" if the message has slept, "cancelled", or "sleeping": it sleeps from now on."""
        hold = yield from self._hold()
        book, found = yield from self._entry(hold, check_step_name(name))
        if found.kind == "z":
            return "over"
        _check_unused(found, found.kind != "x")
        entry, parting = found._replace(kind="z", value=b""), Parting(resting(hold.message))
        op = own.sleep(hold, book.number(entry), entry.encoded(), seconds, parting, Counter.SLEPT)
        if (status := (yield op)) == "cancelled":
            return "cancelled"
        check_status(hold.message, status)
        return "sleeping"

    def wait(self, signal: str, timeout: float | None) -> Steps[tuple[str, bytes | None]]:
        """Return "given" with the stored signal, "timed_out", "cancelled", or "waiting": it waits from now on."""
        hold = yield from self._hold()
        status, stored = yield own.park(
            hold, check_step_name(signal, "signal"), timeout, Parting(resting(hold.message))
        )
        if status == "given":
            return ("timed_out", None) if stored == TIMED_OUT else ("given", stored)
        if status == "cancelled":
            return status, None
        check_status(hold.message, status)
        return "waiting", None

    def _hold(self) -> Steps[Hold]:
        return (yield from of_lease(self._keys, self._lease, self._id))

    def _book(self, hold: Hold) -> Steps[Book]:
        book, recorded = Book(), (yield own.recorded(self._keys, self._id))
        check_own(hold.message, recorded)
        book.read(recorded)
        return book

    def _entry(self, hold: Hold, name: str) -> Steps[tuple[Book, Entry]]:
        book = yield from self._book(hold)
        there = [one for one in book.entries if group_of(one.name) == group_of(name)]
        return book, next((one for one in there if one.name == name), Entry("x", len(there) + 1, name))


def _check_unused(entry: Entry, is_used: bool) -> None:
    if is_used:
        raise InvalidMessage(
            f"{entry.name!r} of this message is {states[entry.kind]}: give each step and sleep a name of its own"
        )
