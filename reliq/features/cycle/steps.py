"""The steps of a queue's cycle."""

from collections.abc import Sequence

from reliq import ops
from reliq.errors import InvalidMessage, QueueFull
from reliq.features.cycle import ops as own
from reliq.features.cycle.ops import Entered, Member
from reliq.model.element import group_of
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage, check_key
from reliq.ops import Steps
from reliq.protocol.announcing import announce_if_possible
from reliq.protocol.producer import ProducerPool
from reliq.runtime.pieces import pieces

_ADDED, _REMOVED = 40, 250  #: members a call: so many take Redis about two milliseconds


class CycleSteps:
    """The operations on a cycle, as steps."""

    def __init__(self, keys: QueueKeys, pool: ProducerPool) -> None:
        self._keys = keys
        self._pool = pool
        self._clock = pool.clock

    def add(self, members: Sequence[str]) -> Steps[int]:
        """Add members; return how many of them were new."""
        new = 0
        entrants = [self._entrant(member) for member in dict.fromkeys(_checked(members))]
        yield from announce_if_possible(self._keys.queue)
        for some in pieces(entrants, _ADDED):
            answer = yield from self._add(some)
            if answer.status == "full":
                length, most, unit = answer.rest
                raise QueueFull(f"queue {self._keys.queue!r} holds {length} of at most {most} {unit}; {new} entered")
            new += sum(answer.rest)
        return new

    def _add(self, entrants: Sequence[Member]) -> Steps[Entered]:
        """Call the script once."""
        with self._pool.session() as session:
            answer = yield from ops.one(own.cycle_add(self._keys, entrants, session.producer, session.sequence))
            self._clock.note(answer.now, session.called_at)
            return answer

    def _entrant(self, member: str) -> Member:
        message = NewMessage(member, key=member)
        message.in_cycle = True
        return Member(member, group_of(member), message.id, message.element(self._clock.now()))

    def remove(self, members: Sequence[str]) -> Steps[int]:
        """Remove members; return how many of them were in the cycle."""
        removed = 0
        groups = [group_of(member) for member in _checked(members)]
        for some in pieces(groups, _REMOVED):
            removed += sum((yield own.cycle_remove(self._keys, some, self._keys.new_call())))
        return removed

    def members(self) -> Steps[list[str]]:
        found = yield ops.read_hash(self._keys.cycle)
        return sorted(entry.partition(" ")[2] for entry in found.values())


def _checked(members: Sequence[str]) -> Sequence[str]:
    if not members:
        raise InvalidMessage("no member was given")
    return [check_key(member, "member") for member in members]
