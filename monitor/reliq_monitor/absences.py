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
        self.names: frozenset[str] | None = None  #: of all connections; None: not known, so absences are not judged

    def forget(self) -> None:
        self._absent, self._looked_at = {}, {}

    def keep(self, queues: Container[str]) -> None:
        """Forget those of all other queues."""
        for seen in (self._absent, self._looked_at):
            for queue in [queue for queue in seen if queue not in queues]:
                del seen[queue]

    def __bool__(self) -> bool:
        return any(self._absent.values())

    def look(self, queue: str, consumers: Iterable[str], now: int) -> dict[str, int]:
        """Note who is missing; return those that are for good, with when they were last seen, ms.

        These were missing in two looks running, and for the whole grace.
        """
        if self.names is None:
            return {}
        before, last_look = self._absent.get(queue, {}), self._looked_at.get(queue, now)
        absent: dict[str, _Absence] = {}
        for consumer in consumers:
            if is_connected(consumer) and connection_name(consumer) not in self.names:
                absent[consumer] = before.get(consumer) or _Absence(time.monotonic(), last_look)
                absent[consumer].looks += 1
        self._absent[queue], self._looked_at[queue] = absent, now
        longest = time.monotonic() - self._grace
        return {name: one.last_seen for name, one in absent.items() if one.looks >= 2 and one.since <= longest}
