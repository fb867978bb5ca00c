"""How an operator's call treats a part of a Redis Cluster that does not answer: it shows the rest and names the part.

Inside of `looking()` a read is answered with what is seen, and what is missing is noted; a node that does not answer is
given up at once, and not asked again for some seconds. Outside of it a read raises the error.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from reliq.errors import OutcomeUnknown, RedisUnavailable, RedisUnsuitable, ReliqError
from reliq.runtime.pieces import grouped

PATIENCE = 0.2  #: seconds for which a call to a cluster is repeated while an operator waits
_LISTED = 20  #: names in a sentence


@dataclass(frozen=True, slots=True)
class Unseen:
    """A part that did not answer."""

    what: str  #: such as "queue orders"
    node: str  #: host:port; empty if it is not known
    why: str
    moving: bool = False  #: whether the node is there, and only what is asked for is moving to another one


class Missing(dict[str, Unseen]):
    """What did not answer, by what it is."""

    def note(self, what: str, error: ReliqError) -> None:
        moving = isinstance(error, RedisUnavailable) and error.moving
        self.setdefault(what, Unseen(what, error.node, str(error), moving))

    @property
    def nodes(self) -> list[str]:
        """Return the nodes that do not answer."""
        return sorted({one.node for one in self.values() if one.node and not one.moving})

    def lines(self) -> list[str]:
        """Return a sentence for each reason."""
        by_reason = grouped((one.why, one.what) for one in self.values())
        return [f"{why}; not seen: {_listed(names)}" for why, names in by_reason.items()]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


_missing: ContextVar[Missing | None] = ContextVar("missing", default=None)


@contextmanager
def looking() -> Iterator[Missing]:
    """Answer reads with what is seen; return where what is missing will be noted."""
    missing = Missing()
    token = _missing.set(missing)
    try:
        yield missing
    finally:
        _missing.reset(token)


@contextmanager
def seeing_all(needed: bool) -> Iterator[None]:
    """If it is needed, read as outside of `looking()`: what is not seen may be what forbids to go on."""
    token = _missing.set(None if needed else _missing.get())
    try:
        yield
    finally:
        _missing.reset(token)


def missing_now() -> Missing | None:
    """Return where the operator's command notes what is missing; None outside of one."""
    return _missing.get()


def is_away(error: Exception) -> bool:
    """Whether an error says that a part of Redis did not answer, and not that it refuses for good."""
    return isinstance(error, (RedisUnavailable, OutcomeUnknown)) and not isinstance(error, RedisUnsuitable)


def unseen(what: str, error: ReliqError) -> bool:
    """Note a part that did not answer; return False if its error is to be raised instead.

    An error that names no node is of the whole of Redis.
    """
    missing = _missing.get()
    if missing is None or not error.node or not is_away(error):
        return False
    missing.note(what, error)
    return True


def note_missing(more: Missing) -> None:
    """Note what was missing at an earlier look, whose answers are shown."""
    missing = _missing.get()
    if missing is not None:
        missing.update(more)
