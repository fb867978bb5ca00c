"""Rules about numbers: the counters, and the limits of a queue."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from reliq.model.keys import QueueKeys
from tests.reference.limits import Bucket
from tests.reference.rules import crowded, missing
from tests.simulation.flights import is_flying
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

    def not_started(self, queue: str) -> None:
        """One of the messages that were claimed last does not start."""
        del self._claims[queue][-1:]

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
        return missing(counters, len(self._world.there(queue)))

    def _check_concurrency(self, queue: str, most: int | None) -> None:
        if most is None or self._has_shares(queue):
            return
        where = self._world.where.items()
        held = sum(place.state == PROCESSING and not is_flying(place) for (name, _), place in where if name == queue)
        if held > most:
            raise Violation(f"{held} messages of {queue} are in processing, of at most {most}")

    def _check_keys(self, queue: str, most: int | None) -> None:
        """No limit key has more messages in processing than it may, in all partitions together."""
        if most is None or self._world.restarted:
            return
        where, stories = self._world.where.items(), self._world.stories
        held = [stories[one].limit_key for one, place in where if one[0] == queue and place.state == PROCESSING]
        for key in crowded(held, most):
            raise Violation(f"more than {most} messages of {queue} with limit key {key} are in processing")

    def _has_shares(self, queue: str) -> bool:
        """Whether partitions have shares of the limits of the queue, which change one after the other."""
        return bool(self._world.resized[queue])

    def check_rate(self, queue: str) -> None:
        """At no time were more messages claimed than the rate allows."""
        rate = self._world.limits[queue].get("rate")
        has_costs = any(one.charges or one.cost > 1 for (name, _), one in self._world.stories.items() if name == queue)
        if rate is None or has_costs or self._world.restarted or self._has_shares(queue):
            return
        each, claims = Bucket.of(rate).each, self._claims[queue]
        count = self._world.layouts[queue].count
        burst = count * (max(1, round(0.1 / each / count)) + 1)  # each partition gives out one message at least
        if not _within_rate(claims, each, burst):
            raise Violation(f"the claims of {queue} are above {rate}, with {burst} at once: {claims}")


def _within_rate(times: Sequence[float], each: float, burst: int) -> bool:
    """Whether a bucket with `burst` tokens, and a new one every `each` seconds, allows claims at these times."""
    return all(
        last - first + 1 <= burst + (times[last] - times[first]) / each
        for first in range(len(times))
        for last in range(first + burst, len(times))
    )
