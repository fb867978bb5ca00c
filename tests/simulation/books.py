"""Rules about numbers: the counters, and the limits of a queue."""

from collections import defaultdict
from collections.abc import Iterable

from reliq.contract.counters import GONE
from reliq.model.keys import QueueKeys
from reliq.ops import schema
from tests.simulation.stories import PROCESSING, Violation
from tests.simulation.world import World, queues_of


class Books:
    """The counters of each partition, and the limits of each queue."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._claims: dict[str, list[float]] = defaultdict(list)

    def claimed(self, queue: str) -> None:
        """A message was claimed."""
        self._claims[queue].append(self._world.clock.now)

    def check(self, changed: Iterable[str]) -> None:
        """The counters have the messages that are there."""
        for queue in queues_of(changed) - {"@batches", "@several"}:
            missing = self.missing(queue)
            if missing:
                raise Violation(f"the books of {queue} do not balance: {missing} missing")
        for queue, limits in self._world.limits.items():
            self._check_concurrency(queue, limits.get("concurrency"))
            self._check_keys(queue, limits.get("key_concurrency"))

    def missing(self, queue: str) -> int:
        """Return how many messages the counters of a partition have that are not there."""
        raw = self._world.contents.get(QueueKeys(queue).counters, [])
        counters = {name.decode(): int(value) for name, value in zip(raw[::2], raw[1::2], strict=True)}
        here = len(self._world.there(queue))
        return counters.get(schema.Counter.ENQUEUED, 0) - sum(counters.get(name, 0) for name in GONE) - here

    def _check_concurrency(self, queue: str, most: int | None) -> None:
        if most is None or self._has_shares(queue):
            return
        where = self._world.where.items()
        held = sum(place.state == PROCESSING for (name, _), place in where if name == queue)
        if held > most:
            raise Violation(f"{held} messages of {queue} are in processing, of at most {most}")

    def _check_keys(self, queue: str, most: int | None) -> None:
        """No limit key has more messages in processing than it may, in all partitions together."""
        if most is None or self._world.restarted:
            return
        held: dict[str, int] = defaultdict(int)
        for message, place in self._world.where.items():
            if message[0] == queue and place.state == PROCESSING:
                held[self._world.stories[message].limit_key] += 1
        for key, count in held.items():
            if key and count > most:
                raise Violation(f"{count} messages of {queue} with limit key {key} are in processing, not {most}")

    def _has_shares(self, queue: str) -> bool:
        """Whether partitions have shares of the limits of the queue, which change one after the other."""
        return bool(self._world.resized[queue])

    def check_rate(self, queue: str) -> None:
        """At no time were more messages claimed than the rate allows."""
        rate = self._world.limits[queue].get("rate")
        if rate is None or self._world.restarted or self._has_shares(queue):
            return
        each, claims = 1.0 / int(rate.partition("/")[0]), self._claims[queue]
        count = self._world.layouts[queue].count
        burst = count * (max(1, round(0.1 / each / count)) + 1)  # each partition gives out one message at least
        for first, since in enumerate(claims):
            for last in range(first + burst, len(claims)):
                if last - first + 1 > burst + (claims[last] - since) / each:
                    seconds = claims[last] - since
                    raise Violation(f"{last - first + 1} messages of {queue} in {seconds:.3f} s are above {rate}")
