"""The stream reader: a micro-batch is a claim; Spark's commit of it is the ack."""

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from reliq.client.heartbeat import Heartbeat
from reliq.errors import InvalidSetting, LeaseLost
from reliq.model.keys import QueueKeys
from reliq.protocol.lease import Lease
from reliq.spark.claims import Claims, consumer_of
from reliq.spark.columns import batches_of
from reliq.spark.options import STREAM_ROWS_PER_PARTITION, StreamOptions
from reliq.spark.pace import Pace
from reliq.spark.stream_claims import Piece, StreamClaims
from reliq.spark.workers import in_worker, store_of
from reliq.transport.store import Store

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger("reliq.spark")

_PAGE = 1000
_UNBOUNDED = 10**12


@dataclass
class BatchSlice(InputPartition):
    """Positions in what a micro-batch has of one home of the queue, in one place; the oldest message is 0."""

    queue: str  #: that of the home
    stream: str
    batch: int
    place: int  #: 0: the list of the consumer; others: the parts beside it
    first: int
    after: int


class ReliqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader: lives on the driver while the query runs; its `read` is copied to the tasks.

    An offset is {"stream", "queue", "batch", "messages"}: `stream` is drawn once for a query and kept in its
    checkpoint, `batch` counts, `messages` is how many the batch `batch` claimed (0 for the first one, which claims
    later).

    A killed query finds its claim again by the offset before it. Spark does not store the initial offset, so the first
    batch claims only in `partitions`, which Spark calls once the offset with the stream's name is in the checkpoint.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._claims = StreamClaims(options.keys, options.lease)
        self._pace = Pace(options.rate, options.min_messages, options.max_delay)
        self._acked = 0  #: the last batch known to be acked
        self._first: int | None = None  #: messages that the first batch may claim, until it has
        self._budget: int | None = None  #: messages that Trigger.AvailableNow has left to claim
        self._store_: Store | None = None
        self._heartbeat: Heartbeat | None = None
        self._leases: list[Lease] = []

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for the tasks, without the driver's connection and thread."""
        return {**self.__dict__, "_store_": None, "_heartbeat": None, "_leases": []}

    @property
    def _store(self) -> Store:
        if self._store_ is None:
            self._store_ = self._options.connection.store()
        return self._store_

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        return {"stream": secrets.token_hex(10), "queue": self._options.keys.queue, "batch": 0, "messages": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        return ReadMaxRows(self._options.max_messages)

    @in_worker()
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Return the backlog, as `latestOffset` of the source in `lastProgress`: messages, and ms of the oldest one."""
        left = self._store.run(self._claims.backlog())
        return {"ready": left.ready, "delayed": left.delayed, "oldest_ready_ms": round(left.oldest * 1000)}

    @in_worker()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        self._budget = self._store.run(self._claims.ready())

    @in_worker()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Claim the next batch. Spark starts from `start` only once everything up to it is in its commit log."""
        self._check_queue(start)
        batch = start["batch"] + 1
        self.commit(start)
        most = _UNBOUNDED if isinstance(limit, ReadAllAvailable) else cast("ReadMaxRows", limit).max_rows
        most = self._within_pace(most)
        if batch == 1:
            self._first = most
            return {**start, "batch": 1} if most and self._store.run(self._claims.has_some()) else start
        if not most:
            return start
        messages = self._claim(start["stream"], batch, most)
        return {**start, "batch": batch, "messages": messages} if messages else start

    def _check_queue(self, offset: dict[str, Any]) -> None:
        """Raise InvalidSetting if the checkpoint is that of a stream of another queue."""
        mine = self._options.keys.queue
        theirs = offset.get("queue", mine)  # an offset of an earlier version names none
        if theirs != mine:
            raise InvalidSetting(
                f"this checkpoint is that of a stream of queue {theirs!r}, not of {mine!r}: give the query a "
                f"checkpointLocation of its own. `reliq spark claims --queue {theirs}` lists what that one holds"
            )

    def _within_pace(self, most: int) -> int:
        """Return how many of `most` messages the next batch may have; 0: not now."""
        if self._budget is not None:  # its last batch has fewer messages, and an empty one is its end
            most = min(most, self._budget)
            while most and not self._pace.room(most):
                time.sleep(self._pace.until_room())
        elif self._pace.wants_more and self._pace.waits(self._store.run(self._claims.ready())):
            return 0
        return self._pace.room(most)

    def _claim(self, stream: str, batch: int, most: int) -> int:
        """Claim up to `most` messages as this batch; return how many."""
        claimed = self._store.run(self._claims.claim(stream, batch, most))
        messages = sum(claimed.values())
        if self._budget is not None:
            self._budget = max(0, self._budget - messages)
        if messages:
            self._pace.claimed(messages)
        for queue in claimed:
            self._keep(queue, stream, batch)
        return messages

    @in_worker()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check_queue(end)
        stream, batches = end["stream"], range(start["batch"] + 1, end["batch"] + 1)
        if self._first is not None and end["batch"] == 1:
            # Only in its first run: a sink that has written the batch ignores what a replay would claim anew.
            most, self._first = self._first, None
            self._claim(stream, 1, most)
        there = self._store.run(self._claims.resume(stream, batches))
        left = sum(one.messages for one in there if one.batch == end["batch"])
        if batches and left < end["messages"]:
            text = (
                f"micro-batch {end['batch']} had {end['messages']} messages and has {left}: the stream was away for "
                f"longer than its lease of {self._options.lease:g} s, the others are back in the queue and come again; "
                "or another driver with this checkpoint runs, and has committed it"
            )
            if self._options.fail_on_loss:
                raise LeaseLost(f'{text}; option("failOnDataLoss", "false") lets the query go on without them')
            log.warning(text)
        for one in there:
            self._keep(one.queue, stream, one.batch)
        return [part for one in there for part in self._slices(stream, one)]

    def _slices(self, stream: str, one: Piece) -> Iterator[BatchSlice]:
        claims = Claims(QueueKeys(one.queue), self._options.lease)
        size = self._size(one.messages)
        for first, after in self._store.run(claims.cuts(stream, one.batch, one.place, one.messages, size)):
            yield BatchSlice(one.queue, stream, one.batch, one.place, first, after)

    def _size(self, length: int) -> int:
        slices = self._options.partitions or -(-length // STREAM_ROWS_PER_PARTITION)
        return -(-length // max(1, slices)) or 1

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        part = cast("BatchSlice", partition)
        claims = Claims(QueueKeys(part.queue), self._options.lease)
        with in_worker():
            store = store_of(self._options.connection)
            for first in range(part.first, part.after, _PAGE):
                after = min(first + _PAGE, part.after)
                elements = store.run(claims.page(part.stream, part.batch, part.place, first, after))
                yield from batches_of(store, claims.keys, elements)

    @in_worker()
    def commit(self, end: dict[str, Any]) -> None:
        """Ack the batch that the query has committed."""
        if end["batch"] == self._acked:
            return  # an idle query asks for the next offset a hundred times a second
        self._store.run(self._claims.ack(end["stream"], end["batch"]))
        self._acked = end["batch"]
        done = {consumer_of(end["stream"], batch) for batch in range(end["batch"] + 1)}
        self._leases = [lease for lease in self._leases if lease.consumer not in done]

    def stop(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._store_ is not None:
            self._store_.close()

    def _keep(self, queue: str, stream: str, batch: int) -> None:
        """Renew the lease of this batch in a home for as long as the query lives, however long the batch runs."""
        consumer = consumer_of(stream, batch)
        if all((lease.keys.queue, lease.consumer) != (queue, consumer) for lease in self._leases):
            claims = Claims(QueueKeys(queue), self._options.lease)
            lease = Lease(claims.keys, consumer, claims.lease, lambda _: self._store.run(claims.keep(consumer)))
            self._leases = [*self._leases, lease]
        if self._heartbeat is None:
            length = self._options.lease
            self._heartbeat = Heartbeat(self._store, f"s{stream}", length, lambda: self._leases, self._lost)
            self._heartbeat.start()

    def _lost(self, lease: Lease) -> None:
        self._leases = [one for one in self._leases if one is not lease]
        log.warning("the lease of %s ran out: its messages are back in the queue", lease.consumer)
