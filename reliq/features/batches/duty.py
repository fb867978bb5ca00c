"""Batches: when all messages of one have ended, the message at its end is sent, and its counts are deleted."""

from collections.abc import Container, Mapping, Sequence

from reliq import ops
from reliq.errors import RedisUnsuitable
from reliq.features.batches import ops as own
from reliq.features.batches.steps import end, homes_of, waits
from reliq.model.keys import BATCHES, QueueKeys, batch_record
from reliq.model.partitions import Layout
from reliq.ops import Steps
from reliq.ops.schema import Batch as Field
from reliq.runtime.pieces import grouped, pieces
from reliq_monitor.attempts import each
from reliq_monitor.duty import Duty
from reliq_monitor.known import Known
from reliq_monitor.queue_scan import Survey, pages

MOST = 20_000  #: batches of which one turn asks whether they are open
LOOKS = 1000  #: of these, so many whose records and counts it reads
_INCOMPLETE = 20  #: of these, so many that do not seem to be complete
_PIECE = 1000  #: batches that one command reads
COUNTS = 1000  #: fields of a queue that one turn looks at for counts of batches that have ended


class Batches(Duty[int]):
    """The batches that have not ended.

    A batch with an open message in some home has not ended, so its count there is all that a turn reads of it, in one
    command with those of all other batches, and nothing while the server tells of no change. What is left is looked at:
    new batches, and those whose open messages are elsewhere or have ended. Of those that are not complete, few are
    looked at in each turn: an earlier version does not note that they are.
    """

    name = "batches"
    effect = "the messages of `on_done` and `on_dead` of batches that have ended are not sent"
    of_queues = False
    common = "@batches"

    def __init__(self) -> None:
        self._first = 0  #: so many of the oldest ones were asked about since the beginning was
        self._open_in: dict[str, str] = {}  #: by batch: the home where the last round has found an open message
        self._found: dict[str, str] = {}  #: the same of this round
        self._turns = 0

    def turn(self, survey: Survey) -> Steps[int]:
        """End the batches whose messages have ended; return how many."""
        name, attempts, ended = self.name, survey.attempts, 0
        batches = yield from attempts.of_all(name, self._batches(survey), None)
        if batches is None:
            return 0
        yield from self._ask(survey, batches)
        layouts: dict[str, Layout] = {}
        for page in pages(self._to_look_at(batches)):
            looks = self._without_open(page, survey, layouts)
            few = yield from attempts.of_all(name, looks, (), "counts", other_server=True)
            for batch in few:
                ended += yield from attempts.of_all(name, end(batch), otherwise=False, item=batch, other_server=True)
        self._turns += 1
        self._first += MOST - ended
        if len(batches) < MOST:
            self._first, self._open_in, self._found = 0, self._found, {}
        return ended

    def _batches(self, survey: Survey) -> Steps[dict[str, bool] | None]:
        """Return the batches that this turn asks about, and whether each is complete."""
        if not self._first and (known := survey.known.get(BATCHES, self.name)) is not None:
            found: dict[str, bool] = known
            return found
        found = {}
        for first in range(self._first, self._first + MOST, _PIECE):
            page = yield own.open_batches(_PIECE, first)
            found |= page
            if len(page) < _PIECE:
                break
        if self._is_all(found):
            survey.known.note(BATCHES, found, self.name)
        return found

    def _is_all(self, batches: Mapping[str, bool]) -> bool:
        """Whether there are no other batches: then what is known of a home is known of all batches there."""
        return not self._first and len(batches) < MOST

    def _ask(self, survey: Survey, batches: Mapping[str, bool]) -> Steps[None]:
        """Find the batches that have open messages where they had some in the last round."""
        by_home = grouped((home, batch) for batch in batches if (home := self._open_in.get(batch)))
        known = survey.known if self._is_all(batches) else Known()
        unread = []
        for home, some in by_home.items():
            keys = QueueKeys(home)
            if survey.away(keys) or known.get(keys.followed, self.name):
                self._found.update(dict.fromkeys(some, home))
            else:
                unread += [(keys, piece) for piece in pieces(some, _PIECE)]
        for page in pages(unread):
            yield from survey.attempts.of_all(self.name, self._read(page, known), None, "counts", other_server=True)

    def _read(self, reads: Sequence[tuple[QueueKeys, Sequence[str]]], known: Known) -> Steps[None]:
        """Read the counts of batches in homes, and note the home with most open messages of each that has some."""
        most: dict[str, tuple[int, str]] = {}
        counts = (yield [own.open_counts(keys, batches) for keys, batches in reads]) if reads else ()
        for (keys, batches), some in zip(reads, counts, strict=True):
            known.note(keys.followed, answer=True, what=self.name)
            for batch, count in zip(batches, some, strict=True):
                if count:
                    most[batch] = max(most.get(batch, (0, "")), (count, keys.queue))
        self._found.update((batch, home) for batch, (_, home) in most.items())

    def _to_look_at(self, batches: Mapping[str, bool]) -> list[str]:
        """Return those of the other batches that this turn looks at."""
        due: list[str] = []
        incomplete: list[str] = []
        for batch, is_complete in batches.items():
            if batch not in self._found:
                (due if is_complete or batch in self._open_in else incomplete).append(batch)
        return [*self._part(due, LOOKS), *self._part(incomplete, _INCOMPLETE)]

    def _part(self, batches: list[str], most: int) -> list[str]:
        """Return as many of the batches as one turn looks at; each turn begins with others."""
        first = self._turns * most % len(batches) if len(batches) > most else 0
        return [*batches[first:], *batches[:first]][:most]

    def _without_open(self, batches: Sequence[str], survey: Survey, layouts: dict[str, Layout]) -> Steps[Sequence[str]]:
        """Return those of the batches that may have ended. `layouts`: of the queues that this turn has read."""
        try:
            queues = yield from self._queues_of(batches, survey)
            new = {keys.queue: keys for some in queues.values() for keys in some if keys.queue not in layouts}
            if new:
                layouts.update(zip(new, (yield [ops.layout(keys) for keys in new.values()]), strict=True))
            homes = _reached({batch: homes_of(some, layouts) for batch, some in queues.items()}, survey)
            by_home = grouped((keys.queue, batch) for batch, some in homes.items() for keys in some)
            yield from self._read([(QueueKeys(home), some) for home, some in by_home.items()], Known())
            return [batch for batch in homes if batch not in self._found]
        except (RedisUnsuitable, ValueError):  # a record or a count that cannot be read: it fails alone
            return batches

    @staticmethod
    def _queues_of(batches: Sequence[str], survey: Survey) -> Steps[Mapping[str, Sequence[QueueKeys]]]:
        """Return the queues of those of the batches that need not wait.

        One that is ending has none: it ends, even if a message of it was sent again since.
        """
        now, *records = yield [ops.server_time(), *map(own.batch_fields, batches)]
        queues = {
            batch: [] if Field.ENDING in record else own.queues_in(record)
            for batch, record in zip(batches, records, strict=True)
            if not waits(record, now)
        }
        return _reached(queues, survey)


def _reached(places: Mapping[str, Sequence[QueueKeys]], survey: Survey) -> dict[str, Sequence[QueueKeys]]:
    """Return those of the batches of which no queue or home is on a server that is away."""
    return {batch: some for batch, some in places.items() if not any(map(survey.away, some))}


class LateCounts(Duty[int]):
    """Deletes counts of batches that have ended: a message that was sent later has made them anew.

    A batch has a record from before its first message until its end.
    """

    name = "late counts"
    effect = "counts stay in a queue to which a message was sent after the end of its batch"
    interval = 60.0

    def __init__(self) -> None:
        self._cursors: dict[str, int] = {}  #: by queue: where its next page begins

    def keep(self, queues: Container[str]) -> None:
        """Forget the places in other queues."""
        self._cursors = {queue: cursor for queue, cursor in self._cursors.items() if queue in queues}

    def turn(self, survey: Survey) -> Steps[int]:
        """Look at a page of each queue that has counts; return how many counts were deleted."""
        deleted, attempts = 0, survey.attempts
        for page in pages((yield from survey.having(self.name, lambda keys: keys.followed, survey.queues))):
            for keys, batched in (yield from attempts.together(self.name, page, each(own.batches_in))):
                if batched:
                    deleted += yield from attempts.of_queue(
                        self.name, keys, self._clean(keys), 0, "counts", other_server=True
                    )
        return deleted

    def _clean(self, keys: QueueKeys) -> Steps[int]:
        cursor, counts = yield own.scan_counts(keys, self._cursors.pop(keys.queue, 0), COUNTS)
        if cursor:
            self._cursors[keys.queue] = cursor
        if not counts:
            return 0
        there = set((yield ops.existing([batch_record(batch) for batch in counts])))
        ended = [batch for place, batch in enumerate(counts, 1) if place not in there]
        return sum((yield [own.batch_forget(keys, batch) for batch in ended])) if ended else 0
