"""Where a published message goes: to a home of each bound queue, and to another one where that takes none."""

from collections.abc import Sequence
from typing import NamedTuple

from reliq.errors import RedisUnavailable, ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.model.partitions import bucket_of
from reliq.ops import Steps
from reliq.protocol.home import Home
from reliq.protocol.homes import LayoutWait, QueueHomes


class Destination:
    """One of the bound queues."""

    def __init__(self, homes: QueueHomes, message: NewMessage) -> None:
        self.homes = homes
        self.queue = homes.queue
        self.waits = False  #: whether the message waits in the home for others of its key, which the former one has
        self._bucket = bucket_of(message)
        self._layout_wait = LayoutWait(homes)
        self._refused: list[str] = []  #: homes that are not the home of its key
        self._unreachable: set[str] = set()

    @property
    def free(self) -> bool:
        """Whether the message has no key, so that any home of several may take it."""
        return self._bucket is None and self.homes.layout.count > 1

    def choose_home(self) -> Steps[Home]:
        """Return the home that the message is offered to: the first of its homes that has not refused it.

        Where all have, the layout is read again; raises RedisUnavailable when that has not helped for long.
        """
        if self.homes.current() is None:
            yield from self.homes.read()
        names = self._names()
        if not names:
            yield from self._layout_wait.look_again(1)
            self._refused.clear()
            self.waits = False
            names = self._names()
        return self.homes.named(names[0])

    def _names(self) -> list[str]:
        if self._bucket is not None:
            names = self.homes.layout.homes(self.queue, self._bucket)
            return [one for one in names if one not in self._refused]
        if self._refused:  # closed: the layout has changed
            return []
        names = self.homes.open_ones()
        return [one for one in names if one not in self._unreachable] or names

    def note_refusal(self, home: str, has_others: bool) -> None:
        """Note that a home is not the one of the message's key; `has_others`: it has others of that key."""
        self._refused.append(home)
        self.waits = self.waits or has_others

    def note_failure(self, home: str, error: ReliqError) -> bool:
        """Note that a home gave no answer; return whether another one may get the message."""
        if self.homes.layout.several:
            self.homes.note_away(home)
        if not (self.free and isinstance(error, RedisUnavailable)):
            return False
        self._unreachable.add(home)
        return self.homes.has_others(self._unreachable)


class Offer(NamedTuple):
    """The message, for one home of a queue."""

    to: Destination
    home: Home

    @property
    def keys(self) -> QueueKeys:
        return self.home.keys


Group = Sequence[Offer]  #: offers that one atomic step can carry out
