"""Absences: consumers that promised to keep a connection named after them, and have none."""

import time
from collections.abc import Container, Iterable
from dataclasses import dataclass

from reliq.model.keys import connection_name, is_connected


@dataclass(slots=True)
class _Absence:
    """A consumer without its connection."""

    since: float  #: by time.monotonic(): the first look in which it was missing
    last_seen: int  #: ms of the server's clock
    looks: int = 0


class Absences:
    """The consumers that were missing in the latest look at each queue. `grace`: seconds they have to return."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._absent: dict[str, dict[str, _Absence]] = {}  #: by queue and consumer
        self._looked_at: dict[str, int] = {}  #: by queue, ms of the server's clock
        self._names: frozenset[str] | None = None
        self._some = False  #: whether one was missing since the names were known

    def forget(self) -> None:
        self._absent, self._looked_at, self._some = {}, {}, False

    def begin(self, names: frozenset[str] | None) -> None:
        """Begin a scan with the names of all connections; None: they are not known, so absences are not judged."""
        self._names = names
        if names is not None:
            self._some = False

    def keep(self, queues: Container[str]) -> None:
        """Forget those of all other queues."""
        for seen in (self._absent, self._looked_at):
            for queue in [queue for queue in seen if queue not in queues]:
                del seen[queue]

    def __bool__(self) -> bool:
        """Whether one was missing in this scan; not one that is gone, whose queue may have no others to look at."""
        return self._some

    def look(self, queue: str, consumers: Iterable[str], now: int) -> dict[str, int]:
        """Note who is missing; return those that are for good, with when they were last seen, ms.

        These were missing in two looks running, and for the whole grace.
        """
        if self._names is None:
            return {}
        before, last_look = self._absent.get(queue, {}), self._looked_at.get(queue, now)
        absent: dict[str, _Absence] = {}
        for consumer in consumers:
            if is_connected(consumer) and connection_name(consumer) not in self._names:
                absent[consumer] = before.get(consumer) or _Absence(time.monotonic(), last_look)
                absent[consumer].looks += 1
        self._absent[queue], self._looked_at[queue] = absent, now
        self._some = self._some or bool(absent)
        longest = time.monotonic() - self._grace
        return {name: one.last_seen for name, one in absent.items() if one.looks >= 2 and one.since <= longest}
