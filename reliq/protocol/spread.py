"""One call's messages, on their way to the homes of a queue: each to that of its key, the others spread evenly."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from reliq.errors import OutcomeUnknown, QueueFull, RedisUnavailable, ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.model.partitions import bucket_of
from reliq.ops import Steps, Together
from reliq.protocol.batch import RawBatch, Route
from reliq.protocol.durability import ANY, Terms
from reliq.protocol.home import AtLimit, Moved, count_rejected
from reliq.protocol.homes import LayoutWait, QueueHomes
from reliq.runtime.pieces import grouped, pieces

_PART = 1000  #: messages that a call sends to one partition at a time
_SHARE = 100  #: messages; a call with fewer of them goes to one partition
_FITTINGS = 3  #: how often partitions with room are looked for


#: Steps before messages are offered to a home.
Before = Callable[[QueueKeys, Sequence[NewMessage]], Steps[None]]


def send(
    homes: QueueHomes, messages: Sequence[NewMessage], terms: Terms = ANY, before: Before | None = None
) -> Steps[list[str]]:
    """Enqueue messages; return their ids. An error has those that were enqueued, by place, as `enqueued`."""
    ids: list[str] = []
    try:
        layout = homes.current() or (yield from homes.read())
        if not layout.several:
            try:
                if before is not None:
                    yield from before(homes.first.keys, messages)
                return (yield from homes.first.send(messages, terms, Route(layout.version)))
            except Moved as moved:  # the queue has several homes since
                ids += moved.sent
            layout = yield from homes.read()
        for start in range(len(ids), len(messages), _PART * layout.count):
            ids += yield from Spread(homes, messages[start : start + _PART * layout.count], terms, before).send()
    except AtLimit as full:
        error = QueueFull(str(full))
        error.enqueued = full.enqueued
        _complete(error, ids, messages, homes.layout.count)
        yield from count_rejected((homes.first.keys, _refused(messages, error.enqueued)))
        yield from homes.look_when_full()
        raise error from None
    except ReliqError as error:
        _complete(error, ids, messages, homes.layout.count)
        raise
    return ids


def _refused(messages: Sequence[NewMessage], enqueued: Collection[int]) -> int:
    """Return how many refused messages of a call are counted."""
    if isinstance(messages, RawBatch):
        return len(messages) - len(enqueued)
    return sum(place not in enqueued and not one.offered for place, one in enumerate(messages))


def _complete(error: ReliqError, ids: Sequence[str], messages: Sequence[NewMessage], homes: int) -> None:
    """Make the error of one part of a send that of the whole call; the parts before have enqueued `ids`."""
    later = {len(ids) + position: identity for position, identity in error.enqueued.items()}
    error.enqueued = dict(enumerate(ids)) | later
    if error.enqueued:
        first = "the first " if homes == 1 else ""
        enqueued = f"{first}{len(error.enqueued)} of the {len(messages)} messages of the call were enqueued"
        error.args = (f"{error}; {enqueued}",)


class Offer(NamedTuple):
    """Some of the messages, for one partition."""

    name: str  #: the queue that the partition is
    places: Sequence[int]  #: in the call
    free: bool  #: whether any other partition may take them, because they have no key


class Spread:
    """One call's messages, on their way to the partitions."""

    def __init__(
        self, partitions: QueueHomes, messages: Sequence[NewMessage], terms: Terms, before: Before | None = None
    ) -> None:
        self._partitions = partitions
        self._messages = messages
        self._terms = terms
        self._before = before
        self._ids: dict[int, str] = {}  #: by the place of a message that was enqueued
        self._refused: dict[int, list[str]] = {}  #: by the place of a message: which partitions have refused it
        self._waiting = frozenset[str]()  #: ids of messages that wait in the partition they are offered next
        self._layout_wait = LayoutWait(partitions)
        self._unreachable: set[str] = set()  #: partitions that messages without a key have tried
        self._full: dict[str, int] = {}  #: by partition: how many messages without a key it had no room for
        self._fittings = 0  #: how often others were looked for that have room
        self._error: ReliqError | None = None

    def send(self) -> Steps[list[str]]:
        """Send until each message is enqueued; raises the first error that another try would not mend."""
        left: Sequence[int] = range(len(self._messages))
        while left:
            offers = yield from self._offers(left)
            answers = yield Together([self._offer(one) for one in offers])
            for offer, answer in zip(offers, answers, strict=True):
                self._note(offer, answer)
            self._raise()
            left = [place for place in range(len(self._messages)) if place not in self._ids]
        return [self._ids[place] for place in range(len(self._messages))]

    def _offer(self, offer: Offer) -> Steps[list[str]]:
        route = Route(self._partitions.layout.version, offer.free, self._waiting)
        partition, messages = self._partitions.named(offer.name), self._messages_at(offer.places)
        if self._before is not None:
            yield from self._before(partition.keys, messages)
        return (yield from partition.send(messages, self._terms, route))

    def _note(self, offer: Offer, answer: Any) -> None:
        """Note what has become of the messages that a partition was offered."""
        if not isinstance(answer, ReliqError):
            self._ids.update(zip(offer.places, answer, strict=True))
            return
        self._ids.update((offer.places[position], identity) for position, identity in answer.enqueued.items())
        rest = [place for place in offer.places if place not in self._ids]
        if isinstance(answer, Moved):
            for place in rest:
                if isinstance(self._messages, RawBatch) or self._messages[place].id in answer.ids:
                    self._refused.setdefault(place, []).append(offer.name)
            self._waiting = (self._waiting - answer.ids) | answer.held
            return
        if isinstance(answer, (RedisUnavailable, OutcomeUnknown)):
            self._partitions.note_away(offer.name)
        if isinstance(answer, RedisUnavailable) and offer.free:
            self._unreachable.add(offer.name)
            if self._partitions.has_others(self._unreachable):
                return
        if isinstance(answer, AtLimit) and answer.final and self._fittings < _FITTINGS:
            self._full[offer.name] = len(rest)
            return
        self._fail(answer)

    def _raise(self) -> None:
        """Raise the error that was noted, if there is one."""
        if self._error is not None:
            self._error.enqueued = dict(sorted(self._ids.items()))
            raise self._error

    def _fail(self, error: ReliqError) -> None:
        """Note why messages were not enqueued; that it is not known of some outweighs the rest."""
        if isinstance(error, OutcomeUnknown) and isinstance(self._error, OutcomeUnknown):
            self._error = OutcomeUnknown(str(self._error), (*self._error.ids, *error.ids))
        elif isinstance(error, OutcomeUnknown) or self._error is None:
            self._error = error

    def _messages_at(self, places: Sequence[int]) -> Sequence[NewMessage]:
        if isinstance(places, range):
            return self._messages[places.start : places.stop]
        return [self._messages[place] for place in places]

    def _offers(self, left: Sequence[int]) -> Steps[list[Offer]]:
        """Return which partition is offered which messages."""
        if isinstance(self._messages, RawBatch):
            if self._refused:
                yield from self._look_again(left)
            return (yield from self._spread(left))
        buckets = {place: bucket for place in left if (bucket := bucket_of(self._messages[place])) is not None}
        if any(not self._homes(place, buckets.get(place)) for place in self._refused):
            yield from self._look_again(left)
        at_home = grouped((self._homes(place, bucket)[0], place) for place, bucket in buckets.items())
        spread = yield from self._spread([place for place in left if place not in buckets])
        return [*(Offer(name, places, free=False) for name, places in at_home.items()), *spread]

    def _homes(self, place: int, bucket: int | None) -> list[str]:
        """Return the homes of a message that have not refused it; none for one without a key that was refused."""
        if bucket is None:
            return []
        keeps = self._messages[place].dedup_key is not None
        homes = self._partitions.layout.homes(self._partitions.queue, bucket, kept=keeps)
        return [one for one in homes if one not in self._refused.get(place, ())]

    def _look_again(self, left: Sequence[int]) -> Steps[None]:
        """Read the layout again, because all homes of a message have refused it."""
        try:
            yield from self._layout_wait.look_again(len(left))
        except ReliqError as error:
            self._fail(error)
            self._raise()
        self._waiting = frozenset()
        self._refused.clear()

    def _spread(self, free: Sequence[int]) -> Steps[list[Offer]]:
        """Return equal parts of the messages without a key, for as many partitions as are worth a call.

        Once partitions have refused theirs, return parts for which there is room.
        """
        if not free:
            return []
        if self._full:
            return (yield from self._fitting(free))
        names = [one for one in self._partitions.open_ones() if one not in self._unreachable]
        if not names:  # the layout has changed since these were tried
            self._unreachable.clear()
            names = self._partitions.open_ones()
        count = max(1, min(len(names), -(-len(free) // _SHARE)))
        size = -(-len(free) // count)
        parts = [*pieces(free, size)]
        return [Offer(name, part, free=True) for name, part in zip(names, parts, strict=False)]

    def _fitting(self, free: Sequence[int]) -> Steps[list[Offer]]:
        """Return parts of messages without a key that fit into the partitions; raises AtLimit without room for all."""
        self._fittings += 1
        rooms = yield from self._partitions.rooms()
        for name, refused in self._full.items():
            if rooms.get(name, 0) >= refused:  # not its share of `max_length` was reached, but that of `max_bytes`
                rooms[name] = 0
        for name in self._unreachable:
            rooms.pop(name, None)
        room = sum(rooms.values())
        if room < len(free):
            partitions = f"the {self._partitions.layout.count} partitions of queue {self._partitions.queue!r}"
            self._fail(AtLimit(f"{partitions} have room for {room} messages; none of the {len(free)} was enqueued"))
            self._raise()
        offers, start = list[Offer](), 0
        for name in sorted(rooms, key=rooms.__getitem__, reverse=True):
            if start < len(free):
                offers.append(Offer(name, free[start : start + rooms[name]], free=True))
                start += rooms[name]
        return offers
