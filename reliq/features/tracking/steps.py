"""The steps that find messages by id, and cancel them by id, key or headers, wherever they are.

Nothing of the hot path keeps an index of the ready messages, so they are looked through, a part with each call.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from reliq import ops
from reliq.contract.counters import LAST_EVENTS
from reliq.contract.values import check_id
from reliq.errors import InvalidSetting, OutcomeUnknown
from reliq.features.tracking import ops as own
from reliq.features.tracking.hits import Hits
from reliq.features.tracking.model import Cancellation, Event, Found
from reliq.features.tracking.ops import Match, Swept, Wanted
from reliq.features.tracking.text_search import TextSearch
from reliq.model.delayed_message import DelayedMessage
from reliq.model.element import Undecodable
from reliq.model.found import CancelledMany, Place
from reliq.model.keys import QueueKeys
from reliq.model.listed_message import Glimpse, ListedMessage
from reliq.model.message import Message
from reliq.model.outgoing import check_headers, check_key
from reliq.ops import Steps, Stray
from reliq.ops.schema import Counter
from reliq.protocol.acts import counted
from reliq.protocol.bringing import withdraw
from reliq.protocol.features import HANDLED, HIDDEN
from reliq.protocol.hidden import Hidden
from reliq.protocol.homes import QueueHomes
from reliq.protocol.listing import read_by_id, read_letter
from reliq.protocol.progress import Progress, unwatched
from reliq.protocol.reports import forget_reports
from reliq.runtime.pieces import pieces

_CANCELLATION = "the cancellation"
_PASSES = 2  #: looks through the whole queue for one message, which may move during the first
_CONSUMERS = 100  #: processing lists that are read in one round trip


class Tracking:
    """The operations on single messages of one queue with all of its homes."""

    def __init__(self, homes: QueueHomes) -> None:
        self.homes = homes

    def find(self, identity: str) -> Steps[Found | None]:
        """Return where a message is; None if it is unknown."""
        found = yield from self.homes.any_of(lambda keys: Search(keys).find(identity), lambda one: one is not None)
        there = [one for one in found if one is not None]
        return min(there, key=lambda one: one.place is Place.DONE, default=None)

    def search(self, text: str, place: str | None, limit: int, most: int) -> Steps[Hits]:
        """Return the messages that contain a text."""
        return (yield from TextSearch.checked(text, place, limit, most).of_queue(self.homes))

    def cancel(self, identity: str) -> Steps[Cancellation]:
        """Cancel a message, wherever it is."""
        order = [*Cancellation]
        ends = (Cancellation.CANCELLED, Cancellation.TOLD)
        answers = yield from self.homes.any_of(lambda keys: Search(keys).cancel(identity), lambda one: one in ends)
        return min(answers, key=order.index)

    def cancel_many(
        self, key: str | None, headers: Mapping[str, str] | None, dry_run: bool, progress: Progress = unwatched
    ) -> Steps[CancelledMany]:
        """Cancel the messages with a key, or with all of these headers; raises InvalidSetting without either."""
        cancelled: dict[str, int] = {}

        def progress_of(queue: str) -> Progress:
            def note(count: int) -> None:
                cancelled[queue] = count
                progress(sum(cancelled.values()))

            return note

        def cancel(keys: QueueKeys) -> Steps[CancelledMany]:
            with counted(_CANCELLATION, keys, lambda: 0 if dry_run else cancelled.get(keys.queue, 0)):
                return (yield from Search(keys).cancel_many(key, headers, dry_run, progress_of(keys.queue)))

        homes = self.homes
        answers = yield from (homes.each(cancel) if dry_run else homes.act(_CANCELLATION, cancel))
        return CancelledMany(sum(one.cancelled for one in answers), sum(one.told for one in answers))


class Search:
    """The same for one home."""

    def __init__(self, keys: QueueKeys) -> None:
        self.keys = keys
        self._told_at_home = 0  #: messages that waited here for a monitor, and that a consumer of their home holds now

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
        return replace(found, since=since, progress=(yield ops.reported(self.keys, identity)), history=history)

    def history(self, identity: str) -> Steps[tuple[Event, ...]]:
        """Return the transitions of a message that the queue's history has, oldest first."""
        start, events = b"-", []
        while start:
            start, some = yield own.biography(self.keys, identity, start)
            events += some
        return tuple(events)

    def _locate(self, identity: str) -> Steps[Found | None]:
        wanted, found = Wanted.with_id(identity), None
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

    def _find_tracked(self, wanted: Wanted, where: bytes) -> Steps[Found]:
        """Describe a ready or waiting message from where it has entered the queue."""
        identity = str(wanted.text)
        if not where.isdigit():
            element = yield ops.in_line(self.keys, where)
            match = Match(identity, -1, Glimpse(element)) if element else None
            if match is not None:
                return (yield from self._describe(self.keys.waiting, match))
        entered, guesses = int(where) if where.isdigit() else 0, []
        for place in (self.keys.messages, self.keys.high, self.keys.low):
            length, tail = yield [ops.list_length(place), ops.from_tail(place, 0, 1)]
            if not tail:
                continue
            first = yield from self._entered(tail[0])
            behind = min(max(0, entered - first), max(0, length - 1))
            guesses.append(behind)
            swept: Swept = yield own.sweep(self.keys, place, max(0, length - behind - own.SWEEP // 2), wanted)
            if not swept.matches and length > own.SWEEP:  # others have left, or went elsewhere
                behind = yield from self._behind(place, length, entered)
                swept = yield own.sweep(self.keys, place, max(0, length - behind - own.SWEEP // 2), wanted)
            if swept.matches:
                return (yield from self._describe(place, swept.matches[0]))
        return Found(self.keys.logical, identity, Place.READY, position=guesses[0] if guesses else 0)

    def _behind(self, place: str, length: int, entered: int) -> Steps[int]:
        """Return about how many of a list have entered before, by halves: they lie in the order of their numbers."""
        low, high = 0, length
        while high - low > own.SWEEP // 4:
            middle = (low + high) // 2
            some = yield ops.from_tail(place, middle, middle + 1)
            if some and (yield from self._entered(some[0])) < entered:
                low = middle
            else:
                high = middle
        return low

    def _entered(self, element: bytes) -> Steps[int]:
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

    def cancel(self, identity: str) -> Steps[Cancellation]:
        """Remove the message if it is not in processing; else tell its consumer."""
        wanted, lost, call = Wanted.with_id(check_id(identity)), None, self.keys.new_call()
        for _ in range(_PASSES):
            try:
                if (yield from self._remove(identity, wanted, call)):
                    return Cancellation.CANCELLED
            except OutcomeUnknown as error:  # if the message is still there, the next pass removes it
                lost = error
            if self._told_at_home or (yield from self._tell(wanted)):
                return Cancellation.TOLD
            if (yield from self._has_ended(identity)):
                return Cancellation.DONE
        if lost is not None:
            raise lost
        return Cancellation.UNKNOWN

    def _remove(self, identity: str, wanted: Wanted, call: str) -> Steps[bool]:
        """Remove a message that is not in processing; return whether it was there. Raises OutcomeUnknown."""
        now = yield ops.server_time()
        if (yield ops.cancel(self.keys, identity, call)) or (yield from self._withdraw(identity, call)):
            yield from forget_reports(self.keys, {identity: now})
            return True
        if (yield from self._sweep(self._ready_places(), wanted, removals=1, at_most=1, call=call)):
            return True
        if (yield ops.exists(call)):  # a part was repeated that had removed it
            yield from forget_reports(self.keys, {identity: now})
            return True
        return False

    def _has_ended(self, identity: str) -> Steps[bool]:
        """Whether the message is a dead letter, or a feature or its history says that it was handled."""
        if (yield from read_letter(self.keys, identity)) is not None:
            return True
        for was_handled in HANDLED:
            if (yield from was_handled(self.keys, identity)):
                return True
        history = yield from self.history(identity)
        return bool(history) and history[-1].name == Counter.ACKED

    def cancel_many(
        self, key: str | None, headers: Mapping[str, str] | None, dry_run: bool, progress: Progress = unwatched
    ) -> Steps[CancelledMany]:
        """Cancel the messages with a key, or with all of these headers; raises InvalidSetting without either."""
        wanted = _wanted(key, headers)
        if dry_run:
            cancelled = len((yield from self._hidden(wanted)))
            cancelled += yield from self._sweep(
                (self.keys.delayed, *self._ready_places()), wanted, 0, progress=progress
            )
            return CancelledMany(cancelled, len((yield from self._held(wanted))))
        cancelled = yield from self._withdraw_many(wanted)
        # Delayed ones twice: a retry may have gone there meanwhile; and a handler may have begun to wait.
        places = (self.keys.delayed, *self._ready_places(), self.keys.delayed)
        cancelled += yield from self._sweep(places, wanted, own.REMOVALS, progress=progress)
        told = self._told_at_home + (yield from self._tell(wanted))
        cancelled += yield from self._withdraw_many(wanted)
        return CancelledMany(cancelled, told)

    # --- the places ---

    def _ready_places(self) -> Iterator[str]:
        """Yield the places of ready messages, in an order in which none moves from a later one to an earlier one."""
        yield from (self.keys.waiting, self.keys.high, self.keys.low, self.keys.next_round, self.keys.messages)

    def _start(self, place: str) -> bytes | int:
        return b"" if place == self.keys.waiting else 0

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

    def _find_ready(self, wanted: Wanted) -> Steps[Found | None]:
        for place in self._ready_places():
            start: bytes | int | None = self._start(place)
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

    def _find_held(self, wanted: Wanted) -> Steps[Found | None]:
        for consumer, match in (yield from self._held(wanted)):
            return self._found(
                ListedMessage.read(self.keys.logical, match.glimpse), Place.PROCESSING, consumer=consumer
            )
        return None

    def _held(self, wanted: Wanted) -> Steps[list[tuple[str, Match]]]:
        """Return the matching messages in processing, each with its consumer."""
        consumers = yield ops.members(self.keys.consumers)
        matches: list[tuple[str, Match]] = []
        for some in pieces(consumers, _CONSUMERS):
            unread: dict[str, bytes | int] = dict.fromkeys(some, 0)
            while unread:
                replies = yield [
                    own.sweep(self.keys, self.keys.processing(consumer), start, wanted)
                    for consumer, start in unread.items()
                ]
                pages = dict(zip(unread, replies, strict=True))
                matches += [(consumer, match) for consumer, page in pages.items() for match in page.matches]
                unread = {consumer: page.following for consumer, page in pages.items() if page.following is not None}
        return matches

    def _found(self, message: ListedMessage, place: Place, **details: object) -> Found:
        return Found(self.keys.logical, message.id, place, message, **details)  # type: ignore[arg-type]

    # --- cancelling ---

    def _withdraw(self, identity: str, call: str) -> Steps[bool]:
        """Cancel a message that no consumer sees yet."""
        for hidden in HIDDEN:
            if (yield from hidden.withdraw(self.keys, identity, call)):
                return True
        return False

    def _hidden(self, wanted: Wanted) -> Steps[list[tuple[Hidden, str]]]:
        """Return the ids of the matching messages that no consumer sees."""
        found: dict[tuple[Hidden, str], None] = {}
        for hidden in HIDDEN:
            if hidden.listed is None:
                continue
            of_queue, element = hidden.listed
            cursor, more = 0, True
            while more:
                cursor, pairs = yield ops.scan_hash(of_queue(self.keys), cursor, own.SWEEP)
                some = [ListedMessage.read(self.keys.logical, Glimpse(element(stored))) for _, stored in pairs]
                found |= dict.fromkeys((hidden, one.id) for one in some if wanted.fits(one))
                more = cursor > 0
        return list(found)

    def _withdraw_many(self, wanted: Wanted) -> Steps[int]:
        """Cancel the matching messages that no consumer sees; return how many."""
        now: int = yield ops.server_time()
        gone: list[str] = []
        for hidden, identity in (yield from self._hidden(wanted)):
            if (yield from hidden.withdraw(self.keys, identity, self.keys.new_call())):
                gone.append(identity)
        yield from forget_reports(self.keys, dict.fromkeys(gone, now))
        return len(gone)

    def _sweep(
        self,
        places: Iterable[str],
        wanted: Wanted,
        removals: int,
        at_most: float = math.inf,
        progress: Progress = unwatched,
        call: str | None = None,
    ) -> Steps[int]:
        """Count the matching messages of these places, until `at_most`; each call removes up to `removals` of them.

        `call`: of `new_call`: what a repeated call has removed is not counted, but exists as this key.
        """
        count, now = 0, 0
        if removals:
            now = yield ops.server_time()
        for place in places:
            start: bytes | int | None = self._start(place)
            while start is not None and count < at_most:
                swept: Swept = yield own.sweep(self.keys, place, start, wanted, removals, call)
                count += len(swept.matches)
                start = swept.following
                for match in swept.matches:
                    if match.stray and not (yield from self._withdraw_stray(match.id, match.stray)):
                        count -= 1
                if removals:
                    yield from forget_reports(self.keys, dict.fromkeys(self._started(swept), now))
                if count:
                    progress(count)
        return count

    def _withdraw_stray(self, identity: str, stray: Stray) -> Steps[bool]:
        """Cancel a message that a monitor takes to another home: here, or there if it has come."""
        withdrawn = yield from withdraw(self.keys, [stray], Counter.CANCELLED)
        if not withdrawn.come:
            return True
        (home,) = withdrawn.come
        outcome = yield from Search(QueueKeys(home)).cancel(identity)
        self._told_at_home += outcome == Cancellation.TOLD
        return outcome == Cancellation.CANCELLED

    def _started(self, swept: Swept) -> list[str]:
        """Return the ids of those messages that a handler may have reported about."""
        return [match.id for match in swept.matches if ListedMessage.read(self.keys.logical, match.glimpse).was_started]

    def _tell(self, wanted: Wanted) -> Steps[int]:
        """Note for the consumers of matching messages that these are cancelled; return how many they hold."""
        told = 0
        for consumer, match in (yield from self._held(wanted)):
            sent = ListedMessage.read(self.keys.logical, match.glimpse).enqueued_at
            told += yield own.tell(self.keys, consumer, match.id, sent)
        return told


def _wanted(key: str | None, headers: Mapping[str, str] | None) -> Wanted:
    if (key is None) == (headers is None):
        raise InvalidSetting("give cancel_many a key, or headers: messages with all of these headers are cancelled")
    if key is not None:
        return Wanted.with_key(check_key(key))
    wanted = check_headers(headers or {})
    if not wanted:
        raise InvalidSetting("headers is empty: every message has them all; to remove all messages, use purge")
    return Wanted.with_headers(wanted)
