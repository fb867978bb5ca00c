"""From which homes of its queue a consumer claims: one that fails is left out for a while, and stops no other."""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from reliq import ops
from reliq.errors import OutcomeUnknown, QueueFull, RedisUnavailable, ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Steps, Together, at_most
from reliq.protocol.consumer import ConsumerSteps
from reliq.runtime.pieces import grouped

log = logging.getLogger("reliq.partitions")

PATIENCE = 0.25  #: seconds for which a claim from one of several homes is repeated: the others wait meanwhile
_AGAIN = 5.0  #: seconds between two tries whether one of the failing homes works again
_TRUSTED = 0.2  #: seconds for which claims go to the homes that had messages, before all are looked at again

_FAILURES = (RedisUnavailable, OutcomeUnknown, QueueFull)

T = TypeVar("T")
NodeOf = Callable[[str], Any]  #: returns the node of a key, as far as it is known


class Failing:
    """The homes of a queue that could not be claimed from. Every few seconds one of them is tried again."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._next_try = 0.0

    def __contains__(self, home: str) -> bool:
        return home in self._names

    def note(self, home: str, error: ReliqError) -> None:
        """Note that a home fails."""
        if home not in self._names:
            log.warning("partition=%s is skipped until it works again: %s", home, error)
            self._names.add(home)
        self._next_try = time.monotonic() + _AGAIN

    def works(self, home: str) -> None:
        """Note that a home works: if it failed, others on its node may work again as well."""
        if home in self._names:
            log.warning("partition=%s works again", home)
            self._names.clear()

    def due(self, homes: Sequence[QueueKeys]) -> bool:
        """Whether it is time to try again one of these homes, or whether none of them works."""
        if not self._names:
            return False
        return time.monotonic() >= self._next_try or all(one.queue in self._names for one in homes)

    def divided(self, homes: Sequence[QueueKeys]) -> tuple[list[QueueKeys], list[QueueKeys]]:
        """Return the homes to ask, and the one that is tried again, if it is time; all if all fail."""
        out = [one for one in homes if one.queue in self._names]
        if len(out) in (0, len(homes)):
            return [*homes], []
        there = [one for one in homes if one.queue not in self._names]
        if not self.due(homes):
            return there, []
        self._next_try = time.monotonic() + _AGAIN
        return there, [random.choice(out)]


class ReadyCounts:
    """How many messages the latest look has found in the homes of a queue, less those claimed since.

    It is trusted for a short while: so a queue with many messages is not looked at before each claim.
    """

    def __init__(self) -> None:
        self._counts: Mapping[str, int] = {}
        self._until = 0.0

    def note(self, counts: Mapping[str, int]) -> None:
        self._counts, self._until = counts, time.monotonic() + _TRUSTED

    def claimed(self, home: str, count: int) -> None:
        """Note that a claim got so many; a home that gave none is not asked again before the next look."""
        self._counts = {**self._counts, home: self._counts.get(home, 0) - count if count else 0}

    def trusted(self) -> Mapping[str, int]:
        """Return how many are left in which homes; nothing if the look was too long ago."""
        return self._counts if time.monotonic() < self._until else {}


class HomeLook:
    """One look of a consumer at homes of its queue; `keys`: those to claim from now, in this order."""

    def __init__(self, every: Sequence[QueueKeys], failing: Failing, ready: ReadyCounts) -> None:
        self.keys = every
        self._every = every
        self._failing = failing
        self._ready = ready
        self._failure: ReliqError | None = None

    def recall(self, turn: int, owes: Callable[[str], bool]) -> None:
        """Find the homes that have messages by what the latest look has found; none if that is not trusted any more."""
        self._choose(self._ready.trusted(), turn, owes)

    def look(self, turn: int, owes: Callable[[str], bool], node_of: NodeOf | None = None) -> Steps[None]:
        """Find the homes that have messages now."""
        counts = (yield from ready_counts(self._every, self._failing, node_of)) if self._every else {}
        self._ready.note(counts)
        self._choose(counts, turn, owes)

    def _choose(self, counts: Mapping[str, int], turn: int, owes: Callable[[str], bool]) -> None:
        """Choose those that have messages, or of which one `owes` some: another one comes first each turn."""
        there = [one for one in rotated(self._every, turn) if one.queue in counts]
        self.keys = [one for one in there if counts[one.queue] > 0 or owes(one.queue)]

    def got(self, keys: QueueKeys, messages: Sequence[Any]) -> None:
        """Note what a home has given."""
        self._ready.claimed(keys.queue, len(messages))

    @contextmanager
    def trying(self, keys: QueueKeys) -> Iterator[None]:
        """Claim from a home: a failure of it is noted, and stops nothing."""
        try:
            yield
        except _FAILURES as error:
            self._failure = error
            self._failing.note(keys.queue, error)
            self._ready.claimed(keys.queue, 0)
        else:
            self._failing.works(keys.queue)

    def end(self) -> None:
        """Raise the latest failure if all homes fail."""
        if self._failure is not None and all(one.queue in self._failing for one in self._every):
            raise self._failure


def to_look_at(
    homes: Sequence[QueueKeys], failing: Failing, known_empty: Callable[[QueueKeys], bool]
) -> Sequence[QueueKeys]:
    """Return the homes that may have messages: all if it is time to try again one that fails."""
    if failing.due(homes):
        return homes
    return [one for one in homes if one.queue not in failing and not known_empty(one)]


def from_any(
    every: Sequence[QueueKeys],
    failing: Failing,
    ready: ReadyCounts,
    claim: Callable[[QueueKeys], Steps[list[T]]],
    owes: Callable[[str], bool] = lambda _: False,
) -> Steps[list[T]]:
    """Claim from the homes that have messages, a random one first, until one gives some; raises only if all fail."""
    look, turn = HomeLook(every, failing, ready), random.randrange(max(1, len(every)))
    look.recall(turn, owes)
    if not (given := (yield from _first_given(look, claim))):
        yield from look.look(turn, owes)
        given = yield from _first_given(look, claim)
    if not given:
        look.end()
    return given


def _first_given(look: HomeLook, claim: Callable[[QueueKeys], Steps[list[T]]]) -> Steps[list[T]]:
    for keys in look.keys:
        given: list[T] = []
        with look.trying(keys):
            given = yield from claim(keys)
            look.got(keys, given)
        if given:
            return given
    return []


def claim_within(consumer: ConsumerSteps, limit: int, timeout: float = 0.0) -> Steps[list[Message]]:
    """Claim up to `limit` messages, and wait for them at most `timeout` seconds.

    After a lost answer once more: that reads back what the first call has moved.
    """
    consumer.end_lost_life()
    try:
        return (yield from (consumer.wait(limit, timeout) if timeout else consumer.claim(limit)))
    except OutcomeUnknown:
        return (yield from (consumer.wait(limit, timeout) if timeout else consumer.claim(limit)))


def ready_counts(homes: Sequence[QueueKeys], failing: Failing, node_of: NodeOf | None = None) -> Steps[dict[str, int]]:
    """Return how many messages are ready in each of these homes, without those that fail.

    Raises RedisUnavailable if none can be read.
    """
    there, again = failing.divided(homes)
    counts = yield from _counts(there, node_of)
    if again:
        (tried,) = yield Together([_count(again)])
        counts |= {again[0].queue: tried} if isinstance(tried, ReliqError) else tried
    found = {name: count for name, count in counts.items() if not isinstance(count, ReliqError)}
    for name, count in counts.items():
        if isinstance(count, ReliqError):
            failing.note(name, count)
            if not found:
                raise count
        elif count == 0:  # else the claim shows whether it works
            failing.works(name)
    return found


def _counts(homes: list[QueueKeys], node_of: NodeOf | None) -> Steps[dict[str, int | ReliqError]]:
    """Count with one request; where that fails, by node, and where a slot is moving, by home.

    A node that has just failed is not asked again: one that is silent would be waited for twice.
    """
    found: dict[str, int | ReliqError] = {}
    try:
        return dict((yield from _count(homes)))
    except RedisUnavailable as error:
        nodes = {one.queue: node_of(one.messages) if node_of else one.queue for one in homes}
        if error.node and not error.moving:
            found |= {name: error for name, node in nodes.items() if _address(node) == error.node}
    by_node = grouped((nodes[one.queue], one) for one in homes if one.queue not in found)
    moving = yield from _ask_apart(by_node.values(), found)
    if moving:
        yield from _ask_apart([[one] for group in moving for one in group], found)
    return found


def _address(node: Any) -> str:
    """Return a node as errors name it; empty if it is not known."""
    return f"{node[0]}:{node[1]}" if isinstance(node, tuple) else ""


def _ask_apart(groups: Iterable[list[QueueKeys]], found: dict[str, int | ReliqError]) -> Steps[list[list[QueueKeys]]]:
    """Count each group with a request of its own; return those in which a slot is moving."""
    groups, moving = [*groups], []
    for group, counts in zip(groups, (yield Together([_count(one, retries=1) for one in groups])), strict=True):
        if isinstance(counts, ReliqError):
            found |= dict.fromkeys([one.queue for one in group], counts)
            if isinstance(counts, RedisUnavailable) and counts.moving and len(group) > 1:
                moving.append(group)
        else:
            found |= counts
    return moving


def _count(homes: Sequence[QueueKeys], retries: int = 0) -> Steps[dict[str, int]]:
    counts = yield [at_most(op, retries) for op in ops.ready_counts(homes)]
    return dict(zip([one.queue for one in homes], counts, strict=True))


def rotated(items: Sequence[T], turn: int) -> list[T]:
    """Return the items in their order, beginning with another one each turn."""
    first = turn % max(1, len(items))
    return [*items[first:], *items[:first]]
