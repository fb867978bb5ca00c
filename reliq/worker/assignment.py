"""Which partitions of a queue this process serves: worker processes share them without a coordinator.

Each process says every second that it is there, and computes the same assignment from the same names: an even share
of the partitions for each, those left over for several. Processes that serve the same partition compete for its
messages, as any consumers do; so nothing stops when a process comes or goes and some partitions change hands. A
process whose partitions are empty helps with one that is not.
"""

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.partitions import Layout
from reliq.ops import Steps, Together
from reliq.protocol.claiming import Failing, NodeOf, ready_counts
from reliq.runtime.outage_log import OutageLog

log = logging.getLogger("reliq.worker")

LOOK_EVERY = 1.0  #: seconds
_ALONE_EVERY = 5.0  #: seconds between two looks whether a queue has partitions by now
_SILENT = 3.5  #: seconds after which the others take the partitions of a process that says nothing
_UNEVEN = 1.25  #: how much more than another one a process may have to do
_IDLE = 1.0  #: seconds without a message after which a process helps others


class Assignment:
    """The partitions of one queue that one process serves; its calls are steps."""

    def __init__(
        self,
        queue: str,
        owner: str,
        node_of: NodeOf | None = None,
        not_known_empty: Callable[[list[QueueKeys]], list[QueueKeys]] = lambda some: some,
    ) -> None:
        """`not_known_empty`: returns those of some partitions that may have messages."""
        self.queue = queue
        self._own: list[str] = [queue]  #: the queues of the partitions that were assigned to this process
        self._keys = QueueKeys(queue)
        self._owner = owner
        self._layout = Layout()
        self._owners: list[str] = []
        self._helped = ""  #: the partition of others that this process helps with
        self._waited: set[str] = set()  #: partitions of others that had messages at the last look
        self._looked_at = float("-inf")
        self._failing = Failing()
        self._node_of = node_of
        self._not_known_empty = not_known_empty
        self._outage = OutageLog(log, f"partitions of queue={queue}")

    @property
    def partitioned(self) -> bool:
        return self._layout.several

    def look(self, taken_at: float) -> Steps[None]:
        """Find out what to serve. `taken_at`: when a message was last taken here, by time.monotonic()."""
        if not self.partitioned and time.monotonic() - self._looked_at < _ALONE_EVERY:
            return
        try:
            yield from self._learn()
            if self.partitioned and time.monotonic() - taken_at >= _IDLE:
                self._helped = yield from self._one_behind()
            self._outage.over()
        except ReliqError as error:  # what is known stays right for a while
            self._outage.failed(error)
        self._looked_at = time.monotonic()

    def hold_others(self, partition: str, seconds: float) -> Steps[None]:
        """Hold the other partitions than this one, as a handler has asked for: also those that are new."""
        try:
            layout = yield ops.layout(self._keys)
        except ReliqError:
            layout = self._layout
        others = [QueueKeys(name) for name in layout.every(self.queue) if name != partition]
        if not others:
            return
        for answer in (yield Together([ops.one(ops.hold(keys, seconds)) for keys in others])):
            if isinstance(answer, ReliqError):
                log.warning("queue=%s a partition could not be held, and gives out messages: %s", self.queue, answer)

    @property
    def mine(self) -> list[str]:
        """The queues of the partitions that this process serves."""
        return [*self._own, self._helped] if self._helped else self._own

    def leave(self) -> Steps[bool]:
        """Leave the partitions to the others at once; return False if Redis could not be told."""
        if self.partitioned and self._owners:
            self._owners = []
            try:
                yield ops.serve(self._keys, self._owner, 0)
            except ReliqError as error:
                log.debug(
                    "queue=%s could not say that it leaves; others take over in some seconds: %s", self.queue, error
                )
                return False
        return True

    def _learn(self) -> Steps[None]:
        """Read the layout and, with partitions, say that this process is there and read who else is."""
        layout, owners = (yield ops.layout(self._keys)), [self._owner]
        if layout.several:
            served = yield ops.serve(self._keys, self._owner, _SILENT)
            layout, owners = served.layout, served.owners
        if (layout, owners) != (self._layout, self._owners):
            self._layout, self._owners = layout, owners
            every = layout.every(self.queue)
            self._own = assigned(every, owners, self._owner)
            self._helped = ""
            if self.partitioned:
                closed = f", of which {len(layout.retired)} are closed" if layout.retired else ""
                log.info("queue=%s serves %d of %d partitions%s", self.queue, len(self._own), len(every), closed)

    def _one_behind(self) -> Steps[str]:
        """Return the partition of others with the most messages among those that had some at the look before, too."""
        others = [QueueKeys(name) for name in self._layout.every(self.queue) if name not in self._own]
        some = self._not_known_empty(others) if others else []
        if not some:
            self._waited = set()
            return ""
        counts = yield from ready_counts(some, self._failing, self._node_of)
        waiting = {name: count for name, count in counts.items() if count}
        behind = waiting.keys() & self._waited
        self._waited = set(waiting)
        return max(behind, key=waiting.__getitem__, default="")


def assigned(partitions: Sequence[str], owners: Sequence[str], owner: str) -> list[str]:
    """Return the partitions that a process serves, among all of these processes.

    Each process serves as many alone as all can have. Those left over are served by several processes each: by as few
    as keep the busiest process within 1.25 times the least busy one. From one set of processes to the next, few
    partitions change hands.
    """
    owners, names = sorted(owners), sorted(partitions)
    alone = len(names) // len(owners)
    dealt, left = _dealt(names[: alone * len(owners)], owners), names[alone * len(owners) :]
    shared = (
        next(some for some in _windows(owners, left) if _unevenness(alone, some) <= _UNEVEN) if left else {owner: []}
    )
    return [one for one in partitions if dealt.get(one) == owner or one in shared[owner]]


def _windows(owners: Sequence[str], left: Sequence[str]) -> Iterator[dict[str, list[str]]]:
    """Return which of these partitions each process may serve: one, two next to each other, and so on up to all.

    There are more processes than partitions; one more process shifts each window by at most one partition.
    """
    first = {one: place * len(left) // len(owners) for place, one in enumerate(owners)}
    for size in range(1, len(left) + 1):
        yield {one: [left[(at + step) % len(left)] for step in range(size)] for one, at in first.items()}


def _unevenness(alone: int, shared: Mapping[str, Sequence[str]]) -> float:
    """Return how much more the busiest process has to do than the least busy one: 1.0 if all have the same."""
    servers = Counter(one for some in shared.values() for one in some)
    loads = [alone + sum(1 / servers[one] for one in some) for some in shared.values()]
    return max(loads) / min(loads)


def _dealt(items: Sequence[str], takers: Sequence[str]) -> dict[str, str]:
    """Return who takes each item, evenly: the numbers differ by one at most.

    By the highest weight of each pair that has room (rendezvous hashing).
    """
    even, more = divmod(len(items), len(takers))
    load = dict.fromkeys(takers, 0)
    dealt: dict[str, str] = {}
    for item in items:
        full = sum(count > even for count in load.values())
        room = [one for one in takers if load[one] < even or (load[one] == even and full < more)]
        dealt[item] = max(room, key=lambda one: _weight(item, one))
        load[dealt[item]] += 1
    return dealt


def _weight(item: str, taker: str) -> bytes:
    return hashlib.blake2b(f"{item} {taker}".encode(), digest_size=8).digest()
