"""Messages that Redis would not take back: their new element is larger than one argument of a command may be."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from reliq import ops
from reliq.errors import ReliqError
from reliq.ops import Destination, Move, Revival, Steps
from reliq.ops.schema import Counter

_ALWAYS_TAKEN = 1024 * 1024  #: bytes: the smallest proto-max-bulk-len that a server can have
_USUALLY_TAKEN = 512 * 1024 * 1024  #: bytes: the default of proto-max-bulk-len, for servers that do not tell theirs


class _Change(Protocol):
    @property
    def again(self) -> bytes:
        """The new element of the message."""


C = TypeVar("C", bound=_Change)


def takeable(moves: Sequence[Move]) -> Steps[Sequence[Move]]:
    """Return the moves; a message that Redis would refuse with its changes becomes a dead letter as it is."""
    return (yield from fitting(moves, _buried_as_it_is))


def revivable(revivals: Sequence[Revival]) -> Steps[Sequence[Revival]]:
    """Return the revivals; a dead letter that Redis would refuse with its changes comes back as it is."""
    return (yield from fitting(revivals, lambda one: replace(one, again=one.element)))


def fitting(changes: Sequence[C], instead: Callable[[C], C]) -> Steps[Sequence[C]]:
    """Return the changes; `instead` returns what replaces one that Redis would refuse."""
    if all(len(one.again) <= _ALWAYS_TAKEN for one in changes):
        return changes
    most = yield from _largest_argument()
    return [one if len(one.again) <= most else instead(one) for one in changes]


def _largest_argument() -> Steps[int]:
    """Read how many bytes one argument of a command may have."""
    try:
        found: dict[str, str] = yield ops.server_setting("proto-max-bulk-len")
    except ReliqError:  # CONFIG is not allowed
        return _USUALLY_TAKEN
    return int(found.get("proto-max-bulk-len", _USUALLY_TAKEN))


def _buried_as_it_is(move: Move) -> Move:
    counter = move.counter if move.destination is Destination.DEAD else Counter.dead("decode")
    return replace(move, destination=Destination.DEAD, counter=counter, again=move.element, delay=0.0)
