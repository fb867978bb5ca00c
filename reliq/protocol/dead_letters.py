"""The steps of dead letters: list, filter, redrive, purge."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from reliq import ops
from reliq.errors import InvalidSetting, RedisUnavailable, RedisUnsuitable, ReliqError
from reliq.model.dead_letter import REASONS, DeadLetter
from reliq.model.element import Undecodable, check_id
from reliq.model.keys import QueueKeys
from reliq.model.keywords import DeadLetterFilters, check_names
from reliq.model.message import wrapped
from reliq.model.settings import Duration, seconds, whole
from reliq.ops import Revival, Steps
from reliq.ops.schema import Counter
from reliq.protocol.progress import Progress
from reliq.runtime.moment import earlier

_PAGE = 500
_STEP_LEAST = 50
_PAGE_BYTES = 64 * 1024 * 1024  #: the largest size of a page, as estimated by Redis
_BATCHES_PER_SECOND = 10  #: of a redrive with a rate: small batches for an even rate
_SAMPLE = 20  #: letters to redrive before the share that died again is meaningful


@dataclass(frozen=True, slots=True)
class Filter:
    """A selection of dead letters; an empty filter selects all of them."""

    reason: str | None = None
    error_class: str | None = None  #: of the last error, with or without its module
    older_than: Duration | None = None
    newer_than: Duration | None = None
    headers: dict[str, str] = field(default_factory=dict)
    ids: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.reason is not None and self.reason not in REASONS:
            raise InvalidSetting(f"reason is {self.reason!r}: it is one of {', '.join(REASONS)}")
        if self.ids is not None:
            object.__setattr__(self, "ids", frozenset(check_id(one) for one in self.ids))
        for name in ("older_than", "newer_than"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, seconds(getattr(self, name), name))

    @classmethod
    def of(cls, filters: DeadLetterFilters) -> "Filter":
        """Return the filter for the keywords of a call; raises TypeError, InvalidSetting and InvalidName."""
        check_names(filters, DeadLetterFilters, "filters")
        ids = filters.get("ids")
        return cls(
            filters.get("reason"),
            filters.get("error_class"),
            filters.get("older_than"),
            filters.get("newer_than"),
            dict(filters.get("headers") or {}),
            None if ids is None else frozenset([ids] if isinstance(ids, str) else ids),
        )

    @property
    def empty(self) -> bool:
        return self == Filter()

    def matches(self, letter: DeadLetter) -> bool:
        """Whether the filter selects a letter of the right age."""
        if self.ids is not None and letter.id not in self.ids:
            return False
        if self.reason is not None and letter.reason != self.reason:
            return False
        if self.error_class is not None:
            last = letter.last_error.error_class if letter.last_error else ""
            if self.error_class not in (last, last.rpartition(".")[2]):
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


_CURSOR = re.compile(r"(-?(?:inf|\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)):(\d{1,9})", re.ASCII)


def read_cursor(cursor: str) -> tuple[str, int]:
    """Return the score and the number of messages of that score to skip; raises InvalidSetting."""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise InvalidSetting(f"after is {cursor!r}: give the `next` of the page before")
    return found[1], int(found[2])


class DeadLetterSteps:
    """The operations on a queue's dead letters, as steps."""

    def __init__(self, keys: QueueKeys) -> None:
        self.keys = keys

    def page(self, wanted: Filter, limit: int, cursor: str | None) -> Steps[Page]:
        """Read up to `limit` letters, latest first, from `cursor` on."""
        whole(limit, "limit", 1, 100_000)
        now = yield ops.server_time()
        oldest, latest = wanted.scores(now)
        skip = 0
        if cursor is not None:
            latest, skip = read_cursor(cursor)
        letters: list[DeadLetter] = []
        # Bodies may be large: read not many more letters than wanted, and not more than fit into memory.
        step = min(max(_STEP_LEAST, min(_PAGE, limit)), (yield from self._fitting()))
        while True:
            scored = yield ops.by_score_descending(self.keys.dead, latest, oldest, step, skip)
            found = [self._letter(*pair) for pair in scored]
            for letter in found:
                skip = skip + 1 if letter.score == latest else 1
                latest = letter.score
                if wanted.matches(letter):
                    letters.append(letter)
                    if len(letters) == limit:
                        return Page(letters, f"{latest}:{skip}")
            if len(found) < step:
                return Page(letters, None)

    def _fitting(self) -> Steps[int]:
        """Return how many letters of average size one reply may contain."""
        try:
            count, used = yield [ops.zset_size(self.keys.dead), ops.bytes_used(self.keys.dead)]
        except RedisUnsuitable:  # the user in the URL may not run it
            return _PAGE
        except RedisUnavailable:
            raise
        except ReliqError:  # the server has no such command
            return _PAGE
        return max(1, _PAGE_BYTES * count // used) if used else _PAGE

    def get(self, identity: str) -> Steps[DeadLetter | None]:
        """Return the letter with this id, found through the index; None if there is none."""
        score = yield ops.indexed_score(self.keys, check_id(identity))
        if score is None:
            return None
        elements = yield ops.at_score(self.keys.dead, score)
        for element in elements:
            letter = self._letter(element, score)
            if letter.id == identity:
                return letter
        return None

    def redrive(
        self,
        wanted: Filter,
        *,
        rate: float | None,
        limit: int | None,
        dry_run: bool,
        keep_failures: bool,
        stop_above: float | None,
        progress: Progress,
    ) -> Steps[Redriven]:
        """Move letters back into the queue, oldest first; at any instant each letter is in exactly one place."""
        result = Redriven(dry_run=dry_run)
        started = time.monotonic()
        relapses = Relapses(self.keys, stop_above)
        at_once = _PAGE if rate is None else max(1, min(_PAGE, int(rate / _BATCHES_PER_SECOND)))

        def act(letters: list[DeadLetter]) -> Steps[bool]:
            if limit is not None:
                letters = letters[: limit - result.matched]
            for batch in (letters[place : place + at_once] for place in range(0, len(letters), at_once)):
                result.matched += len(batch)
                if not dry_run:
                    revivals = [self._revival(letter, keep_failures) for letter in batch]
                    result.redriven += sum((yield ops.redrive(self.keys, revivals)))
                    result.stopped = yield from relapses.verdict(batch)
                    if rate is not None:
                        yield ops.Sleep(max(0.0, started + result.redriven / rate - time.monotonic()))
                progress(result.matched)
                if result.stopped:
                    return False
            if result.matched == limit:
                result.stopped = f"the limit of {limit} is reached"
            return not result.stopped

        yield from self._walk(wanted, act, removing=not dry_run)
        return result

    def purge(self, wanted: Filter, everything: bool, counter: Literal["purged_dead", "trimmed"]) -> Steps[int]:
        """Delete letters for good; return how many."""
        if wanted.empty and not everything:
            raise InvalidSetting("purging dead letters needs a filter, or all=True")
        removed = 0

        def act(letters: list[DeadLetter]) -> Steps[bool]:
            nonlocal removed
            removed += yield ops.discard(self.keys, [(letter.element, letter.id) for letter in letters], counter)
            return True

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
                size = min(_PAGE, at_most - removed)
                count = yield from self._discard(ops.by_score(self.keys.dead, "-inf", latest, size))
                removed += count
                if not count:
                    break
        while max_count is not None and removed < at_most:
            surplus = (yield ops.zset_size(self.keys.dead)) - max_count
            if surplus <= 0:
                break
            removed += yield from self._discard(ops.by_rank(self.keys.dead, 0, min(surplus, _PAGE, at_most - removed)))
        return removed

    def _discard(self, oldest: ops.Op[Any]) -> Steps[int]:
        letters = [self._letter(*pair) for pair in (yield oldest)]
        if not letters:
            return 0
        removed: int = yield ops.discard(
            self.keys, [(letter.element, letter.id) for letter in letters], Counter.TRIMMED
        )
        return removed

    def _walk(self, wanted: Filter, act: Callable[[list[DeadLetter]], Steps[bool]], removing: bool) -> Steps[None]:
        """Pass the matching letters to `act`, page by page, oldest first, until it returns False.

        `removing`: `act` removes the letters that it is given. The walk ends at the present: it does not meet letters
        that die meanwhile, for example because they were just redriven.
        """
        now = yield ops.server_time()
        start, latest = wanted.scores(now)
        if latest == "+inf":
            latest = f"({now + 1}"
        skip = 0
        while True:
            letters = [self._letter(*pair) for pair in (yield ops.by_score(self.keys.dead, start, latest, _PAGE, skip))]
            matching = [letter for letter in letters if wanted.matches(letter)]
            if matching and not (yield from act(matching)):
                return
            if len(letters) < _PAGE:
                return
            gone = {letter.element for letter in matching} if removing else set()
            last = letters[-1].score
            staying = sum(letter.score == last and letter.element not in gone for letter in letters)
            start, skip = last, staying + (skip if last == start else 0)

    def _letter(self, element: bytes, score: bytes) -> DeadLetter:
        try:
            return DeadLetter.read(self.keys.queue, element, score)
        except Undecodable:  # written by hand or by a newer version: it is shown as it is and can be purged
            letter = DeadLetter.read(self.keys.queue, wrapped(element)[1], score)
            letter.element = element
            return letter

    @staticmethod
    def _revival(letter: DeadLetter, keep_failures: bool) -> Revival:
        # An undecodable message goes back as its raw bytes: a newer worker may be able to read them.
        again = letter.body if letter.reason == "decode" else letter.revived(keep_failures)
        return Revival(letter.element, letter.id, again, letter.key if letter.in_cycle else "")


class Relapses:
    """Counts how many of the letters of a redrive have died again."""

    def __init__(self, keys: QueueKeys, stop_above: float | None) -> None:
        self._keys = keys
        self._stop_above = stop_above
        self._redriven: set[str] = set()
        self._died: set[str] = set()
        self._since = ""

    def verdict(self, batch: Sequence[DeadLetter]) -> Steps[str]:
        """Return why the redrive must stop after this batch, or an empty text."""
        if self._stop_above is None:
            return ""
        self._redriven |= {letter.id for letter in batch}
        if not self._since:
            self._since = str((yield ops.server_time()))
        for element, score in (yield ops.by_score(self._keys.dead, self._since, "+inf", _PAGE)):
            self._since = score.decode()
            try:
                self._died.add(DeadLetter.read(self._keys.queue, element, score).id)
            except Undecodable:
                continue
        relapsed = len(self._died & self._redriven)
        if len(self._redriven) >= _SAMPLE and relapsed > self._stop_above * len(self._redriven):
            return f"{relapsed} of {len(self._redriven)} died again, more than {self._stop_above:.0%}"
        return ""


def checked_redrive(rate: float | None, limit: int | None, stop_above: float | None) -> None:
    """Raise InvalidSetting for invalid options of a redrive."""
    if rate is not None and not 0.01 <= rate <= 1e6:
        raise InvalidSetting(f"rate is {rate!r}: give messages a second, from 0.01 to 1,000,000")
    if limit is not None:
        whole(limit, "limit", 1, 10**12)
    if stop_above is not None:
        if not 0 <= stop_above <= 1:
            raise InvalidSetting(f"stop_above is {stop_above!r}: give a share from 0 to 1, such as 0.2")
        if rate is None:
            raise InvalidSetting("stop_above needs a rate: without one all letters are back before the first can die")
