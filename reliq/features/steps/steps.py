"""What durable handlers ask for: steps, sleeps, waits, links.

A handler's call is a generator that yields steps for Redis and calls of the user's functions. Threads and asyncio run
the same generators: see `_begin`.
"""

import inspect
import secrets
import time
from collections.abc import Callable
from typing import Any, NoReturn, get_type_hints
from urllib.parse import quote
from weakref import WeakKeyDictionary

import msgspec

from reliq import ops
from reliq.contract.values import cut
from reliq.errors import InvalidBody, InvalidMessage, LeaseLost, SignalTimeout, StepsChanged
from reliq.features.steps import ops as own
from reliq.features.steps.driving import FIRST, Call, Doing, Until, driven, driven_async
from reliq.features.steps.model import (
    TIMED_OUT,
    Book,
    Entry,
    Link,
    Missing,
    Nap,
    Recorded,
    Span,
    Step,
    StepFailed,
    Wait,
    link_name,
)
from reliq.features.steps.ops import Parting
from reliq.model.body_types import Reader, reader_of
from reliq.model.dead_letter import DEAD_FROM
from reliq.model.element import NO_EXTRA, decode_envelope, encode_envelope
from reliq.model.message import Message
from reliq.model.policy import Policy, RunOver
from reliq.model.result import read_result, stored
from reliq.model.token import as_token
from reliq.ops import Op, Steps
from reliq.ops.held import Hold, not_held
from reliq.ops.schema import Counter
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.features import Act
from reliq.protocol.holds import of_handler
from reliq.protocol.outcomes import failure_now
from reliq.runtime.failures import failures as failure_log
from reliq.runtime.moment import Moment
from reliq.runtime.origin import traceback_of

_LONG = 60.0  #: seconds after which it is logged for what a branch waits
LONGEST_ERROR = 1000  #: characters of the error of a failed step


class Hand:
    """A message in the hands of its handler."""

    def __init__(self, consumer: ConsumerSteps, message: Message) -> None:
        self.consumer = consumer
        self.message = message
        life = consumer.lives.of(message)
        with FIRST:
            if life.book is None:
                life.book = Book(is_new=not (message.was_started or DEAD_FROM in message.headers))
        self.book: Book = life.book

    @property
    def hold(self) -> Hold:
        """The message as scripts look for it; raises LeaseLost."""
        return of_handler(self.consumer, self.message)

    def entry(self, name: str, place: int) -> Doing[Entry]:
        """Return what is recorded of a step; raises StepsChanged."""
        book = self.book
        if not book.is_read:
            yield self._read(book)
        return book.find(name, place)

    def _read(self, book: Book) -> Steps[None]:
        """Read what is recorded; branches of a handler come here one after another. Raises InvalidMessage."""
        if not book.is_read:
            recorded = yield own.recorded(self.consumer.keys, self.message.id)
            check_own(self.message, recorded)
            book.read(recorded)

    def check_lease(self) -> Doing[None]:
        """Raise LeaseLost if the lease has ended; asks Redis only where it may have: the process was suspended."""
        if self.consumer.trust.until.passed():
            sent_at, keys = Moment.now(), self.consumer.keys
            if not (yield ops.one(ops.heartbeat(keys, self.consumer.consumer, self.consumer.lease))):
                raise not_held(self.message)
            self.consumer.trust.renewed(sent_at)
        check_runs(self.message)

    def record(self, entry: Entry) -> Doing[None]:
        """Store an entry; raises LeaseLost if another consumer may have the message."""
        check_status(
            self.message, (yield self._store(entry, lambda number: own.record(self.hold, number, entry.encoded())))
        )

    def line_up(self, name: str, *, alone: bool = False) -> Span:
        """Return a new span of the book, behind those that are here; `wait_for_turn` comes next."""
        span = Span(name, alone, self.book.event())
        self.book.line_up(span)
        return span

    def wait_for_turn(self, span: Span) -> Doing[Span]:
        """Wait until a span may begin: no step runs while the message is let rest, and spans begin in their order.

        Else what a step has done in another branch would be lost, and done again. Raises as `check_may_rest`.
        """
        began, is_told = time.monotonic(), False
        try:
            while (other := self.book.ahead_of(span)) is not None:
                yield Until(other)
                self.check_may_rest()
                if time.monotonic() > began + _LONG and not is_told:
                    is_told = True
                    failure_log.held_back(self.message, span.name, other.name)
        except BaseException:
            self.book.end(span)
            raise
        return span

    def rest(
        self,
        entry: Entry,
        seconds: float,
        parting: Parting,
        counter: str,
        error: Exception | None = None,
        span: Span | None = None,
    ) -> Doing[None]:
        """Store an entry, let the message be delayed, and end the run. `error`: of a step that is tried again."""

        def sleep(number: int) -> Op[str]:
            return own.sleep(self.hold, number, entry.resting().encoded(), seconds, parting, counter)

        span = span or self.line_up(entry.name, alone=True)
        with self.book.during((yield from self.wait_for_turn(span))):
            self.check_may_rest()
            self.leave((yield self._store(entry, sleep)), error)

    def check_may_rest(self) -> None:
        """Raise as `check_runs`, and RunOver if the message was cancelled: its worker then deletes it."""
        check_runs(self.message)
        if self.message.cancelled:
            raise RunOver

    def leave(self, status: str, error: Exception | None = None) -> NoReturn:
        """End the run of a message that rests from now on, or was cancelled; else raises as `check_status`."""
        if status == "cancelled":
            self.consumer.lives.of(self.message).cancelled = True
            raise RunOver
        check_status(self.message, status)
        self.message._rests = True  # noqa: SLF001  until it comes again
        self.consumer.let_go(self.message, error)
        raise RunOver

    def _store(self, entry: Entry, op: Callable[[int], Op[str]]) -> Steps[str]:
        """Run the op with the number of the entry; branches of a handler come here one after another.

        What a Redis that was restarted with an older state has lost of the record is stored again before.
        """
        status: str = yield op(self.book.number(entry))
        if status == "behind":
            for number, known in enumerate(self.book.entries, 1):
                if (status := (yield own.record(self.hold, number, known.encoded()))) != "ok":
                    return status
            status = yield op(self.book.number(entry))
        if status == "ok":
            self.book.note(entry)
        return status


def check_runs(message: Message) -> None:
    """Raise RunOver if another branch has let the message rest, and LeaseLost if it is lost."""
    if message.lost:
        raise RunOver if getattr(message, "_rests", False) else not_held(message)


def check_own(message: Message, recorded: Recorded) -> None:
    """Raise InvalidMessage if a record is of another message with the id of this one."""
    if recorded.sent not in (0, message.enqueued_at):
        check_status(message, "other")


def check_status(message: Message, status: str) -> None:
    """Raise the error for the status that a script returns of a message: LeaseLost, InvalidMessage."""
    if status in ("lost", "behind"):
        raise not_held(message)
    if status == "other":
        raise InvalidMessage(
            f"the record of message {message.id} of {message.queue!r} is of another message with this id: messages "
            "with steps need ids of their own"
        )


# --- what handlers ask for ---


def _step(hand: Hand, asked: Step, place: int) -> Doing[Any]:
    """Return what a step has returned before, or call its function now and store what that returns."""
    check_runs(hand.message)
    reader = _reader(asked.function)
    entry = yield from hand.entry(asked.name, place)
    if entry.kind == "z":
        raise StepsChanged(f"{asked.name!r} is a step of this handler, and was a sleep when an earlier run recorded it")
    if entry.kind == "s":
        return _result(entry, reader)
    if entry.kind == "f":
        raise _final(entry)
    if entry.kind == "b":
        error: Exception = InterruptedError("its worker ended while it ran, and it is to run at most once")
        return (yield from (yield from _fail(hand, asked, entry, error)))
    hand.book.number(entry)  # raises while the step has not run
    if entry.due and (left := entry.due - (yield ops.one(ops.server_time()))) > 0:
        yield from hand.rest(entry, left / 1000, Parting(resting(hand.message)), Counter.RETRIED)
    with hand.book.during((yield from hand.wait_for_turn(hand.line_up(asked.name)))):
        check_runs(hand.message)
        if asked.at_most_once:
            entry = entry._replace(kind="b", value=b"%d " % entry.failures)
            yield from hand.record(entry)
        else:
            yield from hand.check_lease()
        try:
            value = yield Call(asked.function, asked.arguments)
        except LeaseLost:
            raise
        except Exception as raised:  # noqa: BLE001  a step may raise anything
            error = raised
        else:
            return (yield from _returned(hand, entry, value, reader))
        rest = yield from _fail(hand, asked, entry, error)
    yield from rest


def _returned(hand: Hand, entry: Entry, value: object, reader: Reader | None) -> Doing[Any]:
    """Store what a step has returned, and return it as later runs get it; raises StepFailed."""
    try:
        entry = entry._replace(kind="s", value=stored(value, f"step {entry.name!r} returned", "result"))
        hand.book.number(entry)
    except InvalidMessage as error:  # it has run: another try would do again what it does elsewhere
        return (yield from _failed_for_good(hand, entry, error))
    yield from hand.record(entry)
    return _result(entry, reader)


def _fail(hand: Hand, asked: Step, entry: Entry, error: Exception) -> Doing[Doing[None]]:
    """Return what ends the run of a step that has failed, to be tried again later. It is for after the step's span.

    Raises StepFailed if it is not tried again; its error without `retry`.
    """
    if asked.retry is None and entry.kind != "b":
        raise error
    failures, delay = entry.failures + 1, None
    if asked.retry is not None:
        policy = Policy(asked.retry, asked.retry_on)
        is_final = policy.rejects(error) or error in hand.book.refused  # the same again with each try
        delay = None if is_final else policy.delay(failures, error)
    if delay is None:
        return (yield from _failed_for_good(hand, entry, error))
    entry = entry._replace(kind="r", value=_failure_text(failures, error))
    failure = failure_now(hand.consumer.consumer, type(error).__qualname__, f"step {asked.name}: {error}")
    if not hand.message.lost:
        shown = failure_now(failure.worker, failure.error_class, traceback_of(error))
        failure_log.step_failed(hand.message, asked.name, failures, shown, error, delay)
    parting = Parting(_going_on(hand.message.failed(failure, charged=False)))
    span = hand.line_up(asked.name, alone=True)
    if hand.book.has_others(span):  # one may let the message rest first: the failure counts, and its delay too
        try:
            now = yield ops.one(ops.server_time())
            yield from hand.record(entry.not_before(now + 1000 * delay))
        except BaseException:
            hand.book.end(span)
            raise
    return hand.rest(entry, delay, parting, Counter.RETRIED, error, span)


def _failed_for_good(hand: Hand, entry: Entry, error: Exception) -> Doing[NoReturn]:
    """Store that a step has failed and is not tried again; raises StepFailed."""
    final = entry._replace(kind="f", value=_failure_text(entry.failures + 1, error))
    yield from hand.record(final)
    raise _final(final) from error


def _failure_text(failures: int, error: Exception) -> bytes:
    text = cut(f"{type(error).__qualname__}: {error}", LONGEST_ERROR)
    return f"{failures} {text}".encode("utf-8", "replace")


def _final(entry: Entry) -> StepFailed:
    _, _, error = entry.value.decode("utf-8", "replace").partition(" ")
    return StepFailed(f"step {entry.name!r} failed for good, after {entry.failures} tries: {error}", entry.name, error)


def _sleep(hand: Hand, asked: Nap, place: int) -> Doing[None]:
    entry = yield from hand.entry(asked.name, place)
    if entry.kind == "z":
        yield from hand.check_lease()  # else a later run may have recorded it, and sleep now
        return
    if entry.kind != "x":
        raise StepsChanged(f"{asked.name!r} is a sleep of this handler, and was a step when an earlier run recorded it")
    entry = entry._replace(kind="z", value=b"")
    parting = Parting(resting(hand.message), asked.frees_key)
    yield from hand.rest(entry, asked.seconds, parting, Counter.SLEPT)


def _wait(hand: Hand, asked: Wait, place: int) -> Doing[Any]:
    signal = None
    if hand.book.has_others():  # one that is there is not held back by the steps of other branches
        signal = (yield ops.one(own.signals_of(hand.consumer.keys, hand.message.id))).get(asked.name)
    if signal is None:
        signal = yield from _park(hand, asked)
    if signal != TIMED_OUT:
        return read_result(signal)
    if asked.default is Missing:
        raise SignalTimeout(f"message {hand.message.id} of {hand.message.queue!r} got no signal {asked.name!r} in time")
    return asked.default


def _park(hand: Hand, asked: Wait) -> Doing[bytes]:
    """Return a signal that is there; else let the message wait for it, and end the run."""
    with hand.book.during((yield from hand.wait_for_turn(hand.line_up(asked.name, alone=True)))):
        hand.check_may_rest()
        parting = Parting(resting(hand.message), asked.frees_key)
        parked: tuple[str, bytes] = yield ops.one(own.park(hand.hold, asked.name, asked.timeout, parting))
        if parked[0] != "given":
            hand.leave(parked[0])
    return parked[1]


def _link(hand: Hand, asked: Link, place: int) -> Doing[str]:
    name = link_name(asked.name)
    secret = yield from _step(hand, Step(name, secrets.token_urlsafe, (24,)), place)
    token = as_token(f"{hand.message.id}\n{asked.name}\n{secret}".encode())
    return f"/v1/queues/{quote(hand.consumer.keys.logical)}/signals/{token}"


_DOING: dict[type, Callable[..., Doing[Any]]] = {Step: _step, Nap: _sleep, Wait: _wait, Link: _link}


def _begin(consumer: ConsumerSteps, message: Message, asked: Any) -> Any:
    """Do what a handler asks for; an async handler gets what it is to await."""
    check_runs(message)  # first: nothing more is noted of one that has left
    hand = Hand(consumer, message)
    if isinstance(asked, Link):  # also inside of a step, which hands it out
        name = link_name(asked.name)
    else:
        name = asked.name
        hand.book.check_outside(name)
    place = 0 if isinstance(asked, Wait) else hand.book.ask(name)
    doing, run = _DOING[type(asked)](hand, asked, place), consumer.run_report
    return driven_async(run, hand.book, doing) if inspect.iscoroutinefunction(run) else driven(run, hand.book, doing)


DURABLE = Act({Step: "step", Nap: "sleep", Wait: "wait", Link: "link"}, _begin)


def resting(message: Message) -> bytes:
    """Return the element of a message that comes back: it has begun, so it does not expire, and no one died with it."""
    return _going_on(message.again(redelivered=False, deliveries=0))


def _going_on(element: bytes) -> bytes:
    envelope = decode_envelope(element)
    extra = msgspec.structs.replace(envelope.extra or NO_EXTRA, reported=True, expires_at=0)
    return encode_envelope(msgspec.structs.replace(envelope, extra=extra))


_readers: WeakKeyDictionary[Any, Reader | None] = WeakKeyDictionary()  #: a function may refer to much, as a lambda does


def _reader(function: Callable[..., Any]) -> Reader | None:
    """Return what reads the results of a function by its annotation; None without one."""
    inner: Any = inspect.unwrap(function)
    inner = getattr(inner, "__func__", inner)  # a bound method is another object each time
    try:
        if "return" not in getattr(inner, "__annotations__", ()):
            return None
    except NameError:  # from Python 3.14 on they are evaluated here
        return None
    if inner not in _readers:
        _readers[inner] = _make_reader(inner)
    return _readers[inner]


def _make_reader(function: Callable[..., Any]) -> Reader | None:
    try:
        kind = get_type_hints(function).get("return")
        return None if kind in (None, Any, type(None), str, bytes) else reader_of(kind)
    except (TypeError, NameError, AttributeError):  # no function, or of a type that JSON has not: it comes as JSON
        return None


def _result(entry: Entry, reader: Reader | None) -> Any:
    """Return what a step has returned; raises StepsChanged if that does not fit the annotation any more."""
    if reader is None or not entry.value.startswith(b"j"):
        return read_result(entry.value)
    try:
        return reader(entry.value[1:])
    except InvalidBody as error:
        raise StepsChanged(
            f"the recorded result of step {entry.name!r} does not fit its type any more: {error}"
        ) from None
