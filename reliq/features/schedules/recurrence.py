"""Recurrences: the ticks of a cron expression in a time zone, or of an interval. Times are ms since the epoch.

Ticks are a function of the definition alone: every process computes the same ones, in any order and at any time. Cron
expressions are read by cronsim (docs/decisions/0009), which follows Debian's cron when the clocks change: a job at
a fixed time that is skipped in spring runs right after the gap, one that comes twice in autumn runs once; `*` and
`*/n` follow the real time.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
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
_CLOCK_CHANGE = (
    3 * 3_600_000
)  #: ms; clocks are put back by less. cronsim forgets which of two equal hours it starts from
_HINT = "write five fields (minute hour day month weekday) such as '*/5 * * * *', or an interval such as '30s'"


@dataclass(frozen=True, slots=True)
class Interval:
    """A tick every `every` ms, counted from `origin`: from the epoch, so that all processes have the same ticks."""

    every: int
    origin: int = 0

    def after(self, moment: int) -> int | None:
        """Return the first tick later than `moment`."""
        return moment + self.every - (moment - self.origin) % self.every

    def until(self, moment: int) -> Iterator[int]:
        """Yield the ticks that are not later than `moment`, the latest first."""
        tick = moment - (moment - self.origin) % self.every
        while True:
            yield tick
            tick -= self.every


@dataclass(frozen=True, slots=True)
class Cron:
    """The ticks of a cron expression in a time zone."""

    expression: str
    zone: str

    def after(self, moment: int) -> int | None:
        """Return the first tick later than `moment`; None if there is none in fifty years."""
        return _next_tick(self.expression, self.zone, moment)

    def until(self, moment: int) -> Iterator[int]:
        """Yield the ticks that are not later than `moment`, the latest first."""
        at = moment_of(moment + _CLOCK_CHANGE, time_zone(self.zone))
        for tick in _simulated(self.expression, at, reverse=True):
            if milliseconds_of(tick) <= moment:
                yield milliseconds_of(tick)


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
            what = f"{when!r} is neither a cron expression nor an interval of 1 s or more"
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
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)  # it caches
    except (KeyError, OSError, ValueError, TypeError):  # what zoneinfo raises for unknown and for malformed names
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
    if moment >= LAST_TICK:
        return None
    with suppress(OverflowError):  # cronsim has come to the end of the calendar
        for tick in _simulated(expression, moment_of(moment, time_zone(zone)), reverse=False):
            if milliseconds_of(tick) > moment:  # see _CLOCK_CHANGE
                return milliseconds_of(tick)
    return None


def _simulated(expression: str, start: datetime, *, reverse: bool) -> "Iterator[datetime]":
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise missing_extra(f"the cron expression {expression!r}", "schedules", error) from None
    try:
        return iter(CronSim(expression, start, reverse))
    except CronSimError as error:
        if str(error) == "Bad day-of-month" and _reads(CronSim, expression):
            raise never_fires(expression) from None
        raise InvalidSetting(f"the cron expression {expression!r} is wrong: {error}; {_HINT}") from None


def _reads(simulator: "type[CronSim]", expression: str) -> bool:
    """Whether the expression is readable for months with 31 days: then only its date does not exist."""
    minute, hour, day, _, weekday = expression.split()
    try:
        simulator(f"{minute} {hour} {day} 1 {weekday}", _EPOCH)
    except Exception:  # noqa: BLE001  the error is that of the expression as it was given
        return False
    return True
