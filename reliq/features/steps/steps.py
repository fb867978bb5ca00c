"""The steps of durable handlers, of signals, and of the messages that wait for them.

A handler's call is a generator that yields steps for Redis and calls of the user's functions. Threads and asyncio run
the same generators: see `_begin`.
"""

import functools
import hmac
import inspect
import secrets
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar, get_type_hints
from urllib.parse import quote

import msgspec

from reliq import ops
from reliq.contract.values import check_id, cut
from reliq.errors import InvalidBody, InvalidMessage, LeaseLost, SignalRefused, SignalTimeout, StepsChanged
from reliq.features.steps import ops as own
from reliq.features.steps.model import (
    REFUSED,
    TIMED_OUT,
    Book,
    Entry,
    Link,
    Missing,
    Nap,
    Step,
    StepFailed,
    Wait,
    check_step_name,
    stored_signal,
)
from reliq.features.steps.ops import Parked, Parting, recorded_tag
from reliq.model.backoff import backoff_of
from reliq.model.body_types import Reader, reader_of
from reliq.model.element import NO_EXTRA, decode_envelope, encode_envelope
from reliq.model.found import Place
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.policy import Policy, RunOver
from reliq.model.result import answer, read_result
from reliq.model.token import as_token, read_token
from reliq.ops import Op, Steps
from reliq.ops.held import Hold
from reliq.ops.schema import Counter
from reliq.protocol.act import Act
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.hidden import Hidden
from reliq.protocol.holding import not_held, of_handler
from reliq.protocol.homes import QueueHomes
from reliq.protocol.outcomes import failure_now
from reliq.runtime.moment import Moment

__all__ = ["DURABLE", "WAITING", "SignalSteps", "check_said", "parked_in", "recorded_tag", "resting", "take_along"]

T = TypeVar("T")

EARLY = 86_400.0  #: seconds for which a signal is kept for a message of which nothing is known
LONGEST_ERROR = 1000  #: characters of the error of a failed step
_FIELDS = 1000  #: of a record, and their values, that one call stores
_PAGE = 500  #: parked messages that one call reads or removes


class Call(NamedTuple):
    """A call of a user's function."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


Doing = Generator[Steps[Any] | Call, Any, T]


class Hand:
    """A message in the hands of its handler."""

    def __init__(self, consumer: ConsumerSteps, message: Message) -> None:
        self.consumer = consumer
        self.message = message

    @property
    def hold(self) -> Hold:
        """The message as scripts look for it; raises LeaseLost."""
        return of_handler(self.consumer, self.message)

    def check_cancelled(self) -> None:
        """End the run of a message that was cancelled: its worker then deletes it, in place of letting it rest."""
        if self.message.cancelled:
            raise RunOver

    @property
    def book(self) -> Book:
        life = self.consumer.lives.of(self.message)
        if life.book is None:
            life.book = Book()
            life.book.is_read = not self.message.was_started
        book: Book = life.book
        return book

    def entry(self, name: str, place: int) -> Doing[Entry]:
        """Return what is recorded of a step; raises StepsChanged."""
        book = self.book
        if not book.is_read:
            recorded = yield ops.one(own.recorded(self.consumer.keys, self.message.id))
            book.read(recorded, self.message.enqueued_at)
        return book.find(name, place)

    def check_lease(self) -> Doing[None]:
        """Raise LeaseLost if the lease has ended; asks Redis only where it may have: the process was suspended."""
        if self.consumer.trusted_until.passed():
            sent_at, keys = Moment.now(), self.consumer.keys
            if not (yield ops.one(ops.heartbeat(keys, self.consumer.consumer, self.consumer.lease))):
                raise not_held(self.message)
            self.consumer.renewed(sent_at)
        if self.message.lost:
            raise not_held(self.message)

    def record(self, entry: Entry) -> Doing[None]:
        """Store an entry; raises LeaseLost if another consumer may have the message."""
        check_said(
            self.message, (yield self._stored(entry, lambda number: own.record(self.hold, number, entry.encoded())))
        )

    def rest(self, entry: Entry, seconds: float, parting: Parting, counter: str) -> Doing[None]:
        """Store an entry, let the message be delayed, and end the run."""

        def sleep(number: int) -> Op[str]:
            return own.sleep(self.hold, number, entry.encoded(), seconds, parting, counter)

        check_said(self.message, (yield self._stored(entry, sleep)))
        self.consumer.let_go(self.message)
        raise RunOver

    def _stored(self, entry: Entry, op: Callable[[int], Op[str]]) -> Steps[str]:
        """Run the op with the number of the entry; branches of a handler come here one after another."""
        said: str = yield op(self.book.number(entry))
        if said == "ok":
            self.book.note(entry)
        return said


def check_said(message: Message, said: str) -> None:
    """Raise what a script said of a message: LeaseLost, or InvalidMessage."""
    if said == "lost":
        raise not_held(message)
    if said == "other":
        raise InvalidMessage(
            f"the record of message {message.id} of {message.queue!r} is of another message with this id: messages "
            "with steps need ids of their own"
        )


# --- what handlers ask for ---


def _step(hand: Hand, asked: Step, place: int) -> Doing[Any]:
    """Return what a step has returned before, or call its function now and store what that returns."""
    if hand.message.lost:
        raise not_held(hand.message)
    read = _reader(asked.function)
    entry = yield from hand.entry(asked.name, place)
    if entry.kind == "s":
        return _read(read, entry)
    if entry.kind == "f":
        raise _final(entry)
    if entry.kind == "b":
        error: Exception = InterruptedError("its worker ended while it ran, and it is to run at most once")
        return (yield from _failed(hand, asked, entry, error))
    if asked.at_most_once:
        entry = entry._replace(kind="b", value=b"%d " % entry.failures)
        yield from hand.record(entry)
    else:
        yield from hand.check_lease()
    try:
        value = yield Call(asked.function, asked.arguments)
        entry = entry._replace(kind="s", value=answer(value).stored)
    except LeaseLost:
        raise
    except Exception as error:  # noqa: BLE001  a step may raise anything
        return (yield from _failed(hand, asked, entry, error))
    yield from hand.record(entry)
    return _read(read, entry)


def _failed(hand: Hand, asked: Step, entry: Entry, error: Exception) -> Doing[Any]:
    """End the run of a step that failed: it is tried again later. Raises StepFailed; its error without `retry`."""
    if asked.retry is None and entry.kind != "b":
        raise error
    failures = entry.failures + 1
    text = cut(f"{type(error).__qualname__}: {error}", LONGEST_ERROR)
    value = f"{failures} {text}".encode("utf-8", "replace")
    delay = None
    if asked.retry is not None:
        policy = Policy(backoff_of(asked.retry, None, hand.message.queue), asked.retry_on)
        delay = None if policy.rejects(error) else policy.delay(failures, error)
    if delay is None:
        final = entry._replace(kind="f", value=value)
        yield from hand.record(final)
        raise _final(final) from error
    # The times after it are those of the sleep: the script writes the ms behind a line feed.
    entry = entry._replace(kind="r", value=value + b"\n")
    failure = failure_now(hand.consumer.consumer, type(error).__qualname__, f"step {asked.name}: {error}")
    parting = Parting(_going_on(hand.message.failed(failure, charged=False)))
    yield from hand.rest(entry, delay, parting, Counter.RETRIED)


def _final(entry: Entry) -> StepFailed:
    _, _, error = entry.value.decode("utf-8", "replace").partition(" ")
    return StepFailed(f"step {entry.name!r} failed for good, after {entry.failures} tries: {error}", entry.name, error)


def _sleep(hand: Hand, asked: Nap, place: int) -> Doing[None]:
    entry = yield from hand.entry(asked.name, place)
    if entry.kind == "z":
        return
    hand.check_cancelled()
    entry = entry._replace(kind="z", value=b"")
    parting = Parting(resting(hand.message), asked.frees_key)
    yield from hand.rest(entry, asked.seconds, parting, Counter.SLEPT)


def _wait(hand: Hand, asked: Wait, place: int) -> Doing[Any]:
    hand.check_cancelled()
    parting = Parting(resting(hand.message), asked.frees_key)
    said, stored = yield ops.one(own.park(hand.hold, asked.name, asked.timeout, parting))
    if said == "ok":
        hand.consumer.let_go(hand.message)
        raise RunOver
    check_said(hand.message, said)
    if stored != TIMED_OUT:
        return read_result(stored)
    if asked.default is Missing:
        raise SignalTimeout(f"message {hand.message.id} of {hand.message.queue!r} got no signal {asked.name!r} in time")
    return asked.default


def _link(hand: Hand, asked: Link, place: int) -> Doing[str]:
    name = _link_name(asked.signal)
    secret = yield from _step(hand, Step(name, secrets.token_urlsafe, (24,)), place)
    token = as_token(f"{hand.message.id}\n{asked.signal}\n{secret}".encode())
    return f"/v1/queues/{quote(hand.consumer.keys.logical)}/signals/{token}"


_DOING: dict[type, Callable[..., Doing[Any]]] = {Step: _step, Nap: _sleep, Wait: _wait, Link: _link}


def _link_name(signal: str) -> str:
    return f"link/{signal}/secret"


def _begin(consumer: ConsumerSteps, message: Message, asked: Any) -> Any:
    """Do what a handler asks for; an async handler gets what it is to await."""
    hand = Hand(consumer, message)
    name = _link_name(asked.signal) if isinstance(asked, Link) else asked.name
    place = 0 if isinstance(asked, Wait) else hand.book.ask(name)
    doing, run = _DOING[type(asked)](hand, asked, place), consumer.run_report
    return _driven_async(run, hand.book, doing) if inspect.iscoroutinefunction(run) else _driven(run, hand.book, doing)


def _driven(run: Callable[[Steps[Any]], Any], book: Book, doing: Doing[T]) -> T:
    turn = book.turn = book.turn or threading.Lock()
    advance: Callable[[], Any] = functools.partial(next, doing)
    while True:
        try:
            act = advance()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            if isinstance(act, Call):
                done = _not_async(act, act.function(*act.arguments))
            else:
                with turn:
                    done = run(act)
            advance = functools.partial(doing.send, done)
        except BaseException as error:  # noqa: BLE001  the generator raises it, or goes on
            advance = functools.partial(doing.throw, error)


async def _driven_async(run: Callable[[Steps[Any]], Awaitable[Any]], book: Book, doing: Doing[T]) -> T:
    import asyncio  # only programs that use it load it

    turn = book.turn = book.turn or asyncio.Lock()
    advance: Callable[[], Any] = functools.partial(next, doing)
    while True:
        try:
            act = advance()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            if isinstance(act, Call):
                done = act.function(*act.arguments)
                done = await done if inspect.isawaitable(done) else done
            else:
                async with turn:
                    done = await run(act)
            advance = functools.partial(doing.send, done)
        except BaseException as error:  # noqa: BLE001  a cancellation too
            advance = functools.partial(doing.throw, error)


def _not_async(call: Call, returned: T) -> T:
    if inspect.iscoroutine(returned):
        returned.close()
        raise TypeError(f"step function {call.function!r} is async, and the handler is not: make both async")
    return returned


DURABLE = Act((Step, Nap, Wait, Link), _begin)


def resting(message: Message) -> bytes:
    """Return the element of a message that comes back: it has begun, so it does not expire, and no one died with it."""
    return _going_on(message.again(redelivered=False, deliveries=0))


def _going_on(element: bytes) -> bytes:
    envelope = decode_envelope(element)
    extra = msgspec.structs.replace(envelope.extra or NO_EXTRA, reported=True, expires_at=0)
    return encode_envelope(msgspec.structs.replace(envelope, extra=extra))


@functools.lru_cache(1000)
def _reader(function: Callable[..., Any]) -> Reader | None:
    """Return what reads the results of a function by its annotation; None without one."""
    try:
        kind = get_type_hints(inspect.unwrap(function)).get("return")
        return None if kind in (None, Any, type(None), str, bytes) else reader_of(kind)
    except (TypeError, NameError, AttributeError):  # no function, or of a type that JSON has not: it comes as JSON
        return None


def _read(read: Reader | None, entry: Entry) -> Any:
    if read is None or not entry.value.startswith(b"j"):
        return read_result(entry.value)
    try:
        return read(entry.value[1:])
    except InvalidBody as error:
        raise StepsChanged(
            f"the recorded result of step {entry.name!r} does not fit its type any more: {error}"
        ) from None


# --- signals ---


class SignalSteps:
    """The signals of the messages of a queue, with all of its homes."""

    def __init__(self, homes: QueueHomes) -> None:
        self._homes = homes

    def give(self, identity: str, name: str, value: object, early: float | None = EARLY) -> Steps[bool]:
        """Give a signal; return False if the message has had it. Raises SignalRefused, InvalidMessage, InvalidName."""
        check_id(identity)
        check_step_name(name, "signal")
        stored, every = stored_signal(value), (yield from self._homes.every())
        answers: list[str] = []
        if len(every) > 1:  # which one has the message is known if one of them knows anything of it
            answers = yield [own.signal(one.keys, identity, name, stored, None) for one in every]
            if early is None or not set(answers) <= _ONLY_EARLY:
                return _taken(self._homes.queue, identity, name, answers)
            every = [one for one, said in zip(every, answers, strict=True) if said == "unknown"]
        if every:  # those that an earlier call has not reached get it too
            answers += yield [own.signal(one.keys, identity, name, stored, early) for one in every]
        return _taken(self._homes.queue, identity, name, answers)

    def by_link(self, token: str, value: object) -> Steps[bool]:
        """Give the signal of a link; raises SignalRefused."""
        refused = SignalRefused("this link is not valid, or its message has ended", "unknown")
        try:
            identity, name, secret = read_token(token).decode().split("\n")
        except ValueError:
            raise refused from None
        for home in (yield from self._homes.every()):
            recorded = yield own.recorded(home.keys, identity)
            links = [one for one in recorded.entries if one.name == _link_name(name) and one.kind == "s"]
            if links and hmac.compare_digest(str(read_result(links[0].value)).encode(), secret.encode()):
                return (yield from self.give(identity, name, value, None))
        raise refused


#: What homes answer, first what only the one says that has the message, or had it.
_KNOWN = ("given", "late", "ended", "before", "kept", "early before", "early", "unknown")
_ONLY_EARLY = {"early before", "early", "unknown"}


def _taken(queue: str, identity: str, name: str, answers: Sequence[str]) -> bool:
    said = min(answers, key=_KNOWN.index)
    if said in REFUSED:
        raise SignalRefused(f"message {identity} of {queue!r} does not take the signal {name!r}: {REFUSED[said]}", said)
    return said not in ("before", "early before")


def give_anywhere(identity: str, name: str, value: object) -> Steps[bool]:
    """Give a signal to a message of any queue; raises as `SignalSteps.give`."""
    check_id(identity)
    check_step_name(name, "signal")
    stored, names = stored_signal(value), sorted((yield ops.queue_names()))
    for start in range(0, len(names), _PAGE):
        some = names[start : start + _PAGE]
        answers = yield [own.signal(QueueKeys(one), identity, name, stored, None) for one in some]
        for queue, said in zip(some, answers, strict=True):
            if said != "unknown":
                return _taken(QueueKeys(queue).logical, identity, name, [said])
    raise SignalRefused(f"signal {name!r} for message {identity}: {REFUSED['unknown']}", "unknown")


# --- parked messages ---


def parked_in(homes: QueueHomes, limit: int) -> Steps[list[Parked]]:
    """Return parked messages, those that wait longest first among up to `limit` that were found."""
    found: list[Parked] = []
    for home in (yield from homes.every()):
        cursor, more = 0, True
        while more and len(found) < limit:
            cursor, some = yield own.scan_parked(home.keys, cursor, _PAGE)
            found += some
            more = cursor > 0
    return sorted(found, key=lambda one: one.since)[:limit]


def _withdraw(keys: QueueKeys, identity: str) -> Steps[bool]:
    return bool((yield own.remove_parked(keys, Counter.CANCELLED, [identity])))


def _purge(keys: QueueKeys) -> Steps[int]:
    removed = 0
    while True:
        _, some = yield own.scan_parked(keys, 0, _PAGE)
        if not some:
            return removed
        removed += yield own.remove_parked(keys, Counter.PURGED, [one.id for one in some])


WAITING = Hidden(Place.PARKED, own.parked_element, _withdraw, _purge)


def take_along(keys: QueueKeys, home: QueueKeys, ids: Sequence[str]) -> Steps[None]:
    """Copy the records of messages that are taken to another home."""
    for identity in ids:
        fields = yield own.record_fields(keys, identity)
        for start in range(0, len(fields), _FIELDS):
            yield own.put_record(home, fields[start : start + _FIELDS])
