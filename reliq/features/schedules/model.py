"""Schedules: what is sent when, and what became of the ticks so far. No I/O; `steps` stores them."""

import hashlib
import re
from datetime import datetime
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import msgspec
from msgspec import structs

from reliq.contract.keywords import ScheduledOptions
from reliq.contract.options import SCHEDULE, given
from reliq.contract.values import Duration, cut, seconds, whole
from reliq.errors import InvalidMessage, InvalidName, InvalidSetting
from reliq.features.schedules.recurrence import (
    LAST_TICK,
    Interval,
    Recurrence,
    milliseconds_of,
    recurrence,
    stored_recurrence,
    text_of,
    time_zone,
)
from reliq.model.element import NO_HEADERS
from reliq.model.keys import check_name
from reliq.model.keywords import check_names
from reliq.model.outgoing import Body, NewMessage

CatchUp = Literal["latest", "all", "none"]

ON_TIME = 10_000  #: ms; a tick that is later was missed, for catch_up="none"
MOST_CAUGHT_UP = 1000  #: the largest catch_up_limit
MAX_JITTER_SECONDS = 86_400.0
_GAPS_SEEN = 100  #: between ticks, to find the shortest
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")


class ScheduleOptions(ScheduledOptions, total=False):
    """Options of a schedule; those of ScheduledOptions are of its messages, as in `Queue.send`.

    `tz`: the time zone of a cron expression, UTC by default. `start`, `end`: no tick before and none after; a datetime
    or ISO 8601, in `tz` unless it names a zone; an interval is counted from its start. `jitter`: each tick is sent up
    to this time later, by a delay that its name and tick determine. `catch_up`: what is sent for ticks that were missed
    because no monitor ran or the queue was full: the "latest" (default), "all" (the latest `catch_up_limit`, 100), or
    "none".
    """

    tz: str
    start: datetime | str | None
    end: datetime | str | None
    jitter: Duration
    catch_up: str
    catch_up_limit: int


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schedule as its user has defined it."""

    name: str
    queue: str
    when: str  #: a cron expression, or an interval
    body: bytes = b""
    tz: str = "UTC"
    start: int | None = None  #: ms
    end: int | None = None  #: ms
    jitter: int = 0  #: ms
    catch_up: CatchUp = "latest"
    catch_up_limit: int = 100
    headers: dict[str, str] = NO_HEADERS
    key: str | None = None
    limit_key: str | None = None
    cost: int = 1
    priority: str = "normal"
    ttl: float | None = None  #: seconds

    @property
    def recurrence(self) -> Recurrence:
        return stored_recurrence(self.when, self.tz, self.start or 0)

    @property
    def revision(self) -> str:
        """A digest of the whole definition."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()

    @property
    def timing(self) -> tuple[object, ...]:
        """The fields that decide when it ticks."""
        return self.when, self.tz, self.start, self.end, self.jitter

    def next_tick(self, after: int) -> int | None:
        """Return the first tick later than `after`; None after the end."""
        if self.start is not None and after < self.start:
            after = self.start - 1
        tick = self.recurrence.after(after)
        end = LAST_TICK if self.end is None else min(self.end, LAST_TICK)
        return None if tick is None or tick > end else tick

    def ticks(self, after: int, count: int) -> list[int]:
        """Return the next ticks later than `after`, at most `count`."""
        found: list[int] = []
        tick = self.next_tick(after)
        while tick is not None and len(found) < count:
            found.append(tick)
            tick = self.next_tick(tick)
        return found

    def due(self, tick: int) -> int:
        """Return when a tick is to be sent: at its time, or up to `jitter` later."""
        if not self.jitter:
            return tick
        digest = hashlib.blake2b(f"{self.name} {tick}".encode(), digest_size=8).digest()
        return tick + int.from_bytes(digest) % self.jitter

    def message(self, identity: str) -> NewMessage:
        return NewMessage(self.body, id=identity, **given(structs.asdict(self), SCHEDULE))

    def message_id(self, tick: int) -> str:
        """Return the id of a tick's message: a tick is sent once, and its message can be found."""
        return f"{self.name}@{text_of(tick)}"


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What changes with each tick. A script replaces it only if it is still what the caller has read."""

    revision: str  #: of the definition that the next tick belongs to
    tick: int | None = None  #: ms; the next tick, None after the end
    due: int | None = None  #: ms at which it is sent
    paused: bool = False
    fired: int = 0  #: messages sent so far
    missed: int = 0  #: ticks that were not sent
    source: str = ""  #: the queue from which it is being moved; until that is over it does not tick here

    @property
    def wakes(self) -> int | None:
        """The ms at which a monitor must look at the schedule."""
        return None if self.paused or self.source else self.due

    @classmethod
    def at(cls, definition: Definition, tick: int | None, before: "State | None" = None) -> "State":
        """Return the state in which `tick` is the next one, with the counts of the state before."""
        old = before or State("")
        due = None if tick is None else definition.due(tick)
        return State(definition.revision, tick, due, old.paused, old.fired, old.missed)


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """The latest run of a schedule: one message, several that were caught up, or none because all ticks were missed."""

    tick: int  #: ms; the latest tick of the run
    due: int  #: ms
    id: str = ""  #: of its message
    sent: int = 0  #: messages
    missed: int = 0  #: ticks
    by_hand: bool = False  #: `run` sent it, no tick

    at: int = 0  #: ms of the server's clock at which it was sent; stored apart, the script sets it


class Ticks(NamedTuple):
    """What is sent now, and what follows."""

    send: list[int]
    missed: int
    following: int | None


def ticks_now(definition: Definition, tick: int, now: int) -> Ticks:
    """Return what is to be sent for a schedule whose next tick is `tick`, by its catch-up policy."""
    end = now if definition.end is None else definition.end
    surely = max(tick, min(now - definition.jitter, end))  # each tick until then is due
    count, latest = definition.recurrence.between(tick, surely, definition.catch_up_limit)
    passed, following = [*latest], definition.next_tick(latest[-1])
    while following is not None and definition.due(following) <= now:
        passed.append(following)
        count, following = count + 1, definition.next_tick(following)
    send = _chosen(definition, passed, now)
    return Ticks(send, count - len(send), following)


def _chosen(definition: Definition, passed: list[int], now: int) -> list[int]:
    match definition.catch_up:
        case "latest":
            return passed[-1:]
        case "all":
            return passed[-definition.catch_up_limit :]
        case _:
            return [one for one in passed[-1:] if now - definition.due(one) <= ON_TIME]


def check_schedule_name(name: object) -> str:
    """Return a schedule's name; raises InvalidName."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidName(
            f"schedule name {cut(repr(name), 120)}: use 1 to 100 of A-Z a-z 0-9 . _ @ -, "
            "the first of them a letter or a digit"
        )
    return name


def define(name: str, when: Duration, queue: str, body: Body, options: ScheduleOptions, max_body: int) -> Definition:
    """Return a checked definition; raises InvalidName, InvalidSetting or InvalidMessage, which name the wrong value."""
    check_names(options, ScheduleOptions, "options of a schedule")
    check_schedule_name(name)
    zone = options.get("tz", "UTC")
    time_zone(zone)
    start, end = _moment(options.get("start"), "start", zone), _moment(options.get("end"), "end", zone)
    if start is not None and end is not None and end < start:
        raise InvalidSetting(f"the end of schedule {name!r}, {text_of(end)}, is before its start, {text_of(start)}")
    found = recurrence(when, zone, start or 0)
    message = NewMessage(body, **given(options, SCHEDULE))
    if len(message.body) > max_body:
        raise InvalidMessage(
            f"the body of schedule {name!r} has {len(message.body):,} bytes, the limit is {max_body:,}"
        )
    definition = Definition(
        name=name,
        queue=check_name(queue),
        when=f"{found.every / 1000:.12g}s" if isinstance(found, Interval) else found.expression,
        body=message.body,
        tz=zone,
        start=start,
        end=end,
        jitter=round(seconds(options.get("jitter", 0), "jitter", longest=MAX_JITTER_SECONDS) * 1000),
        catch_up=_catch_up(options.get("catch_up", "latest")),
        catch_up_limit=whole(options.get("catch_up_limit", 100), "catch_up_limit", 1, MOST_CAUGHT_UP),
        **message.options(SCHEDULE),
    )
    _check_jitter(definition, options.get("jitter", 0))
    if start is not None and definition.next_tick(start - 1) is None:
        when = f"after its start, {text_of(start)}"
        if end is not None:
            when = f"between its start, {text_of(start)}, and its end, {text_of(end)}"
        raise InvalidSetting(f"schedule {name!r} never fires: {definition.when!r} has no tick {when}")
    return definition


def _check_jitter(definition: Definition, given: Duration) -> None:
    """Raise InvalidSetting for a jitter by which a tick may be sent after the next one, and so count as missed.

    Looks at ticks from 1970 or the start on: whether a definition is refused does not depend on the day.
    """
    if definition.catch_up == "all":  # none is missed
        return
    ticks = definition.ticks((definition.start or 0) - 1, _GAPS_SEEN + 1) if definition.jitter else []
    shortest = min((later - earlier for earlier, later in pairwise(ticks)), default=definition.jitter)
    if definition.jitter > shortest:
        raise InvalidSetting(
            f"jitter is {given!r}: it must not be longer than the shortest time between two ticks of "
            f"{definition.when!r}, {shortest / 1000:g} s"
        )


def _catch_up(value: str) -> CatchUp:
    for one in get_args(CatchUp):
        if value == one:
            return one  # type: ignore[no-any-return]
    raise InvalidSetting(f"catch_up is {value!r}: it is one of {', '.join(get_args(CatchUp))}")


def _moment(value: datetime | str | None, what: str, zone: str) -> int | None:
    """Read a time; one without a zone of its own is in `zone`."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidSetting(f"{what} is {value!r}: give a time as ISO 8601 such as 2026-11-21T10:00") from None
    if not isinstance(value, datetime):
        raise InvalidSetting(f"{what} is {value!r}: give a datetime, or a text such as 2026-11-21T10:00")
    moment = value if value.tzinfo is not None else value.replace(tzinfo=time_zone(zone))
    ms = milliseconds_of(moment)
    try:
        text_of(ms)
    except OverflowError:
        raise InvalidSetting(f"{what} is {value!r}: in UTC, that is outside of the years 1 to 9999") from None
    return ms
