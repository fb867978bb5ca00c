"""The steps that find a message in one home of its queue.

Nothing of the hot path keeps an index of the ready messages, so they are looked through, a part with each call.
"""

from collections.abc import Iterator
from dataclasses import replace

from reliq import ops
from reliq.contract.counters import LAST_EVENTS
from reliq.contract.values import check_id
from reliq.features.tracking import ops as own
from reliq.features.tracking.model import Event, Found
from reliq.features.tracking.ops import Criterion, Match, Swept
from reliq.model.delayed_message import DelayedMessage
from reliq.model.element import Undecodable
from reliq.model.found import Place
from reliq.model.keys import QueueKeys
from reliq.model.listed_message import Glimpse, ListedMessage
from reliq.model.message import Message
from reliq.ops import Steps
from reliq.ops.schema import Counter
from reliq.protocol.features import HIDDEN
from reliq.protocol.listing import read_by_id, read_letter
from reliq.runtime.pieces import pieces

_PASSES = 2  #: looks through the whole queue for one message, which may move during the first
_CONSUMERS = 100  #: processing lists that are read in one round trip


class Locator:
    """Finds messages in one home of a queue."""

    def __init__(self, keys: QueueKeys) -> None:
        self.keys = keys

    def find(self, identity: str) -> Steps[Found | None]:
        """Return where the message is, with what its handler has reported and its history; None if it is unknown."""
        found = yield from self._locate(check_id(identity))
        history = yield from self.history(identity)
        if found is None:
            last = history[-1] if history else None
            if last is None or last.name not in LAST_EVENTS:
                return None
            return Found(self.keys.logical, identity, Place.DONE, reason=last.name, since=last.at, history=history)
        claims = [event.at for event in history if event.name == Counter.CLAIMED]
        since = claims[-1] if claims and found.place is Place.PROCESSING else None
        progress = yield ops.reported(self.keys, identity)
        if progress is not None and found.message is not None and not progress.is_about(found.message.enqueued_at):
            progress = None
        return replace(found, since=since, progress=progress, history=history)

    def history(self, identity: str) -> Steps[tuple[Event, ...]]:
        """Return the transitions of a message that the queue's history has, oldest first."""
        start, events = b"-", []
        while start:
            start, some = yield own.biography(self.keys, identity, start)
            events += some
        return tuple(events)

    def _locate(self, identity: str) -> Steps[Found | None]:
        wanted, found = Criterion.with_id(identity), None
        tracks, where = yield [own.tracks(self.keys), own.tracked(self.keys, identity)]
        for _ in range(_PASSES):
            found = found or (yield from self._find_indexed(identity))
            found = found or (yield from self._find_held(wanted))
            if found is None and tracks and where is not None:
                return (yield from self._find_tracked(wanted, where))
            if found is None and tracks and (yield from self._index_is_complete()):
                return None
            found = found or (yield from self._find_ready(wanted))
        return found or (yield from self._find_indexed(identity))

    def _find_tracked(self, wanted: Criterion, where: bytes) -> Steps[Found]:
        """Describe a ready or waiting message from where it has entered the queue."""
        identity = str(wanted.text)
        if not where.isdigit():
            element = yield ops.in_line(self.keys, where)
            match = Match(identity, -1, Glimpse(element)) if element else None
            if match is not None:
                return (yield from self._describe(self.keys.waiting, match))
        entered, guess = int(where) if where.isdigit() else 0, None
        for place in (self.keys.messages, self.keys.high, self.keys.low):
            length, tail = yield [ops.list_length(place), ops.from_tail(place, 0, 1)]
            if not tail:
                continue
            first = yield from self._entry_number(tail[0])
            behind = min(max(0, entered - first), max(0, length - 1))
            guess = behind if guess is None else guess
            swept = yield from self._around(place, length, behind, wanted)
            if not swept.matches and length > own.SWEEP:  # others have left, or went elsewhere
                behind = yield from self._behind(place, length, entered)
                swept = yield from self._around(place, length, behind, wanted)
            if swept.matches:
                return (yield from self._describe(place, swept.matches[0]))
        return Found(self.keys.logical, identity, Place.READY, position=guess or 0)

    def _around(self, place: str, length: int, behind: int, wanted: Criterion) -> Steps[Swept]:
        """Look through the part of a list in whose middle a message is that has `behind` before it."""
        swept: Swept = yield own.sweep(self.keys, place, max(0, length - behind - own.SWEEP // 2), wanted)
        return swept

    def _behind(self, place: str, length: int, entered: int) -> Steps[int]:
        """Return about how many of a list have entered before, by halves: they lie in the order of their numbers."""
        low, high = 0, length
        while high - low > own.SWEEP // 4:
            middle = (low + high) // 2
            some = yield ops.from_tail(place, middle, middle + 1)
            if some and (yield from self._entry_number(some[0])) < entered:
                low = middle
            else:
                high = middle
        return low

    def _entry_number(self, element: bytes) -> Steps[int]:
        """Return the number under which a ready message has entered the queue; 0 if it is not known."""
        try:
            identity = Message.decode(self.keys.logical, element).id
        except Undecodable:
            return 0
        where = yield own.tracked(self.keys, identity)
        return int(where) if where and where.isdigit() else 0

    def _index_is_complete(self) -> Steps[bool]:
        """Whether the index has all messages. It lacks those that were sent before it, or by programs without reliq."""
        consumers = yield ops.members(self.keys.consumers)
        counts, fields, batches, records = yield [ops.stats(self.keys, consumers), *own.count_tracked(self.keys)]
        return bool(not records and fields - (batches or 0) >= counts.ready + counts.processing + counts.delayed)

    def _find_indexed(self, identity: str) -> Steps[Found | None]:
        """Look where the index finds a message at once: delayed, dead, prepared."""
        delayed = yield from read_by_id(self.keys, self.keys.delayed, identity, shown=0)
        if delayed is not None:
            message = DelayedMessage.read(self.keys.logical, delayed)
            return self._found(message, Place.DELAYED, due_at=message.due_at)
        letter = yield from read_letter(self.keys, identity)
        if letter is not None:
            return self._found(letter, Place.DEAD, died_at=letter.died_at, reason=letter.reason)
        for hidden in HIDDEN:
            element = yield hidden.element(self.keys, identity)
            if element is not None:
                return self._found(ListedMessage.read(self.keys.logical, Glimpse(element)), hidden.place)
        return None

    def _find_ready(self, wanted: Criterion) -> Steps[Found | None]:
        for place in ready_places(self.keys):
            start: bytes | int | None = start_of(self.keys, place)
            while start is not None:
                swept: Swept = yield own.sweep(self.keys, place, start, wanted)
                if swept.matches:
                    return (yield from self._describe(place, swept.matches[0]))
                start = swept.following
        return None

    def _describe(self, place: str, match: Match) -> Steps[Found]:
        message = ListedMessage.read(self.keys.logical, match.glimpse)
        if place == self.keys.waiting:
            flow = yield own.flow_waited_for(self.keys, message.id)
            key = "" if flow else message.limit_key
            return self._found(message, Place.WAITING, waiting_for=key, waiting_for_flow=flow)
        counts = yield ops.stats(self.keys, ())
        limited_by = "paused" if counts.paused else counts.limited_by
        return self._found(message, Place.READY, position=match.behind, limited_by=limited_by)

    def _find_held(self, wanted: Criterion) -> Steps[Found | None]:
        for consumer, match in (yield from find_held(self.keys, wanted)):
            message = ListedMessage.read(self.keys.logical, match.glimpse)
            return self._found(message, Place.PROCESSING, consumer=consumer)
        return None

    def _found(self, message: ListedMessage, place: Place, **details: object) -> Found:
        return Found(self.keys.logical, message.id, place, message, **details)  # type: ignore[arg-type]


def ready_places(keys: QueueKeys) -> Iterator[str]:
    """Yield the places of ready messages, in an order in which none moves from a later one to an earlier one."""
    yield from (keys.waiting, keys.high, keys.low, keys.next_round, keys.messages)


def start_of(keys: QueueKeys, place: str) -> bytes | int:
    """Return where a sweep through a place begins."""
    return b"" if place == keys.waiting else 0


def find_held(keys: QueueKeys, wanted: Criterion) -> Steps[list[tuple[str, Match]]]:
    """Return the matching messages in processing, each with its consumer."""
    consumers = yield ops.members(keys.consumers)
    matches: list[tuple[str, Match]] = []
    for some in pieces(consumers, _CONSUMERS):
        unread: dict[str, bytes | int] = dict.fromkeys(some, 0)
        while unread:
            replies = yield [
                own.sweep(keys, keys.processing(consumer), start, wanted) for consumer, start in unread.items()
            ]
            pages = dict(zip(unread, replies, strict=True))
            matches += [(consumer, match) for consumer, page in pages.items() for match in page.matches]
            unread = {consumer: page.following for consumer, page in pages.items() if page.following is not None}
    return matches
