"""Upcoming: ticks of schedules that are ready to be sent, with the estimate of the server's clock that says when."""

import heapq
import math
import time
from collections.abc import Container
from dataclasses import dataclass

import msgspec

from reliq.features.schedules.model import Run, State, Ticks, ticks_now
from reliq.features.schedules.ops import Fire, Stored
from reliq.model.keys import QueueKeys
from reliq.ops import StoredBody
from reliq.protocol.batch import encoded

MOST = 1000  #: messages in one call


@dataclass(frozen=True, slots=True)
class Prepared:
    """A tick that is ready to be sent: the schedule as it was read, and the script's arguments."""

    keys: QueueKeys
    stored: Stored
    fire: Fire


def prepared(keys: QueueKeys, stored: Stored, now: int, most: int = MOST) -> Prepared | None:
    """Prepare the ticks of a schedule that are due at `now`, else its next one; None: it has none, or is changing.

    `most`: of the ticks that are due; the others follow.
    """
    definition, state = stored.definition, stored.state
    if state.tick is None or state.wakes is None or state.revision != definition.revision:
        return None
    if state.wakes > now:
        ticks = Ticks([state.tick], 0, definition.next_tick(state.tick))
    else:
        ticks = ticks_now(definition, state.tick, now)
        if len(ticks.send) > most:
            ticks = Ticks(ticks.send[:most], ticks.missed, ticks.send[most])
    latest = ticks.send[-1] if ticks.send else state.tick
    messages: list[tuple[bytes, bytes]] = []
    for tick in ticks.send:
        bodies: list[StoredBody] = []
        element = encoded(definition.message(definition.message_id(tick)), max(now, state.wakes), bodies)
        messages.append((element, bodies[0].body if bodies else b""))
    following = State.at(definition, ticks.following, state)
    following = msgspec.structs.replace(
        following, fired=state.fired + len(messages), missed=state.missed + ticks.missed
    )  # fmt: skip
    identity = definition.message_id(latest) if messages else ""
    run = Run(latest, definition.due(latest), identity, len(messages), ticks.missed)
    fire = Fire(definition.name, stored.raw_state, following, state.wakes, run, messages)
    fire.packed  # noqa: B018  encoded now, not at the time of the tick
    return Prepared(keys, stored, fire)


class Upcoming:
    """What is prepared, in the order in which it is due."""

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, str], list[Prepared]] = {}  #: by due, in ms, and queue
        self._order: list[tuple[int, str]] = []  #: a heap of its keys

    @property
    def first(self) -> float:
        """When the next one is due, ms; infinite without any."""
        return self._order[0][0] if self._order else math.inf

    def add(self, one: Prepared) -> None:
        at = one.fire.due, one.keys.queue
        if at not in self._ticks:
            self._ticks[at] = []
            heapq.heappush(self._order, at)
        self._ticks[at].append(one)

    def take(self, now: float, stale: float, most: int) -> list[Prepared]:
        """Take about `most` that are due, without those that have been due for more than `stale` ms."""
        due = list[Prepared]()
        while self.first <= now and len(due) < most:
            at = heapq.heappop(self._order)
            some = self._ticks.pop(at)
            due += some if now - at[0] <= stale else []
        return due

    def keep(self, queues: Container[str]) -> None:
        """Forget the ticks of all other queues."""
        if any(queue not in queues for _, queue in self._order):
            self._ticks = {at: some for at, some in self._ticks.items() if at[1] in queues}
            self._order = sorted(self._ticks)  # a sorted list is a heap


class ServerTime:
    """An estimate of the server's clock, ms: a little behind it rather than ahead."""

    def __init__(self) -> None:
        self._ahead = -math.inf  #: ms that it is ahead of time.monotonic()

    def now(self) -> float:
        return time.monotonic() * 1000 + self._ahead

    def note(self, now: int, early: bool = False) -> None:
        """Note the time of a reply: the one that took least is the best. `early`: the estimate was ahead of it."""
        ahead = now - time.monotonic() * 1000
        self._ahead = ahead if early else max(ahead, self._ahead - 1.0)
