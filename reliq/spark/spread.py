"""Which home of its queue each row goes to: that of its key; rows without a key are spread evenly."""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.model.partitions import Layout, bucket_of_key, bucket_of_name, home_by_bucket
from reliq.ops import Steps

_SHARE = 100  #: rows; fewer of a batch go to one home
_NO_BUCKET = -1

LayoutOf = Callable[[str], Layout]  #: by the name of a queue


def read_layouts(queues: Collection[str]) -> Steps[dict[str, Layout]]:
    """Return the homes of these queues, as they are now."""
    names = sorted(queues)
    layouts = (yield [ops.layout(QueueKeys(name)) for name in names]) if names else []
    return dict(zip(names, layouts, strict=True))


class Buckets:
    """The buckets of the keys of some rows."""

    def __init__(self, fields: Mapping[str, pa.Array]) -> None:
        self._keys, self._dedup = fields.get("key"), fields.get("dedup")
        self.count = len(fields["body"])

    @functools.cached_property
    def of_rows(self) -> np.ndarray:
        """The bucket of each row, or -1. The ordering key decides; without one the dedup key does."""
        buckets = np.full(self.count, _NO_BUCKET)
        if self._dedup is not None:
            buckets = _by_value(self._dedup, bucket_of_name, buckets)
        if self._keys is not None:
            buckets = _by_value(self._keys, bucket_of_key, buckets)
        return buckets


def _by_value(keys: pa.Array, bucket: Callable[[str], int], otherwise: np.ndarray) -> np.ndarray:
    """Return the bucket of each key, computed once for equal ones."""
    distinct = keys.dictionary_encode()
    buckets = np.array([bucket(key.decode()) for key in distinct.dictionary.to_pylist()] or [_NO_BUCKET])
    return np.where(keys.is_valid(), buckets[distinct.indices.fill_null(0)], otherwise)


class Spread:
    """Spreads the rows of one task over the homes of their queues.

    `layout_of`: the homes of a queue; asked once for each. `task`: the number of the task, so that tasks begin
    with different ones.
    """

    def __init__(self, layout_of: LayoutOf, task: int) -> None:
        self._layout_of = functools.cache(layout_of)
        self._task = task
        self._turns: dict[str, int] = {}
        self._homes: dict[str, np.ndarray] = {}

    def shares(self, queue: str, rows: np.ndarray | None, buckets: Buckets) -> Iterator[tuple[str, np.ndarray | None]]:
        """Yield homes of a queue, each with its share of these rows; None = all rows."""
        layout = self._layout_of(queue)
        if layout.count == 1 and not layout.moving:
            yield queue, rows
            return
        rows = np.arange(buckets.count) if rows is None else rows
        of_rows = buckets.of_rows[rows]
        keyed = of_rows != _NO_BUCKET
        homes = self._first_homes(queue, layout)[of_rows[keyed]]
        every = layout.every(queue)
        for home in np.unique(homes):
            yield every[home], rows[keyed][homes == home]
        yield from self._evenly(queue, layout, rows[~keyed])

    def _first_homes(self, queue: str, layout: Layout) -> np.ndarray:
        if queue not in self._homes:
            self._homes[queue] = first_home_by_bucket(layout)
        return self._homes[queue]

    def _evenly(self, queue: str, layout: Layout, rows: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Yield equal shares of rows without a key, for as many homes as are worth it, the next ones in turn."""
        if not len(rows):
            return
        names = layout.names(queue)
        count = min(len(names), -(-len(rows) // _SHARE))
        first = self._task * (count if count < len(names) else 1)  # where the task before this one has ended
        turn = self._turns.get(queue, first)
        self._turns[queue] = turn + count
        for place, share in enumerate(np.array_split(rows, count)):
            yield names[(turn + place) % len(names)], share


def first_home_by_bucket(layout: Layout) -> np.ndarray:
    """Return the place of the home of each bucket among all homes of a layout.

    While keys are moving it is the former home, as for a producer: rows wait there behind the messages of their key,
    and a monitor takes those on that have waited until the former home has no other.
    """
    homes = np.array(home_by_bucket(layout.count))
    if not layout.moving:
        return homes
    former = np.array(home_by_bucket(layout.before))
    return np.where(former < layout.count + len(layout.retired), former, homes)
