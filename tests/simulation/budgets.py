"""Rules about rates: what claims take of the buckets of a queue and its keys, and how charges correct it.

Redis must know each bucket as the reference model does, after each step.
"""

from collections import defaultdict
from collections.abc import Iterator
from inspect import signature
from typing import Any

from reliq.model.element import group_of, limit_group_of
from reliq.model.keys import QueueKeys, logical_name, queue_of
from reliq.ops import Op
from reliq.ops.signatures import settle, settle_ack, settle_move
from tests.reference.limits import Bucket
from tests.simulation.books import Books
from tests.simulation.requests import ops_of
from tests.simulation.stories import Message, Story, Violation
from tests.simulation.world import World

#: The arguments of `settle`, and what it has of a message that is acked or moved, in order.
_SETTLE, _ACK, _MOVE = ([*signature(one).parameters] for one in (settle, settle_ack, settle_move))
_ARGUMENTS = _SETTLE[_SETTLE.index("lease_ms") :]
_EXACT = 2e-6  #: seconds; the server's clock has whole microseconds, and a float of the time since 1970 about as many


class Budgets:
    """The buckets of the queues with one partition."""

    def __init__(self, world: World, books: Books) -> None:
        self._world = world
        self._books = books
        self._buckets: dict[tuple[str, str], Bucket] = {}  #: by queue and group of a key; "": of the queue itself
        self._claimed: dict[tuple[str, str], list[int]] = defaultdict(list)  #: costs, of the latest step
        self._charging: list[Op[Any]] = []  #: those that it asks for
        self._not_started: set[Message] = set()  #: those that the latest step settles without a start
        self._returned: dict[tuple[str, str], int] = defaultdict(int)  #: costs that it gives back
        self._charged: dict[str, int] = {}  #: by the key in Redis: what a run was charged last

    def asked(self, request: Any) -> None:
        """A request is carried out next."""
        self._claimed.clear()
        scripts = [one for one in ops_of(request) if one.script]
        self._charging = [one for one in scripts if one.script and one.script.name == "charge"]
        settling = [one for one in scripts if one.script and one.script.name == "settle"]
        self._not_started = {message for one in settling for message in _not_started(one)}

    def claimed(self, message: Message, story: Story) -> None:
        """A message was claimed within the limits."""
        queue = message[0]
        for group in {"", _group_of(story)}:
            self._claimed[queue, group].append(story.cost)

    def check(self) -> None:
        """At the end of a step."""
        touched = set()
        for (queue, group), costs in self._claimed.items():
            bucket = self._bucket(queue, group)
            if bucket is None:
                continue
            if not bucket.admits(costs, self._now + _EXACT):
                there = bucket.tokens(self._now)
                raise Violation(f"messages of {queue} with costs {costs} are claimed, and there are {there} tokens")
            bucket.spend(sum(costs), self._now)
            touched.add((queue, group))
        self._claimed.clear()
        for (queue, group), cost in self._returned.items():
            bucket = self._bucket(queue, group)
            if bucket is not None:
                bucket.spend(-cost, self._now)
                touched.add((queue, group))
        self._returned.clear()
        for queue, group in sorted(touched):
            self._compare(queue, group)

    def charge(self) -> None:
        """A step was carried out, which perhaps charges runs."""
        for op in self._charging:
            for queue, group in sorted(self._charge(op)):
                self._compare(queue, group)

    def left(self, message: Message, story: Story) -> None:
        """A message has left processing: one that was not started gives back what its claim took."""
        if message not in self._not_started:
            return
        self._books.not_started(message[0])
        for group in {"", _group_of(story)}:
            self._returned[message[0], group] += story.cost

    def _charge(self, op: Op[Any]) -> set[tuple[str, str]]:
        config, _, _, charged, reserved, actual, group = map(str, op.command[3:10])
        queue = queue_of(config)
        if self._world.server.value(charged) != actual.encode():
            return set()  # it was refused
        more = int(actual) - self._charged.get(charged, int(reserved))
        self._charged[charged] = int(actual)
        touched = set()
        for one in {"", group}:
            bucket = self._bucket(queue, one)
            if bucket is not None and more:
                bucket.spend(more, self._now)
                touched.add((queue, one))
        return touched

    def _bucket(self, queue: str, group: str) -> Bucket | None:
        """Return a bucket; None if there is no such limit, or it is not known."""
        world, limits = self._world, self._world.limits[queue]
        rate = limits.get("key_rate" if group else "rate")
        if rate is None or world.restarted or world.layouts[queue].count > 1 or world.resized[queue]:
            return None
        if (queue, group) not in self._buckets:
            self._buckets[queue, group] = Bucket.of(rate, None if group else limits.get("burst"))
        return self._buckets[queue, group]

    def _compare(self, queue: str, group: str) -> None:
        bucket, there = self._buckets[queue, group], self._there(queue, group)
        expected = max(self._now, bucket.full_at)
        if abs(there - expected) > _EXACT:
            of = f"a key of {queue}" if group else queue
            is_full, must_be = there - self._now, expected - self._now
            raise Violation(f"the bucket of {of} is full in {is_full:.6f} s, not in {must_be:.6f} s")
        bucket.full_at = there  # what rounding adds is not summed up

    def _there(self, queue: str, group: str) -> float:
        """Return when a bucket is full again, as Redis has it; now for one that is full."""
        keys, server = QueueKeys(queue), self._world.server
        raw = server.score(keys.buckets, group) if group else server.fields(keys.flow).get(b"full_at")
        return max(self._now, float(raw or 0) / 1000)

    @property
    def _now(self) -> float:
        """The server's clock."""
        return self._world.server.micros / 1_000_000


def _group_of(story: Story) -> str:
    return group_of(story.key) if story.key else limit_group_of(story.limit_key) if story.limit_key else ""


def _not_started(op: Op[Any]) -> Iterator[Message]:
    """Return the messages that a settlement says were not started."""
    keys = int(str(op.command[2]))
    queue = logical_name(queue_of(str(op.command[3])))
    arguments = op.command[3 + keys :]
    moves = _ARGUMENTS.index("acks") + len(_ACK) * int(str(arguments[_ARGUMENTS.index("ack_count")]))
    for position in str(arguments[_ARGUMENTS.index("not_started")]).split():
        yield queue, str(arguments[moves + len(_MOVE) * (int(position) - 1) + _MOVE.index("id")])
