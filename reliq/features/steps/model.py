"""What a handler asks of its message beside settling it, and the record of that."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from reliq.contract.values import Duration, seconds
from reliq.errors import InvalidMessage, InvalidSetting, ReliqError, StepsChanged
from reliq.model.backoff import Backoff, read_backoff
from reliq.model.policy import Dead, ErrorsGiven, error_classes
from reliq.model.result import stored

MAX_STEPS = 1000  #: entries of the record of a message
MAX_RECORD_BYTES = 8 * 1024 * 1024  #: of all entries of a message
LONGEST_NAME = 200  #: characters
TIMED_OUT = b"t"  #: in the place of a signal that did not come in time

Kind = Literal["s", "f", "r", "b", "z", "x"]


class Missing:
    """No default."""


class StepFailed(Dead, ReliqError):
    """A step of a handler has failed for good: its retries are used up. `step`: its name; `error`: its last failure.

    A handler may catch it; else its message is dead, and the step runs again after a redrive.
    """

    __module__ = "reliq"

    def __init__(self, text: str, step: str, error: str) -> None:
        super().__init__(text)
        self.step = step
        self.error = error


@dataclass(frozen=True, slots=True)
class Step:
    """A call that is not repeated once it has returned."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    retry: Backoff | None = None
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    at_most_once: bool = False


@dataclass(frozen=True, slots=True)
class Nap:
    name: str
    seconds: float
    frees_key: bool


@dataclass(frozen=True, slots=True)
class Link:
    """A one-time link for a signal, by the name of the signal."""

    name: str


@dataclass(frozen=True, slots=True)
class Wait:
    name: str
    timeout: float | None
    default: Any
    frees_key: bool


_NOT_BEFORE = b"\n>"


class Entry(NamedTuple):
    """One entry of a record. `place`: as which one of its group the handler asked for it, from 1 on."""

    kind: Kind  #: returned, failed, to be tried again, begun (at most once), slept, to run again after a redrive
    place: int
    name: str
    value: bytes = b""  #: a result; of a failure how often, a blank, and the error; of a sleep until when

    def encoded(self) -> bytes:
        return f"{self.kind}{self.place} {self.name}\n".encode() + self.value

    @classmethod
    def read(cls, stored: bytes) -> Self:
        head, _, value = stored.partition(b"\n")
        place, _, name = head[1:].decode().partition(" ")
        return cls(head[:1].decode(), int(place), name, value)  # type: ignore[arg-type]

    @property
    def failures(self) -> int:
        return int(self.value.partition(b" ")[0] or 0) if self.kind in "rfb" else 0

    def not_before(self, due: float) -> Self:
        """Return this failed step as one that is tried again at this time, in ms, whenever its message comes again."""
        return self._replace(value=self.value + _NOT_BEFORE + b"%d" % due)

    @property
    def due(self) -> int:
        """When a failed step is tried again, if the message may come before: ms since the epoch; 0: when it comes."""
        return int(self.value.partition(_NOT_BEFORE)[2] or 0) if self.kind == "r" else 0

    def resting(self) -> Self:
        """Return an entry to which the script of a sleep adds the ms at which its message comes again."""
        return self._replace(value=self.value.partition(_NOT_BEFORE)[0] + b"\n") if self.kind == "r" else self


class Recorded(NamedTuple):
    """The record of a message as Redis has it, without its signals."""

    sent: int = 0  #: ms at which its message was sent; 0: not known
    entries: tuple[Entry, ...] = ()

    @classmethod
    def read(cls, reply: list[bytes]) -> Self:
        if not reply:
            return cls()
        count, sent, _ = reply[0].decode().split("\n")[0].split(" ")
        return cls(int(sent), tuple(Entry.read(one) for one in reply[1 : 1 + int(count)]))


@dataclass(eq=False, slots=True)
class Span:
    """A time in which a step runs or, `alone`, in which a branch of the handler lets the message rest."""

    name: str
    alone: bool
    over: Any  #: an event of threads or of asyncio


_inside: ContextVar[Span | None] = ContextVar("reliq_step", default=None)


class Book:
    """The record of a message in the hands of a handler, and what this run has asked for so far."""

    def __init__(self, is_new: bool = False) -> None:
        """`is_new`: the message has no record yet."""
        self.is_read = is_new
        self.turn: Any = None  #: a lock of threads or of asyncio: one call of a message at a time
        self.event: Callable[[], Any] = threading.Event  #: or that of asyncio
        self.entries: list[Entry] = []
        self.size = 0
        self._numbers: dict[str, int] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._spans: list[Span] = []
        self._spans_lock = threading.Lock()
        self.refused: list[InvalidMessage] = []  #: errors of calls that a step made and may not make
        self._asked: Counter[str] = Counter()
        self._seen: set[str] = set()

    def read(self, recorded: Recorded) -> None:
        """Note what Redis has, once."""
        for entry in recorded.entries:
            self.note(entry)
        self.is_read = True  # last: other branches of the handler may look now

    def has_others(self, *own: Span) -> bool:
        """Whether another branch of the handler is in a span, or waits for one. `own`: of the branch that asks."""
        with self._spans_lock:
            return any(one not in own and one is not _inside.get() for one in self._spans)

    def line_up(self, span: Span) -> None:
        """Put a span behind those that are here."""
        with self._spans_lock:
            self._spans.append(span)

    def ahead_of(self, span: Span) -> Span | None:
        """Return a span that is to end before this one begins; None: it may begin."""
        with self._spans_lock:
            if _inside.get() in self._spans:  # a link that a step asks for
                return None
            before = self._spans[: self._spans.index(span)]
            return next((one for one in before if one.alone or span.alone), None)

    def end(self, span: Span) -> None:
        with self._spans_lock:
            self._spans.remove(span)
        span.over.set()

    @contextmanager
    def during(self, span: Span) -> Iterator[None]:
        """End a span with this block, which is inside of it."""
        before = _inside.get()
        _inside.set(span)
        try:
            yield
        finally:
            _inside.set(before)
            self.end(span)

    def check_outside(self, name: str) -> None:
        """Raise InvalidMessage inside of a step: what it asks for would be asked for only in the run that calls it."""
        outer = _inside.get()
        if outer is not None and outer in self._spans:
            error = InvalidMessage(
                f"{name!r} is asked for inside of step {outer.name!r}, which later runs do not call again: let the "
                "handler ask for it before or after that step, or call the function itself"
            )
            self.refused.append(error)
            raise error

    def ask(self, name: str) -> int:
        """Return as which one of its group a step is asked for, from 1 on; raises InvalidMessage for the second one."""
        if name in self._seen:
            raise InvalidMessage(f"two steps of this handler are called {name!r}: give each a name of its own")
        self._seen.add(name)
        group = group_of(name)
        self._asked[group] += 1
        return self._asked[group]

    def find(self, name: str, place: int) -> Entry:
        """Return the entry of a step, a new one if it has none; raises StepsChanged."""
        if name in self._numbers:
            entry = self.entries[self._numbers[name] - 1]
            if entry.place != place:
                raise StepsChanged(
                    f"step {name!r} is number {place} of this handler, and was number {entry.place} when an earlier "
                    "run recorded it: run such messages with the former code, or put new steps behind the others"
                )
            return entry
        if former := self._names.get((group_of(name), place)):
            raise StepsChanged(
                f"step {place} of this handler is {name!r}, and was {former!r} when an earlier run recorded it: it was "
                "renamed, or another step was put before it"
            )
        return Entry("x", place, name)

    def number(self, entry: Entry) -> int:
        """Return the number under which an entry is stored next; raises InvalidMessage if the record is full."""
        number = self._numbers.get(entry.name, len(self.entries) + 1)
        if number > MAX_STEPS:
            raise InvalidMessage(f"step {entry.name!r} is number {number:,} of its message, of at most {MAX_STEPS:,}")
        size = self.size + len(entry.value)
        if size > MAX_RECORD_BYTES and entry.kind not in "rf":  # the error of a step that has run is short, and is kept
            raise InvalidMessage(
                f"with step {entry.name!r} the record of its message has {size:,} bytes, of at most "
                f"{MAX_RECORD_BYTES:,}: store large results elsewhere, and return a reference"
            )
        return number

    def note(self, entry: Entry) -> None:
        """Note an entry that was stored."""
        number = self._numbers.setdefault(entry.name, len(self.entries) + 1)
        self.size += len(entry.value) - sum(len(one.value) for one in self.entries[number - 1 : number])
        self._names[group_of(entry.name), entry.place] = entry.name
        self.entries[number - 1 : number] = [entry]


def group_of(name: str) -> str:
    """Return what is before the last slash: steps of one group are numbered, groups may run beside each other."""
    return name.rpartition("/")[0]


def link_name(signal: str) -> str:
    """Return the name of the step that holds the secret of a link."""
    return f"link/{signal}/secret"


def check_step_name(name: object, what: str = "step") -> str:
    """Return the name of a step or signal; raises InvalidMessage."""
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidMessage(
            f"the name of a {what} is {name!r}: give a text of 1 to {LONGEST_NAME} printable characters"
        )
    return name


def json_or_text(text: str) -> object:
    """Return a value that a person has typed: JSON, else the text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def stored_signal(value: object) -> bytes:
    """Return the value of a signal as it is stored; raises InvalidMessage."""
    return stored(value, "the signal has", "value of a signal")


#: Why a signal is refused, by the answer of the script.
REFUSED = {
    "late": "its time to wait for this signal is over",
    "ended": "it has left the queue: it was handled, cancelled or deleted",
    "many": "it has 1,000 signals, and does not wait for this one",
    "full": "nothing is known of it, and the queue keeps early signals of 100,000 such messages; give it again later",
    "unknown": "no message with this id waits or has recorded anything; name its queue to give a signal early",
}


class DurableCalls:
    """What a message has for handlers that outlive their worker; see docs/how-to/durable.md."""

    __slots__ = ()

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        retry: Backoff | int | None = None,
        retry_on: ErrorsGiven = Exception,
        at_most_once: bool = False,
    ) -> Any:
        """Call a function once, and store what it returns with the message; await it in async handlers.

        Later runs get the stored result. `retry`: back-off of the step. Raises StepFailed, StepsChanged, LeaseLost,
        and InvalidHandler for what is no back-off.
        """
        if not callable(function):
            raise InvalidSetting(f"step {name!r} has {function!r}: give a function, and its arguments after it")
        on = error_classes(retry_on, "retry_on")
        backoff = None if retry is None else read_backoff(retry, f"retry of step {name!r}")
        return self._act(Step(check_step_name(name), function, arguments, backoff, on, at_most_once))

    def sleep(self, name: str, duration: Duration | None = None, *, frees_key: bool = False, **units: float) -> Any:
        """End this run, and begin the next one after a time: `days=7`, `hours`, `minutes`, `seconds`, or "7d".

        `frees_key`: other messages of its key go on meanwhile.
        """
        return self._act(Nap(check_step_name(name), _seconds_of(duration, units), frees_key))

    def wait(
        self, signal: str, timeout: Duration | None = None, *, default: Any = Missing, frees_key: bool = False
    ) -> Any:
        """Return the value of a signal; without one end this run until it comes (`Queue.signal`).

        After `timeout` returns `default`, or raises SignalTimeout without one.
        """
        longest = None if timeout is None else seconds(timeout, "timeout")
        return self._act(Wait(check_step_name(signal, "signal"), longest, default, frees_key))

    def link(self, signal: str) -> Any:
        """Return the path of a one-time link: who posts to it at the HTTP service gives the signal, without a key."""
        return self._act(Link(check_step_name(signal, "signal")))

    def _act(self, asked: object) -> Any:
        return self._holder().act(self, asked)  # type: ignore[attr-defined]


_UNITS = {"days": 86_400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


def _seconds_of(duration: Duration | None, units: dict[str, float]) -> float:
    """Return the length of a sleep in seconds; raises InvalidSetting."""
    if unknown := units.keys() - _UNITS:
        raise InvalidSetting(f"sleep() has no {', '.join(sorted(unknown))}: give {', '.join(_UNITS)}")
    if duration is None and not units:
        raise InvalidSetting('sleep() has no length: give one, such as "7d" or days=7')
    for name, value in units.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidSetting(f"sleep({name}={value!r}): give a number of {name}, such as {name}=7")
    total = 0.0 if duration is None else seconds(duration, "duration")
    return seconds(total + sum(_UNITS[name] * value for name, value in units.items()), "the length of the sleep")
