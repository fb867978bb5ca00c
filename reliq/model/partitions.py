"""Partitions: one queue for its users that lies on several queues in Redis, and so on several nodes of a cluster.

The first partition of `orders` is the queue `orders` itself, with its keys; the others are queues of their own, called
`orders@partition.1` and so on. What has a key (an ordering key, a limit key or a dedup key) has one partition as its
home: the digest of the key chooses one of 4,096 buckets, and each bucket belongs to one partition. When the number of
partitions changes, as few buckets as possible change their home.
"""

import functools
import heapq
from collections.abc import Iterable

import msgspec

from reliq.errors import InvalidSetting
from reliq.model.element import group_of
from reliq.model.keys import dedup_digest, partition_queue
from reliq.model.outgoing import NewMessage

BUCKETS = 4096  #: three hexadecimal digits
MOST = 256  #: partitions


@functools.lru_cache(maxsize=1024)
def _queues(queue: str, ones: tuple[str, ...]) -> tuple[str, ...]:
    """Return the queues of these partitions. Each message asks for its own: they are made once."""
    return tuple(partition_queue(queue, one) for one in ones)


class Layout(msgspec.Struct, frozen=True, omit_defaults=True):
    """The partitions of a queue, as the field `partitions` of its config has them, in JSON.

    Names are those of `partition_queue`, without the queue; the first partition, the queue itself, has none.
    """

    open: tuple[str, ...] = ()  #: partitions that take messages, beside the first; their order decides the homes
    retired: tuple[str, ...] = ()  #: partitions that take none any more, and may still have some
    before: int = 1  #: the number of partitions before the latest change
    moving: bool = False  #: whether messages may still be in the home that their key had before that change
    version: int = 0  #: counts the changes
    resting: tuple[str, ...] = ()  #: retired ones with nothing to give out, and so without a share of the limits

    @property
    def count(self) -> int:
        """How many partitions take messages."""
        return 1 + len(self.open)

    @property
    def several(self) -> bool:
        """Whether there are other partitions than the first one."""
        return bool(self.open or self.retired)

    def names(self, queue: str) -> list[str]:
        """Return the queues of the partitions that take messages; their positions are the numbers of the homes."""
        return [queue, *_queues(queue, self.open)]

    def every(self, queue: str) -> list[str]:
        """Return the queues of all partitions that may have messages."""
        return [*self.names(queue), *_queues(queue, self.retired)]

    def working(self, queue: str) -> list[str]:
        """Return the queues of the partitions that share the limits of the queue."""
        return [*self.names(queue), *(partition_queue(queue, one) for one in self.retired if one not in self.resting)]

    def earlier(self, queue: str) -> list[str]:
        """Return the queues that were the homes of keys before the latest change."""
        return [queue, *_queues(queue, (*self.open, *self.retired)[: self.before - 1])]

    def homes(self, queue: str, bucket: int, *, kept: bool = False) -> list[str]:
        """Return where messages of a bucket go: to the first of these queues that accepts them.

        While keys are moving, the home before the change comes first: it accepts a message as long as it has others of
        its key. `kept`: the home before keeps something of the key for longer, as it does of a dedup key.
        """
        number = home_by_bucket(self.count)[bucket]
        home = _queues(queue, self.open)[number - 1] if number else queue
        if not (self.moving or kept) or self.before == self.count:
            return [home]
        before = self.earlier(queue)[home_by_bucket(self.before)[bucket] :][:1]  # none: forgotten, as it was empty
        return [home] if before == [home] else [*before, home]

    def without_last(self) -> "Layout":
        """Return the layout without the last of the retired partitions."""
        *retired, last = self.retired
        resting = tuple(one for one in self.resting if one != last)
        return msgspec.structs.replace(self, retired=tuple(retired), resting=resting, version=self.version + 1)

    def rested(self, resting: Iterable[str]) -> "Layout":
        """Return the layout with these of the retired partitions at rest."""
        return msgspec.structs.replace(self, resting=tuple(resting), version=self.version + 1)

    def finished(self) -> "Layout":
        """Return the layout once no message is in the earlier home of its key."""
        return msgspec.structs.replace(self, moving=False, version=self.version + 1)

    def resized(self, count: int, names: Iterable[str]) -> "Layout":
        """Return the layout with another number of partitions; `names`: those of new ones, as many as are needed.

        Retired partitions are opened again before new ones are made.
        """
        every = (*self.open, *self.retired, *names)
        return Layout(every[: count - 1], every[count - 1 :], self.count, moving=True, version=self.version + 1)


UNPARTITIONED = Layout()
_decode = msgspec.json.Decoder(Layout).decode
_encode = msgspec.json.Encoder().encode


def read_layout(text: str | None) -> Layout:
    """Return the layout that is stored as this text; raises InvalidSetting for one that reliq has not written."""
    if not text:
        return UNPARTITIONED
    try:
        return _decode(text)
    except msgspec.DecodeError as error:
        raise InvalidSetting(f"the queue's partitions in Redis are {text!r}: {error}") from None


def layout_text(layout: Layout) -> str:
    """Return a layout as it is stored."""
    return _encode(layout).decode()


@functools.lru_cache(maxsize=MOST)
def buckets_of(count: int) -> list[list[int]]:
    """Return the buckets of each of so many partitions.

    Each has as many as the others, or one more or less. From `count` to `count + 1`, only the buckets of the new
    partition move.
    """
    owned: list[list[int]] = [list(range(BUCKETS))]
    largest = [(-BUCKETS, 0)]
    for new in range(1, count):
        taken = []
        for _ in range(BUCKETS // (new + 1)):
            size, one = heapq.heappop(largest)
            taken.append(owned[one].pop())
            heapq.heappush(largest, (size + 1, one))
        owned.append(taken)
        heapq.heappush(largest, (-len(taken), new))
    return owned


@functools.lru_cache(maxsize=MOST)
def home_by_bucket(count: int) -> list[int]:
    """Return the number of the partition that is the home of each bucket, among so many partitions."""
    homes = [0] * BUCKETS
    for one, buckets in enumerate(buckets_of(count)):
        for bucket in buckets:
            homes[bucket] = one
    return homes


def bitmap(buckets: Iterable[int]) -> str:
    """Return a text with a hexadecimal digit for every four buckets, which scripts read (shared/homes.lua)."""
    digits = [0] * (BUCKETS // 4)
    for bucket in buckets:
        digits[bucket // 4] |= 1 << bucket % 4
    return "".join(f"{digit:x}" for digit in digits)


def bucket_of_digest(digest: str) -> int:
    """Return the bucket of a digest: that of a group of messages, a dedup key or an id."""
    return int(digest[:3], 16)


def bucket_of_key(key: str) -> int:
    """Return the bucket of an ordering key or a limit key."""
    return bucket_of_digest(group_of(key))


def bucket_of_name(name: str) -> int:
    """Return the bucket of a dedup key, or of a message without a key that is to be found by its id."""
    return bucket_of_digest(dedup_digest(name))


def bucket_of(message: NewMessage) -> int | None:
    """Return the bucket of a message that has a key; None: it may go to any partition."""
    key = message.key or message.limit_key
    if key:
        return bucket_of_key(key)
    return None if message.dedup_key is None else bucket_of_name(message.dedup_key)
