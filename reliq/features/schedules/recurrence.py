"""Recurrences: the ticks of a cron expression in a time zone, or of an interval. Times are ms since the epoch.

Ticks are a function of the definition alone: every process computes the same ones, in any order and at any time. Cron
expressions are read by cronsim (docs/decisions/0009), for a local clock that never changes. What follows when it does
is decided here, as in Debian's cron: a job at a fixed time that is skipped in spring runs right after the gap, one that
comes twice in autumn runs once; with `*` or `*/n` in the minute or hour, each minute that the clock shows and that fits
is a tick. cronsim's own way, for local times, comes back to what it has passed where clocks change within an hour.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from reliq.contract.values import Duration, seconds
from reliq.errors import InvalidSetting
from reliq.extras import missing_extra

if TYPE_CHECKING:
    from cronsim import CronSim

MIN_INTERVAL_SECONDS = 1.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: ms: no tick is later, because no time zone can show it.
LAST_TICK = (datetime(9999, 12, 30, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_FIELDS = 5
MOST_COUNTED = 10_000  #: ticks of a cron expression between two moments, of which each one is looked at
_MINUTE = 60_000  #: ms; the ticks of cron expressions are whole minutes
_WEEK = 7 * 86_400_000  #: ms; clocks do not change twice within it
_LOCAL_EPOCH = _EPOCH.replace(tzinfo=None)
_HINT = "write five fields (minute hour day month weekday) such as '*/5 * * * *', or an interval such as '30s'"


@dataclass(frozen=True, slots=True)
class Interval:
    """A tick every `every` ms, counted from `origin`: from the epoch, so that all processes have the same ticks."""

    every: int
    origin: int = 0

    def after(self, moment: int) -> int | None:
        """Return the first tick later than `moment`."""
        return moment + self.every - (moment - self.origin) % self.every

    def between(self, first: int, last: int, most: int) -> tuple[int, Sequence[int]]:
        """Return how many ticks there are from the tick `first` until `last`, and the latest `most`, in order."""
        later = (last - self.origin) // self.every - (first - self.origin) // self.every
        latest = last - (last - self.origin) % self.every
        ticks = range(latest - (min(later, most) - 1) * self.every, latest + 1, self.every)
        return 1 + later, [first, *ticks][-most:]


@dataclass(frozen=True, slots=True)
class Cron:
    """The ticks of a cron expression in a time zone."""

    expression: str
    zone: str

    def after(self, moment: int) -> int | None:
        """Return the first tick later than `moment`; None if there is none in fifty years."""
        return _next_tick(self.expression, self.zone, moment)

    def between(self, first: int, last: int, most: int) -> tuple[int, Sequence[int]]:
        """Return how many ticks there are from the tick `first` until `last`, and the latest `most`, in order.

        It counts no more than MOST_COUNTED, which `most` must not exceed.
        """
        following = self.after(first)
        if following is None or following > last:
            return 1, [first]
        return _between(self.expression, self.zone, first, last - last % _MINUTE, most)


Recurrence = Interval | Cron


def recurrence(when: Duration, zone: str, origin: int = 0) -> Recurrence:
    """Read a cron expression ("*/5 * * * *") or an interval ("30s", a number of seconds, a timedelta) of a user.

    Raises InvalidSetting for what is neither, for a cron expression that never fires, and for an unknown time zone.
    """
    time_zone(zone)
    if isinstance(when, str) and len(when.split()) > 2:
        if len(when.split()) != _FIELDS:
            raise InvalidSetting(f"the cron expression {when!r} has {len(when.split())} fields: {_HINT}")
        when = " ".join(when.split())
        if stored_recurrence(when, zone).after(milliseconds_of(datetime.now(UTC))) is None:
            raise never_fires(when)
        return Cron(when, zone)
    try:
        every = seconds(when, "the interval of a schedule", shortest=MIN_INTERVAL_SECONDS)
    except InvalidSetting as error:
        if isinstance(when, str):
            what = f"{when!r} is neither a cron expression nor an interval from 1 s to 366 days"
            raise InvalidSetting(f"{what}: {_HINT}") from None
        raise error from None
    return Interval(round(every * 1000), origin)


@lru_cache(maxsize=16_384)
def stored_recurrence(when: str, zone: str, origin: int = 0) -> Recurrence:
    """Read what `recurrence` has checked."""
    if " " in when:
        return Cron(when, zone)
    return Interval(round(seconds(when, "the interval of a schedule") * 1000), origin)


def time_zone(name: str) -> tzinfo:
    """Return the time zone of this name, such as Europe/Berlin; raises InvalidSetting."""
    if not isinstance(name, str):
        example = getattr(name, "key", None) or "Europe/Berlin"  # of a ZoneInfo
        raise InvalidSetting(f"the time zone is {name!r}: give its name as a text, such as {example!r}")
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)  # it caches
    except (KeyError, OSError, ValueError):  # what zoneinfo raises for unknown and for malformed names
        raise InvalidSetting(
            f"the time zone {name!r} is unknown: give a name of the IANA database such as Europe/Berlin "
            "(where the system has no such database, install the package tzdata)"
        ) from None


def moment_of(milliseconds: int, zone: tzinfo = UTC) -> datetime:
    """Return the time as a datetime in a zone."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).astimezone(zone)


def milliseconds_of(moment: datetime) -> int:
    """Return the ms since the epoch of a time with a zone."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def text_of(milliseconds: int) -> str:
    """Return a time as ISO 8601 in UTC, with ms only if there are any."""
    precision = "milliseconds" if milliseconds % 1000 else "seconds"
    return moment_of(milliseconds).isoformat(timespec=precision).replace("+00:00", "Z")


def never_fires(expression: str) -> InvalidSetting:
    return InvalidSetting(f"the cron expression {expression!r} never fires: no date fits it")


@lru_cache(maxsize=16_384)
def _next_tick(expression: str, zone: str, moment: int) -> int | None:
    """Return the next tick. Schedules with the same expression share the cost, which is tens of microseconds."""
    return None if moment >= LAST_TICK else next(_ticks(expression, zone, moment), None)


@lru_cache(maxsize=32)
def _between(expression: str, zone: str, first: int, last: int, most: int) -> tuple[int, Sequence[int]]:
    """See `Cron.between`. Schedules with the same expression share the cost: after an outage all of them need it."""
    count, latest = 1, deque([first], most)
    for tick in takewhile(last.__ge__, _ticks(expression, zone, first)):
        count += 1
        latest.append(tick)
        if count == MOST_COUNTED:
            return count, _latest(expression, zone, last, most)
    return count, [*latest]


def _latest(expression: str, zone: str, last: int, most: int) -> Sequence[int]:
    """Return the latest `most` ticks until `last`, in order; there are at least that many."""
    span, latest = _MINUTE, deque[int](maxlen=most)
    while len(latest) < most:
        span *= 2
        latest = deque(takewhile(last.__ge__, _ticks(expression, zone, last - span * most)), most)
    return [*latest]


def _ticks(expression: str, zone: str, moment: int) -> Iterator[int]:
    """Yield the ticks after `moment`, in order. It ends where none follows within fifty years."""
    minute, hour, *_ = expression.split()
    ticks = _by_the_clock if "*" in (minute[0], hour[0]) else _at_fixed_times
    with suppress(OverflowError):  # the end of the calendar
        yield from ticks(expression, time_zone(zone), moment)


def _by_the_clock(expression: str, zone: tzinfo, moment: int) -> Iterator[int]:
    """Yield each later moment at which the clock shows a time that fits: none in a gap, both in a repeated hour."""
    change: int | None = moment + 1  # from then on the clock has one offset
    while change is not None:
        offset, since, change = _offset(zone, change), change, None
        for local in _local_ticks(expression, since - 1 + offset):
            change = _change(zone, since, local - offset)
            if change is not None:
                break
            since = local - offset
            yield since


def _at_fixed_times(expression: str, zone: tzinfo, moment: int) -> Iterator[int]:
    """Yield the later moments of local times that fit: the end of a gap, the first one in a repeated hour."""
    for local in _local_ticks(expression, moment + _offset(zone, moment)):
        tick = _moment_of_local(zone, local)
        if tick > moment:  # else it was before the clock was put back, or another one has come after the same gap
            moment = tick
            yield tick


def _moment_of_local(zone: tzinfo, local: int) -> int:
    """Return when a clock shows a time, ms since the epoch on that clock: first, or when the gap has it passed."""
    shown = _LOCAL_EPOCH + timedelta(milliseconds=local)
    first, second = (milliseconds_of(shown.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    return first if first <= second else _change(zone, second, first) or first


def _change(zone: tzinfo, since: int, until: int) -> int | None:
    """Return the first moment later than `since`, and not later than `until`, at which the clock's offset is another.

    None if it is the same all the time.
    """
    offset = _offset(zone, since)
    for other in (*range(since, until, _WEEK), until):
        if _offset(zone, other) != offset:
            week = range(max(since, other - _WEEK), other)
            return week.start + bisect_left(week, 1, key=lambda moment: int(_offset(zone, moment) != offset))
    return None


def _offset(zone: tzinfo, moment: int) -> int:
    """Return how much a clock is ahead of UTC, ms."""
    return (moment_of(moment, zone).utcoffset() or timedelta()) // timedelta(milliseconds=1)


def _local_ticks(expression: str, moment: int) -> Iterator[int]:
    """Yield the ticks of a clock that never changes, later than `moment`; all in ms since the epoch on that clock."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise missing_extra(f"the cron expression {expression!r}", "schedules", error) from None
    try:
        ticks = CronSim(expression, _LOCAL_EPOCH + timedelta(milliseconds=moment))
    except CronSimError as error:
        if str(error) == "Bad day-of-month" and _reads(CronSim, expression):
            raise never_fires(expression) from None
        raise InvalidSetting(f"the cron expression {expression!r} is wrong: {error}; {_HINT}") from None
    return ((tick - _LOCAL_EPOCH) // timedelta(milliseconds=1) for tick in ticks)


def _reads(simulator: "type[CronSim]", expression: str) -> bool:
    """Whether the expression is readable for months with 31 days: then only its date does not exist."""
    minute, hour, day, _, weekday = expression.split()
    try:
        simulator(f"{minute} {hour} {day} 1 {weekday}", _EPOCH)
    except Exception:  # noqa: BLE001  the error is that of the expression as it was given
        return False
    return True
