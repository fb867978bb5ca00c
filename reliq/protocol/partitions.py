"""The partitions of one queue: which there are, which message goes to which, and calls that concern all of them."""

import itertools
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from reliq import ops
from reliq.errors import OutcomeUnknown, RedisUnavailable, ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.model.partitions import Layout, bucket_of, read_layout
from reliq.ops import Steps, Together
from reliq.protocol.batch import RawBatch
from reliq.protocol.durability import Durability
from reliq.protocol.partition import ANNOUNCE_EVERY, Moved, Partition
from reliq.protocol.producer import ProducerPool

T = TypeVar("T")

_FRESH = 2.0  #: seconds for which an operator's call trusts the layout that was read last
_AWAY = 5.0  #: seconds for which messages without a key avoid a partition that could not be reached
_SHARE = 100  #: messages; a call with fewer of them goes to one partition
_PART = 1000  #: messages that a call sends to one partition at a time
_SETTLING = 0.05  #: seconds before a message is offered again to partitions that all refused it
_OFFERS = 200  #: how often it is offered: a change of the number of partitions takes effect meanwhile


class Partitions:
    """The partitions of one queue, for one application."""

    def __init__(self, queue: str, pool: ProducerPool) -> None:
        self.queue = queue
        self.first = Partition(queue, pool)
        self.layout = Layout()
        self._text: str | None = None
        self._read_at = float("-inf")
        self._known = {queue: self.first}
        self._pool = pool
        self._turn = itertools.count(random.randrange(1000))
        self._away: dict[str, float] = {}  #: by queue of a partition: until when it is avoided

    # --- which there are ---

    def named(self, name: str) -> Partition:
        """Return the partition that is this queue."""
        partition = self._known.get(name)
        if partition is None:
            partition = self._known[name] = Partition(name, self._pool)
        return partition

    def _note(self, text: str | None) -> Layout:
        if text != self._text:
            self.layout, self._text = read_layout(text), text
        self._read_at = time.monotonic()
        return self.layout

    def read(self) -> Steps[Layout]:
        """Read the layout."""
        self.first.layout = yield ops.partitions(self.first.keys)
        return self._note(self.first.layout)

    def read_again(self) -> Steps[None]:
        """Read the layout again, a little later: a partition that it names has refused a message."""
        yield ops.Sleep(_SETTLING)
        yield from self.read()

    def _current(self) -> Steps[Layout]:
        """Return the layout for a send: as the first partition told it with its introduction, or read once a minute."""
        if self.first.layout != self._text:
            self._note(self.first.layout)
        if self.layout.count > 1 and time.monotonic() - self._read_at > ANNOUNCE_EVERY:
            yield from self.read()
        return self.layout

    def every(self, fresh: float = _FRESH) -> Steps[list[Partition]]:
        """Return all partitions that may have messages, by a layout that was read at most `fresh` seconds ago."""
        if time.monotonic() - self._read_at > fresh:
            yield from self.read()
        return [self.named(name) for name in self.layout.every(self.queue)]

    def each(self, steps: Callable[[QueueKeys], Steps[T]]) -> Steps[list[T]]:
        """Run the same steps for every partition, at the same time; raises the first error."""
        partitions = yield from self.every()
        if len(partitions) == 1:
            return [(yield from steps(self.first.keys))]
        answers = yield Together([steps(one.keys) for one in partitions])
        return checked(answers)

    def home_of(self, message: NewMessage) -> Steps[QueueKeys]:
        """Return the partition for a message that is to be placed elsewhere than among the ready ones."""
        layout, bucket = (yield from self._current()), bucket_of(message)
        return self.first.keys if bucket is None else self.named(layout.homes(self.queue, bucket)[-1]).keys

    def offered(self, message: NewMessage, refused: list[str]) -> Steps[Partition]:
        """Return the partition that a message is offered to: the first of its homes that has not refused it.

        Where all have, the layout is read again, and `refused` begins anew.
        """
        layout, bucket = (yield from self._current()), bucket_of(message)
        homes = self.open_ones()[:1] if bucket is None else layout.homes(self.queue, bucket)
        if refused and (bucket is None or set(homes) <= set(refused)):
            changed = yield from self.read()
            if changed == layout:
                yield ops.Sleep(_SETTLING)
            refused.clear()
            homes = self.open_ones()[:1] if bucket is None else changed.homes(self.queue, bucket)
        return self.named(next(one for one in homes if one not in refused))

    # --- sending ---

    def send(self, messages: Sequence[NewMessage], wanted: Durability | None, retries: int | None) -> Steps[list[str]]:
        """Enqueue messages, each in the home of its key, the others spread evenly; return the ids."""
        layout, ids = (yield from self._current()), list[str]()
        if layout.count == 1 and not layout.moving:
            try:
                return (yield from self.first.send(messages, wanted, retries))
            except Moved as moved:  # the queue has partitions since
                ids += moved.sent
            layout = yield from self.read()
        for start in range(len(ids), len(messages), _PART * layout.count):
            spread = Spread(self, messages[start : start + _PART * layout.count], wanted, retries)
            try:
                ids += yield from spread.send()
            except ReliqError as error:
                error.sent = (*ids, *error.sent)
                raise
        return ids

    def is_away(self, name: str) -> bool:
        return self._away.get(name, 0.0) > time.monotonic()

    def note_away(self, name: str) -> None:
        """Note that a partition could not be reached."""
        self._away[name] = time.monotonic() + _AWAY

    def open_ones(self) -> list[str]:
        """Return the queues that take messages without a key, in the order of their turns; those away come last."""
        names = self.layout.names(self.queue)
        first = next(self._turn) % len(names)
        return sorted((*names[first:], *names[:first]), key=self.is_away)


class Spread:
    """One call's messages, on their way to the partitions."""

    def __init__(
        self, partitions: Partitions, messages: Sequence[NewMessage], wanted: Durability | None, retries: int | None
    ) -> None:
        self._partitions = partitions
        self._messages = messages
        self._wanted = wanted
        self._retries = retries
        self._ids: dict[int, str] = {}  #: by the place of a message that was enqueued
        self._refused: dict[int, list[str]] = {}  #: by the place of a message: which partitions have refused it
        self._looked = False  #: whether the layout was read again for them
        self._unreachable: set[str] = set()  #: partitions that messages without a key have tried
        self._error: ReliqError | None = None

    def send(self) -> Steps[list[str]]:
        """Send until each message is enqueued; raises the first error that another try would not mend."""
        left: Sequence[int] = range(len(self._messages))
        for _ in range(_OFFERS):
            shares = yield from self._shares(left)
            partitions = [self._partitions.named(name) for name, _ in shares]
            answers = yield Together(
                [
                    one.send(self._taken(places), self._wanted, self._retries, self._partitions.layout.version)
                    for one, (_, places) in zip(partitions, shares, strict=True)
                ]
            )
            for (name, places), answer in zip(shares, answers, strict=True):
                self._note(name, places, answer)
            if self._error is not None:
                self._error.sent = tuple(self._ids[place] for place in sorted(self._ids))
                raise self._error
            left = [place for place in range(len(self._messages)) if place not in self._ids]
            if not left:
                return [self._ids[place] for place in range(len(self._messages))]
        raise RedisUnavailable(
            f"the partitions of queue {self._partitions.queue!r} refuse {len(left)} messages: the change of their "
            "number does not take effect; see `reliq partitions`"
        )

    def _note(self, name: str, places: Sequence[int], answer: Any) -> None:
        """Note what has become of the messages of one partition."""
        if not isinstance(answer, ReliqError):
            self._ids.update(zip(places, answer, strict=True))
            return
        self._ids.update(zip(places, answer.sent, strict=False))
        rest = places[len(answer.sent) :]
        if isinstance(answer, Moved):
            for place in rest:
                if isinstance(self._messages, RawBatch) or self._messages[place].id in answer.ids:
                    self._refused.setdefault(place, []).append(name)
                    if not isinstance(self._messages, RawBatch):
                        self._messages[place].held = self._messages[place].id in answer.held
            return
        if isinstance(answer, (RedisUnavailable, OutcomeUnknown)):
            self._partitions.note_away(name)
        if isinstance(answer, RedisUnavailable) and self._may_go_elsewhere(rest):
            self._unreachable.add(name)
            if not self._unreachable.issuperset(self._partitions.layout.names(self._partitions.queue)):
                return
        self._fail(answer)

    def _fail(self, error: ReliqError) -> None:
        """Note why messages were not enqueued; that it is not known of some outweighs the rest."""
        if isinstance(error, OutcomeUnknown) and isinstance(self._error, OutcomeUnknown):
            self._error = OutcomeUnknown(str(self._error), (*self._error.ids, *error.ids))
        elif isinstance(error, OutcomeUnknown) or self._error is None:
            self._error = error

    def _may_go_elsewhere(self, places: Iterable[int]) -> bool:
        if isinstance(self._messages, RawBatch):
            return True
        return all(bucket_of(self._messages[place]) is None for place in places)

    def _taken(self, places: Sequence[int]) -> Sequence[NewMessage]:
        if isinstance(places, range):
            return self._messages[places.start : places.stop]
        return [self._messages[place] for place in places]

    def _shares(self, left: Sequence[int]) -> Steps[list[tuple[str, Sequence[int]]]]:
        """Return which partition is offered which messages, by their places in the call."""
        if isinstance(self._messages, RawBatch):
            if self._refused:
                yield from self._look_again()
            return self._spread(left)
        buckets = {place: bucket for place in left if (bucket := bucket_of(self._messages[place])) is not None}
        if any(not self._homes(place, buckets.get(place)) for place in self._refused):
            yield from self._look_again()
        shares: dict[str, list[int]] = {}
        for place, bucket in buckets.items():
            shares.setdefault(self._homes(place, bucket)[0], []).append(place)
        return [*shares.items(), *self._spread([place for place in left if place not in buckets])]

    def _homes(self, place: int, bucket: int | None) -> list[str]:
        """Return the homes of a message that have not refused it; none for one without a key that was refused."""
        if bucket is None:
            return []
        keeps = self._messages[place].dedup_key is not None
        homes = self._partitions.layout.homes(self._partitions.queue, bucket, kept=keeps)
        return [one for one in homes if one not in self._refused.get(place, ())]

    def _look_again(self) -> Steps[None]:
        """Read the layout again, because all homes of a message have refused it."""
        if self._looked:
            yield ops.Sleep(_SETTLING)
        self._looked = True
        yield from self._partitions.read()
        for place in self._refused if not isinstance(self._messages, RawBatch) else ():
            self._messages[place].held = False
        self._refused.clear()

    def _spread(self, free: Sequence[int]) -> list[tuple[str, Sequence[int]]]:
        """Return equal parts of the messages without a key, for as many partitions as are worth a call."""
        if not free:
            return []
        names = [one for one in self._partitions.open_ones() if one not in self._unreachable]
        count = max(1, min(len(names), -(-len(free) // _SHARE)))
        size = -(-len(free) // count)
        parts = [free[start : start + size] for start in range(0, len(free), size)]
        return list(zip(names, parts, strict=False))


def checked(answers: Sequence[Any]) -> list[Any]:
    """Return the answers to steps that ran together; raises the first error among them."""
    for one in answers:
        if isinstance(one, ReliqError):
            raise one
    return list(answers)
