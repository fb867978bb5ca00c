"""The batch reader: reads ready, delayed or dead messages without consuming them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition

from reliq import ops
from reliq.model.element import BLANK
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.spark.columns import batches_of
from reliq.spark.options import ROWS_PER_PARTITION, ReadOptions
from reliq.spark.workers import in_worker, store_of
from reliq.transport.store import Store

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_PAGE = 1000


@dataclass
class ListSlice(InputPartition):
    """Positions of a list of ready messages, from its tail: messages sent meanwhile at the head do not shift them."""

    queue: str  #: that of a home
    list: str
    first: int
    after: int


@dataclass
class LineSlice(InputPartition):
    """A part of the messages that wait for their key, as two bounds of ZRANGEBYLEX."""

    queue: str  #: that of a home
    low: bytes
    high: bytes


@dataclass
class ScoreSlice(InputPartition):
    """Scores of a sorted set, `low` <= score < `high`, as texts for Redis."""

    queue: str  #: that of a home
    low: str
    high: str


@dataclass
class ReliqReader(DataSourceReader):
    """The reader: created on the driver, where it plans slices; copied to every task.

    It takes no filters (pushFilters): Spark, up to 4.3 at least, keeps what it has planned with those of one query for
    all others of the same DataFrame, which then lack rows.
    """

    options: ReadOptions

    @in_worker()
    def partitions(self) -> Sequence[InputPartition]:
        store = self.options.connection.store()
        try:
            return store.run(self._plan())
        finally:
            store.close()

    def _plan(self) -> Steps[list[InputPartition]]:
        """Plan slices of each home of the queue: as many of each."""
        queue = self.options.keys.queue
        names = (yield ops.layout(self.options.keys)).every(queue)
        wanted = self.options.partitions and -(-self.options.partitions // len(names))
        plan = self._plan_ready if self.options.state == "ready" else self._plan_scores
        found: list[InputPartition] = []
        for name in names:
            found += yield from plan(QueueKeys(name), wanted)
        return found

    def _plan_ready(self, keys: QueueKeys, wanted: int | None) -> Steps[list[InputPartition]]:
        """Plan slices of each list, and of the messages that wait for their key: as many as each has of all."""
        *lengths, waiting = yield ops.ready_lengths(keys)
        total = sum(lengths) + waiting
        found: list[InputPartition] = []
        for name, length in zip(ops.ready_lists(keys), lengths, strict=True):
            if length:
                ranges = _ranges(length, _share(wanted, length, total))
                found += [ListSlice(keys.queue, name, first, after) for first, after in ranges]
        if waiting:
            found += yield from self._plan_lines(keys, waiting, _share(wanted, waiting, total))
        return found or [ListSlice(keys.queue, keys.messages, 0, 0)]

    def _plan_lines(self, keys: QueueKeys, count: int, wanted: int | None) -> Steps[list[InputPartition]]:
        """Plan slices that begin at the members of evenly spaced ranks."""
        firsts = [first for first, _ in _ranges(count, wanted)][1:]
        members = (yield [ops.waiting_at(keys, first) for first in firsts]) if firsts else []
        borders = [b"-", *dict.fromkeys(b"[" + member for found in members for member in found)]
        ends = [b"(" + border[1:] for border in borders[1:]] + [b"+"]
        return [LineSlice(keys.queue, low, high) for low, high in zip(borders, ends, strict=True)]

    def _plan_scores(self, keys: QueueKeys, wanted: int | None) -> Steps[list[InputPartition]]:
        """Plan slices that begin at the scores of evenly spaced ranks."""
        zset = self._zset(keys)
        count = yield ops.zset_size(zset)
        firsts = [first for first, _ in _ranges(count, wanted)][1:]
        reads = [ops.browse(zset, "up", "-inf", "+inf", 1, first, shown=0) for first in firsts]
        replies = (yield reads) if reads else []
        borders = [glimpse.score.decode() for reply in replies for glimpse in reply.found]
        borders = ["-inf", *dict.fromkeys(borders)]
        ends = [f"({border}" for border in borders[1:]] + ["+inf"]
        return [ScoreSlice(keys.queue, first, end) for first, end in zip(borders, ends, strict=True)]

    def _zset(self, keys: QueueKeys) -> str:
        return keys.dead if self.options.state == "dead" else keys.delayed

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        with in_worker():
            yield from self._pages(store_of(self.options.connection), partition)

    def _pages(self, store: Store, part: InputPartition) -> Iterator["RecordBatch"]:
        if isinstance(part, ListSlice):
            return self._list(store, part)
        if isinstance(part, LineSlice):
            return self._lines(store, part)
        return self._scores(store, cast("ScoreSlice", part))

    def _list(self, store: Store, part: ListSlice) -> Iterator["RecordBatch"]:
        """Read from head to tail: if messages are taken meanwhile, a page repeats some but misses none."""
        keys = QueueKeys(part.queue)
        for after in range(part.after, part.first, -_PAGE):
            elements = store.call(ops.from_tail(part.list, max(part.first, after - _PAGE), after))
            yield from batches_of(store, keys, [one for one in elements if one != BLANK])

    def _lines(self, store: Store, part: LineSlice) -> Iterator["RecordBatch"]:
        """Read page by page, each from the last member of the previous page on."""
        keys, low = QueueKeys(part.queue), part.low
        while members := store.call(ops.waiting_between(keys, low, part.high, _PAGE)):
            yield from batches_of(store, keys, [ops.waiting_element(member) for member in members])
            low = b"(" + members[-1]

    def _scores(self, store: Store, part: ScoreSlice) -> Iterator["RecordBatch"]:
        """Read page by page, each from the last score of the previous page on, without the elements already read."""
        keys, low, high = QueueKeys(part.queue), part.low, part.high
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


def _share(wanted: int | None, count: int, total: int) -> int | None:
    """Return how many of the slices a place with so many of all messages gets: at least one."""
    return wanted and max(1, wanted * count // total)


def _ranges(count: int, wanted: int | None) -> list[tuple[int, int]]:
    """Return slices of so many messages: `wanted` ones, or one for every 50,000 messages."""
    slices = wanted or -(-count // ROWS_PER_PARTITION)
    size = max(1, -(-count // max(1, slices)))
    return [(first, min(first + size, count)) for first in range(0, count, size)] or [(0, 0)]
