"""The batch reader: reads ready, delayed or dead messages without consuming them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.model.partitions import read_layout
from reliq.ops import Steps
from reliq.spark.columns import batches_of
from reliq.spark.filters import Condition, condition_of, matching
from reliq.spark.options import ROWS_PER_PARTITION, ReadOptions
from reliq.spark.workers import in_worker, store_of
from reliq.transport.store import Store

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_PAGE = 1000
_ENDS = (float("-inf"), float("inf"))


@dataclass
class ListSlice(InputPartition):
    """Positions of the ready list, counted from its tail: messages sent meanwhile at the head do not shift them."""

    queue: str  #: that of a partition
    first: int
    after: int


@dataclass
class ScoreSlice(InputPartition):
    """Scores of a sorted set, `low` <= score < `high`, as texts for Redis."""

    queue: str  #: that of a partition
    low: str
    high: str


@dataclass
class ReliqReader(DataSourceReader):
    """The reader: created on the driver, where it takes filters and plans slices; copied to every task."""

    options: ReadOptions
    conditions: list[Condition] = field(default_factory=list)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        for one in filters:
            condition = condition_of(one)
            if condition is None:
                yield one
            else:
                self.conditions.append(condition)

    def partitions(self) -> Sequence[InputPartition]:
        store = self.options.connection.store()
        try:
            return store.run(self._plan())
        finally:
            store.close()

    def _plan(self) -> Steps[list[InputPartition]]:
        """Plan slices of each partition of the queue: as many of each."""
        queue = self.options.keys.queue
        names = read_layout((yield ops.partitions(self.options.keys))).every(queue)
        wanted = self.options.partitions and -(-self.options.partitions // len(names))
        plan = self._plan_list if self.options.state == "ready" else self._plan_scores
        found: list[InputPartition] = []
        for name in names:
            found += yield from plan(QueueKeys(name), wanted)
        return found

    def _plan_list(self, keys: QueueKeys, wanted: int | None) -> Steps[list[InputPartition]]:
        length = yield ops.list_length(keys.messages)
        return [ListSlice(keys.queue, first, after) for first, after in _ranges(length, wanted)]

    def _plan_scores(self, keys: QueueKeys, wanted: int | None) -> Steps[list[InputPartition]]:
        """Plan slices that begin at the scores of evenly spaced ranks, within the range of the filters."""
        low, high = self._score_range()
        zset = self._zset(keys)
        count = yield ops.count_between(zset, low, high)
        firsts = [first for first, _ in _ranges(count, wanted)][1:]
        reads = [ops.browse(zset, "up", low, high, 1, first, shown=0) for first in firsts]
        replies = (yield reads) if reads else []
        borders = [glimpse.score.decode() for reply in replies for glimpse in reply.found]
        borders = [low, *dict.fromkeys(borders)]
        ends = [f"({border}" for border in borders[1:]] + [str(high)]
        return [ScoreSlice(keys.queue, str(first), end) for first, end in zip(borders, ends, strict=True)]

    def _zset(self, keys: QueueKeys) -> str:
        return keys.dead if self.options.state == "dead" else keys.delayed

    def _score_range(self) -> tuple[float, float]:
        column = "died_at" if self.options.state == "dead" else "due_at"
        ranges = [_ENDS, *(condition.scores(column) for condition in self.conditions)]
        return max(low for low, _ in ranges), min(high for _, high in ranges)

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        with in_worker():
            store = store_of(self.options.connection)
            pages = self._list(store, partition) if isinstance(partition, ListSlice) else self._scores(store, partition)
            for page in pages:
                rows = matching(page, self.conditions)
                if rows.num_rows:
                    yield rows

    def _list(self, store: Store, part: ListSlice) -> Iterator["RecordBatch"]:
        """Read from head to tail: if messages are taken meanwhile, a page repeats some but misses none."""
        keys = QueueKeys(part.queue)
        for after in range(part.after, part.first, -_PAGE):
            first = max(part.first, after - _PAGE)
            yield from batches_of(store, keys, store.call(ops.from_tail(keys.messages, first, after)))

    def _scores(self, store: Store, part: InputPartition) -> Iterator["RecordBatch"]:
        """Read page by page, each from the last score of the previous page on, without the elements already read."""
        slice_ = cast("ScoreSlice", part)
        keys, low, high = QueueKeys(slice_.queue), slice_.low, slice_.high
        seen: set[bytes] = set()
        while True:
            most = _PAGE + len(seen)
            pairs = store.call(ops.by_score(self._zset(keys), low, high, most))
            yield from self._batches(store, keys, [pair for pair in pairs if pair[0] not in seen])
            if len(pairs) < most:
                return
            last = pairs[-1][1]
            seen = {element for element, score in pairs if score == last}
            low = last.decode()

    def _batches(self, store: Store, keys: QueueKeys, pairs: list[tuple[bytes, bytes]]) -> Iterator["RecordBatch"]:
        elements, times = [one for one, _ in pairs], [int(float(at)) for _, at in pairs]
        if self.options.state == "dead":
            return batches_of(store, keys, elements, died=times)
        return batches_of(store, keys, elements, due=times)


def _ranges(count: int, wanted: int | None) -> list[tuple[int, int]]:
    """Return slices of so many messages: `wanted` ones, or one for every 50,000 messages."""
    slices = wanted or -(-count // ROWS_PER_PARTITION)
    size = max(1, -(-count // max(1, slices)))
    return [(first, min(first + size, count)) for first in range(0, count, size)] or [(0, 0)]
