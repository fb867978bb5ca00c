"""A cyclic queue: members that are visited in turn, for ever. Each has one message; its handler answers Again."""

from collections.abc import Sequence

from reliq import ops, settings
from reliq.errors import InvalidMessage, QueueFull
from reliq.keys import QueueKeys
from reliq.message import NewMessage, check_key, group_of
from reliq.ops import Entered, Member, Steps
from reliq.producer import Lanes
from reliq.store import Store


class CycleSteps:
    """What can be done to a cycle, without the doing."""

    def __init__(self, keys: QueueKeys, lanes: Lanes) -> None:
        self._keys = keys
        self._lanes = lanes
        self._clock = lanes.clock

    def add(self, members: Sequence[str]) -> Steps[int]:
        """How many of them were new."""
        new = 0
        entrants = [self._entrant(member) for member in dict.fromkeys(_checked(members))]
        yield ops.announce(self._keys.queue)
        for start in range(0, len(entrants), settings.BATCH_LARGEST):
            answer = yield from self._add(entrants[start : start + settings.BATCH_LARGEST])
            self._clock.note(answer.now)
            if answer.status == "full":
                length, most, unit = answer.rest
                raise QueueFull(f"queue {self._keys.queue!r} holds {length} of at most {most} {unit}; {new} entered")
            new += sum(answer.rest)
        return new

    def _add(self, entrants: Sequence[Member]) -> Steps[Entered]:
        """One call of the script."""
        lane = self._lanes.take()
        try:
            return (yield from ops.one(ops.cycle_add(self._keys, entrants, lane.producer, lane.sequence)))
        finally:
            self._lanes.give_back(lane)

    def _entrant(self, member: str) -> Member:
        message = NewMessage(member, key=member)
        message.in_cycle = True
        return Member(member, group_of(member), message.id, message.element(self._clock.now()))

    def remove(self, members: Sequence[str]) -> Steps[int]:
        """How many of them were in it."""
        removed = 0
        groups = [group_of(member) for member in _checked(members)]
        for start in range(0, len(groups), settings.BATCH_LARGEST):
            removed += sum((yield ops.cycle_remove(self._keys, groups[start : start + settings.BATCH_LARGEST])))
        return removed

    def members(self) -> Steps[list[str]]:
        found = yield ops.read_hash(self._keys.cycle)
        return sorted(entry.partition(" ")[2] for entry in found.values())


def _checked(members: Sequence[str]) -> Sequence[str]:
    if not members:
        raise InvalidMessage("no member was given")
    return [check_key(member, "member") for member in members]


class Cycle:
    """The members of a queue that are visited in turn, `queue.cycle`.

        accounts.cycle.add("ann", "bob")

        @app.handler("accounts")
        def poll(message):
            look_at(message.key)
            return reliq.Again(delay=5)

    A member leaves when it is removed, when its handler returns anything else (acked), or dies.
    """

    def __init__(self, store: Store, steps: CycleSteps) -> None:
        self._store = store
        self._steps = steps

    def add(self, *members: str) -> int:
        """Have them visited from now on; those who are in the cycle stay where they are. How many were new.

        Raises InvalidMessage, QueueFull, RedisUnavailable. May be repeated when the outcome is unknown.
        """
        return self._store.run(self._steps.add(members))

    def remove(self, *members: str) -> int:
        """No visit to them starts any more; how many were in the cycle."""
        return self._store.run(self._steps.remove(members))

    def members(self) -> list[str]:
        """Who is in the cycle, sorted."""
        return self._store.run(self._steps.members())
