"""The steps of dead letters: list, filter, redrive, purge."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from reliq import ops
from reliq.contract.outcomes import REASONS
from reliq.contract.values import Duration, check_id, number, seconds, unicode_text, whole, yes_or_no
from reliq.errors import InvalidSetting, OutcomeUnknown, RedisUnavailable, ReliqError
from reliq.model.dead_letter import DeadLetter
from reliq.model.error_text import gist
from reliq.model.keys import QueueKeys
from reliq.model.keywords import DeadLetterFilters, check_names
from reliq.ops import Revival, Steps
from reliq.ops.schema import Counter
from reliq.protocol.bodies import read_bodies, read_starts
from reliq.protocol.done_in_part import counted, done_everywhere
from reliq.protocol.homes import QueueHomes
from reliq.protocol.listing import STEP, Part, check_headers, merged_page, read_by_id, read_page, walk
from reliq.protocol.oversized import revivable
from reliq.protocol.progress import Progress, unwatched
from reliq.protocol.reports import forget_reports
from reliq.runtime.moment import earlier
from reliq.runtime.pieces import pieces
from reliq.runtime.tempo import Tempo

_BATCHES_PER_SECOND = 10  #: of a redrive with a rate: small batches for an even rate
_PURGE, _REDRIVE = "the purge of the dead letters", "the redrive"
_DISCARDED = 100  #: letters that one call deletes
_REDRIVEN = 40  #: the same of letters that come back, each into the line of its key
_SAMPLE = 20  #: letters to redrive before the share that died again is meaningful


@dataclass(frozen=True, slots=True)
class Filter:
    """A selection of dead letters; an empty filter selects all of them."""

    reason: str | None = None
    error_class: str | None = None  #: of the last error, with or without its module
    error_text: str | None = None  #: a part of the first line that this error says
    older_than: Duration | None = None
    newer_than: Duration | None = None
    headers: dict[str, str] = field(default_factory=dict)
    ids: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.reason is not None and self.reason not in REASONS:
            raise InvalidSetting(f"reason is {self.reason!r}: it is one of {', '.join(REASONS)}")
        if self.ids is not None:
            object.__setattr__(self, "ids", _checked_ids(self.ids))
        for name in ("error_class", "error_text"):
            if getattr(self, name) is not None:
                unicode_text(getattr(self, name), name)
        if self.error_text == "":  # it is in every line, so that a purge of it would be one of all
            object.__setattr__(self, "error_text", None)
        object.__setattr__(self, "headers", check_headers(self.headers))
        for name in ("older_than", "newer_than"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, seconds(getattr(self, name), name))

    @classmethod
    def of(cls, filters: DeadLetterFilters) -> "Filter":
        """Return the filter for the keywords of a call; raises TypeError, InvalidSetting and InvalidName."""
        check_names(filters, DeadLetterFilters, "filters")
        return cls(**filters)  # type: ignore[arg-type]  # it is read there

    @property
    def empty(self) -> bool:
        return self == Filter()

    def matches(self, letter: DeadLetter) -> bool:
        """Whether the filter selects a letter of the right age."""
        if self.ids is not None and letter.id not in self.ids:
            return False
        if self.reason is not None and letter.reason != self.reason:
            return False
        if self.error_class is not None and not letter.failed_with(self.error_class):
            return False
        if self.error_text is not None and self.error_text not in gist_of(letter):
            return False
        return all(letter.headers.get(name) == value for name, value in self.headers.items())

    def scores(self, now: int) -> tuple[str, str]:
        """Return the range of scores of the filter: died before now - older_than and after now - newer_than."""
        oldest = "-inf" if self.newer_than is None else str(now - round(float(self.newer_than) * 1000))  # type: ignore[arg-type]
        latest = "+inf" if self.older_than is None else f"({now - round(float(self.older_than) * 1000) + 1}"  # type: ignore[arg-type]
        return oldest, latest


@dataclass(frozen=True, slots=True)
class Page:
    """A page of dead letters, latest first; `next` is the cursor of the following page, None at the end."""

    letters: list[DeadLetter]
    next: str | None

    def __iter__(self) -> Iterator[DeadLetter]:
        return iter(self.letters)

    def __len__(self) -> int:
        return len(self.letters)

    def __getitem__(self, place: int) -> DeadLetter:
        return self.letters[place]


@dataclass(slots=True)
class Redriven:
    """The result of a redrive: `matched` letters fit the filter, `redriven` of them went back into the queue."""

    matched: int = 0
    redriven: int = 0
    dry_run: bool = False
    stopped: str = ""  #: why it ended before the last letter, or empty


@dataclass(frozen=True, slots=True)
class RedriveOptions:
    """How letters are put back; raises InvalidSetting for invalid values."""

    rate: float | None = None  #: messages a second
    limit: int | None = None  #: letters
    dry_run: bool = False  #: only count
    keep_failures: bool = False  #: do not reset the count of failures
    stop_above: float | None = None  #: with a rate: the share that died again above which the redrive stops
    progress: Progress = unwatched

    def __post_init__(self) -> None:
        if self.rate is not None:
            number(self.rate, "rate, in messages a second,", 0.01, 1_000_000)
        if self.limit is not None:
            whole(self.limit, "limit", 1, 10**12)
        for name in ("dry_run", "keep_failures"):
            object.__setattr__(self, name, yes_or_no(getattr(self, name), name))
        if self.stop_above is None:
            return
        number(self.stop_above, "stop_above, a share,", 0, 1)
        if self.rate is None:
            raise InvalidSetting("stop_above needs a rate: without one all letters are back before the first can die")


class DeadLetterSteps:
    """The operations on a queue's dead letters, as steps."""

    def __init__(self, keys: QueueKeys) -> None:
        self.keys = keys

    def page(self, wanted: Filter, limit: int, cursor: str | None, bodies: bool, start: int = 0) -> Steps[Page]:
        """Read up to `limit` letters, latest first, from `cursor` on. `start`: bytes of each body, without `bodies`."""
        scores = wanted.scores((yield ops.server_time()))
        matches = None if wanted.empty else wanted.matches
        letters, following = yield from read_page(
            DeadLetter, self.keys, self.keys.dead, "down", scores, limit, cursor, bodies, matches, start
        )
        return Page(letters, following)

    def get(self, identity: str, shown: int | None = None) -> Steps[DeadLetter | None]:
        """Return the letter with this id, found through the index; None if there is none.

        `shown`: the bytes of its body to read; None: all of it.
        """
        found = yield from read_by_id(self.keys, self.keys.dead, check_id(identity), shown)
        if found is None:
            return None
        letter = DeadLetter.read(self.keys.logical, found)
        if shown is None:
            yield from read_bodies(self.keys, [letter])
        else:
            yield from read_starts(self.keys, [letter], shown)
        return letter

    def redrive(self, wanted: Filter, options: RedriveOptions, result: Redriven) -> Steps[None]:
        """Move letters back into the queue, oldest first; at any instant each letter is in exactly one place.

        `result` is counted up, and has what was done before, in other homes.
        """
        rate, relapses = options.rate, Relapses(self.keys, options.stop_above)
        tempo = None if rate is None else Tempo(rate)
        at_once = _REDRIVEN if rate is None else max(1, min(_REDRIVEN, int(rate / _BATCHES_PER_SECOND)))

        def act(letters: list[DeadLetter]) -> Steps[bool]:
            if options.limit is not None:
                letters = letters[: options.limit - result.matched]
            for batch in pieces(letters, at_once):
                result.matched += len(batch)
                if not options.dry_run:
                    revivals = yield from revivable([self._revival(one, options.keep_failures) for one in batch])
                    revived = sum((yield ops.redrive(self.keys, revivals, self.keys.new_call())))
                    result.redriven += revived
                options.progress(result.matched)
                if not options.dry_run:
                    result.stopped = yield from relapses.reason_to_stop(batch)
                    if tempo is not None:
                        yield ops.Sleep(tempo.pause_after(revived))
                if result.stopped:
                    return False
            if result.matched == options.limit:
                result.stopped = f"the limit of {options.limit} is reached"
            return not result.stopped

        yield from self._walk(wanted, act, removing=not options.dry_run, shown=0 if options.dry_run else None)

    def purge(self, wanted: Filter, everything: bool, counter: Literal["purged_dead", "trimmed"]) -> Steps[int]:
        """Delete letters for good; return how many."""
        if wanted.empty and not everything:
            raise InvalidSetting("purging dead letters needs ids, a filter, or all")
        removed = 0

        def act(letters: list[DeadLetter]) -> Steps[bool]:
            nonlocal removed
            gone = 0
            for some in pieces(letters, _DISCARDED):
                gone += yield ops.discard(self.keys, discarded(some), counter, self.keys.new_call())
            removed += gone
            if gone == len(letters):  # else one was redriven meanwhile, and goes on from its checkpoint
                yield from forget_reports(self.keys, last_seen(letters))
            return True

        with counted(_PURGE, self.keys, lambda: removed):
            yield from self._walk(wanted, act, removing=True)
        return removed

    def trim(self, max_age: float | None, max_count: int | None, at_most: int) -> Steps[int]:
        """Remove letters older than `max_age` seconds, then the oldest beyond `max_count`; return how many.

        Removes at most `at_most` letters per call. A letter is old if both the server's clock and this machine's clock
        say so: one wrong clock removes nothing.
        """
        removed = 0
        if max_age is not None:
            latest = earlier((yield ops.server_time())) - round(max_age * 1000)
            while removed < at_most:
                size = min(STEP, at_most - removed)
                count = yield from self._discard(ops.browse(self.keys.dead, "up", "-inf", latest, size))
                removed += count
                if not count:
                    break
        while max_count is not None and removed < at_most:
            surplus = (yield ops.zset_size(self.keys.dead)) - max_count
            if surplus <= 0:
                break
            size = min(surplus, STEP, at_most - removed)
            removed += yield from self._discard(ops.browse(self.keys.dead, "up", "-inf", "+inf", size))
        return removed

    def _discard(self, oldest: ops.Op[ops.Browsed]) -> Steps[int]:
        letters = self._letters((yield oldest))
        if not letters:
            return 0
        removed: int = yield ops.discard(self.keys, discarded(letters), Counter.TRIMMED)
        if removed == len(letters):
            yield from forget_reports(self.keys, last_seen(letters))
        return removed

    def _walk(
        self, wanted: Filter, act: Callable[[list[DeadLetter]], Steps[bool]], removing: bool, shown: int | None = None
    ) -> Steps[None]:
        """Pass the matching letters to `act`, part by part, oldest first, until it returns False.

        The walk ends at the present: it does not meet letters that die meanwhile, for example because they were just
        redriven.
        """
        now = yield ops.server_time()
        start, latest = wanted.scores(now)
        scores = start, f"({now + 1}" if latest == "+inf" else latest
        yield from walk(DeadLetter, self.keys, self.keys.dead, scores, wanted.matches, act, removing, shown)

    def _letters(self, browsed: ops.Browsed) -> list[DeadLetter]:
        return [DeadLetter.read(self.keys.logical, glimpse) for glimpse in browsed.found]

    @staticmethod
    def _revival(letter: DeadLetter, keep_failures: bool) -> Revival:
        # An undecodable message goes back as its raw bytes: a newer worker may be able to read them.
        again = letter.body if letter.reason == "decode" else letter.revived(keep_failures)
        return Revival(letter.element, letter.id, again, letter.key if letter.in_cycle else "")


class DeadLetterQueue:
    """The operations on the dead letters of a queue, of all its homes, as steps."""

    def __init__(self, homes: QueueHomes) -> None:
        self._homes = homes

    def page(self, wanted: Filter, limit: int, cursor: str | None, bodies: bool, start: int = 0) -> Steps[Page]:
        """Read up to `limit` letters, latest first, from `cursor` on. `start`: bytes of each body, without `bodies`."""

        def read(keys: QueueKeys, limit: int, cursor: str | None, bodies: bool) -> Steps[Part[DeadLetter]]:
            page = yield from DeadLetterSteps(keys).page(wanted, limit, cursor, bodies, start)
            return page.letters, page.next

        letters, following = yield from merged_page(self._homes, read, "down", limit, cursor, bodies)
        return Page(letters, following)

    def get(self, identity: str, shown: int | None = None) -> Steps[DeadLetter | None]:
        """Return the letter with this id; None if there is none. `shown`: the bytes of its body to read."""
        found = yield from self._homes.any_of(
            lambda keys: DeadLetterSteps(keys).get(identity, shown), lambda one: one is not None
        )
        return next((one for one in found if one is not None), None)

    def redrive(self, wanted: Filter, options: RedriveOptions) -> Steps[Redriven]:
        """Move letters back into the queue, oldest first, of one home after another."""
        result = Redriven(dry_run=options.dry_run)
        answers: dict[str, int | ReliqError] = {}
        for home in (yield from self._homes.every(complete=True)):
            keys, before = home.keys, result.redriven
            try:
                with counted(_REDRIVE, keys, lambda before=before: result.redriven - before):  # type: ignore[misc]
                    yield from DeadLetterSteps(keys).redrive(wanted, options, result)
                answers[keys.queue] = result.redriven - before
            except (RedisUnavailable, OutcomeUnknown) as error:
                answers[keys.queue] = error
            if result.stopped:
                break
        if options.dry_run:
            self._homes.seen(answers)
        else:
            done_everywhere(_REDRIVE, self._homes.queue, answers)
        return result

    def purge(self, wanted: Filter, everything: bool) -> Steps[int]:
        """Delete letters for good; return how many."""
        everything = yes_or_no(everything, "all")
        steps = self._homes.act(
            _PURGE, lambda keys: DeadLetterSteps(keys).purge(wanted, everything, Counter.PURGED_DEAD)
        )
        return sum((yield from steps))


def _checked_ids(given: object) -> frozenset[str]:
    """Return the ids, given one by one or in a collection; raises InvalidName and InvalidSetting."""
    if isinstance(given, str):
        return frozenset([check_id(given)])
    if not isinstance(given, Iterable):
        raise InvalidSetting(f"ids is {given!r}: give one id, or several in a list")
    return frozenset(check_id(one) for one in given)


def gist_of(letter: DeadLetter) -> str:
    """Return the first line that the last error of a letter says; empty without an error."""
    return gist(letter.last_error) if letter.last_error else ""


def discarded(letters: Sequence[DeadLetter]) -> list[tuple[bytes, str, bytes]]:
    """Return what `ops.discard` takes: element, id, and the reference to a body that is apart."""
    return [(letter.element, letter.id, letter.leaves_behind) for letter in letters]


def last_seen(letters: Sequence[DeadLetter]) -> dict[str, int]:
    """Return the ids of letters that handlers may have reported about, each with the time of its death."""
    return {one.id: one.died_at for one in letters if one.was_started}


class Relapses:
    """Counts how many of the letters of a redrive have died again."""

    def __init__(self, keys: QueueKeys, stop_above: float | None) -> None:
        self._keys = keys
        self._stop_above = stop_above
        self._redriven: set[str] = set()
        self._died: set[str] = set()
        self._since = ""

    def reason_to_stop(self, batch: Sequence[DeadLetter]) -> Steps[str]:
        """Return why the redrive must stop after this batch, or an empty text."""
        if self._stop_above is None:
            return ""
        self._redriven |= {letter.id for letter in batch}
        if not self._since:
            self._since = str((yield ops.server_time()))
        latest = yield ops.browse(self._keys.dead, "up", self._since, "+inf", STEP, shown=0)
        for glimpse in latest.found:
            letter = DeadLetter.read(self._keys.logical, glimpse)
            self._since = letter.score
            self._died.add(letter.id)
        relapsed = len(self._died & self._redriven)
        if len(self._redriven) >= _SAMPLE and relapsed > self._stop_above * len(self._redriven):
            return f"{relapsed} of {len(self._redriven)} died again, more than {self._stop_above:.0%}"
        return ""
