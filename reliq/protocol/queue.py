"""The steps of a queue: send, statistics, policy, pause, purge."""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reliq import ops
from reliq.errors import InvalidSetting, OutcomeUnknown, QueueFull, ReliqError
from reliq.model import settings
from reliq.model.element import Undecodable, group_of
from reliq.model.keys import QueueKeys
from reliq.model.keywords import ConfigChanges
from reliq.model.message import Message
from reliq.model.outgoing import BatchOptions, Body, MessageOptions, NewMessage, check_option_names
from reliq.model.settings import Duration, whole
from reliq.model.upgrades import stamp
from reliq.ops import Steps, at_most
from reliq.ops.schema import SETTINGS, Counter
from reliq.ops.schema import Config as Field
from reliq.protocol.batch import Call, RawBatch, calls_of, checked, checked_many
from reliq.protocol.cycle import CycleSteps
from reliq.protocol.durability import MEMORY, Durability, check_possible, confirm, durability
from reliq.protocol.middleware import around_send
from reliq.protocol.prepared import PreparedSteps
from reliq.protocol.producer import ProducerPool, ProducerSession, stored
from reliq.protocol.search import Search
from reliq.runtime import tracing

T = TypeVar("T")

ANNOUNCE_EVERY = 60.0  #: seconds; a producer then announces the queue again, in case it was deleted
_PURGE_STEP = 1000
_LOOKS = 3  #: reads of the statistics while the set of consumers changes


@dataclass(frozen=True, slots=True)
class Stats:
    """The statistics of a queue at one instant."""

    queue: str
    ready: int
    processing: int
    delayed: int
    dead: int
    waiting: int  #: of the ready messages, those behind another message of their key
    oldest_ready_age: float  #: seconds since the oldest next message of any priority was sent; 0.0 without one
    consumers: int
    paused: bool
    counters: dict[str, int] = field(default_factory=dict)  #: since the queue exists: enqueued, acked, retried, ...
    prepared: int = 0  #: invisible until their producers decide
    limited_by: str = ""  #: the limit by which nothing is given out now: held, breaker, rate, concurrency
    breaker: str = "closed"  #: open or half_open while the circuit breaker keeps messages from the workers


@dataclass(frozen=True, slots=True)
class Config:
    """The policy of a queue. It is stored in Redis, so all producers, workers and monitors follow the same one."""

    max_length: int | None = None  #: messages ready and delayed, above which sends raise QueueFull
    max_bytes: int | None = None  #: of these messages in Redis' memory, above which sends raise QueueFull
    max_deliveries: int = settings.MAX_DELIVERIES
    dead_max_age: float | None = None  #: seconds a dead letter is kept
    dead_max_count: int | None = None  #: how many of the latest dead letters are kept
    paused: bool = False
    durability: str = "memory"  #: default of sends; a change takes effect within a minute
    rate: str | None = None  #: such as "100/s": how many messages are given out, by the server's clock
    burst: int | None = None  #: how many the rate lets through at once; None: those of a tenth of a second
    concurrency: int | None = None  #: how many messages are in processing at once, over all consumers
    key_rate: str | None = None  #: such as "5/s": how many messages of one key are given out
    key_concurrency: int | None = None  #: how many messages of one limit key are ready or in processing at once
    fair: bool = False  #: whether one message of each limit key is taken after another
    weights: dict[str, int] = field(default_factory=dict)  #: limit key -> how many of its messages in its turn
    track: bool = False  #: whether an index finds ready messages at once
    history: float | None = None  #: seconds for which the transitions of messages are kept


class QueueSteps:
    """The operations on a queue, as steps."""

    def __init__(self, name: str, pool: ProducerPool, max_body: int = settings.BODY_LIMIT) -> None:
        self.keys = QueueKeys(name)
        self._pool = pool
        self._max_body = max_body
        self._announced_at = float("-inf")
        self._limited = False  #: whether the queue has a max_length or max_bytes, as last seen
        self.durability = MEMORY  #: the queue's default durability, as last read
        self._clock = pool.clock
        self.cycle = CycleSteps(self.keys, pool)
        self.search = Search(self.keys)
        self.prepared_records = PreparedSteps(self.keys, pool)

    def send_many(
        self, messages: Sequence[NewMessage], sure: str | None = None, retries: int | None = None
    ) -> Steps[list[str]]:
        """Enqueue messages, 1,000 or 16 MiB per round trip; return the ids, for a duplicate that of the first message.

        `sure`: the requested durability; None = that of the queue.
        """
        wanted = None if sure is None else durability(sure)
        retries = settings.retries(retries)
        if wanted is not None:
            yield from check_possible(wanted)
        expiring = not isinstance(messages, RawBatch) and [message for message in messages if message.ttl is not None]
        if expiring and not self._clock.known:
            yield from self._clock.ask()
        steps = self._send_all(messages, wanted, retries)
        return (yield from around_send(self._pool.middleware, self.keys.queue, messages, steps))

    def _send_all(
        self, messages: Sequence[NewMessage], wanted: Durability | None, retries: int | None
    ) -> Steps[list[str]]:
        """Send the messages, batch by batch."""
        ids: list[str] = []
        for batch in calls_of(messages):
            try:
                ids += yield from self._send(batch, wanted, retries)
            except ReliqError as error:
                if ids:
                    error.sent = tuple(ids)
                    before = f"the first {len(ids)} of the {len(messages)} messages of the call were enqueued"
                    error.args = (f"{error}; {before}",)
                raise
        return ids

    def _send(self, batch: Sequence[NewMessage], wanted: Durability | None, retries: int | None) -> Steps[list[str]]:
        """Send one batch with one call of a script."""
        now = self._clock.now()
        call = Call.of(batch, now)
        ids, session = call.ids, self._pool.take()
        try:
            if self._limited or self.unknown or call.entries or call.batches:
                ids = yield from self._enqueue(call, session, retries)
            else:
                push = ops.push(self.keys, call.plain, session.producer, session.sequence, now, bool(call.bodies))
                _, pushed = yield from stored([self.keys], call.bodies, session, at_most(push, retries))
                if not pushed:
                    self._limited = True
                    ids = yield from self._enqueue(call, session, retries)
            sure = wanted or self.durability
            if sure.waits:
                yield from confirm(self.keys, sure, session.producer, session.sequence)
            return ids
        except OutcomeUnknown as error:
            raise OutcomeUnknown(str(error), tuple(ids)) from None
        finally:
            self._pool.give_back(session)

    def _enqueue(self, call: Call, session: ProducerSession, retries: int | None) -> Steps[list[str]]:
        request = ops.enqueue(self.keys, call.plain, call.entries, session.producer, session.sequence, call.batches)
        introduction = self.introduction() if self.unknown else []
        known, answer = yield from stored([self.keys], call.bodies, session, at_most(request, retries), introduction)
        if introduction:
            self.introduced(known[-1])
        self._clock.note(answer.now, session.called_at)
        if answer.status == "full":
            yield ops.count(self.keys, Counter.REJECTED, len(call.ids))
            raise QueueFull(
                f"queue {self.keys.queue!r} holds {answer.length} of at most {answer.max_length} {answer.unit}; "
                f"none of the {len(call.ids)} was enqueued"
            )
        return call.enqueued(answer)

    @property
    def unknown(self) -> bool:
        """Whether this producer has not announced the queue yet, or not recently."""
        return time.monotonic() - self._announced_at > ANNOUNCE_EVERY

    @property
    def version(self) -> int:
        """The version of the bodies that this application sends to the queue."""
        return self._pool.versions.get(self.keys.queue, 1)

    def introduction(self) -> list[ops.Op[Any]]:
        """Return the ops before the first message: announce the queue's name, and read its default durability."""
        return [ops.announce(self.keys.queue), ops.default_durability(self.keys)]

    def introduced(self, default: str | None) -> None:
        self.durability = durability(default) if default else MEMORY
        self._limited = False  # the next send finds out
        self._announced_at = time.monotonic()

    def prepared(self, body: Body | NewMessage, options: MessageOptions) -> NewMessage:
        """Return a message for the body, checked before anything is sent; raises InvalidMessage or InvalidName."""
        check_option_names(options, MessageOptions)
        message = checked(body if isinstance(body, NewMessage) else NewMessage(body, **options), self._max_body)
        if self._pool.versions:
            stamp([message], self.version)
        return message

    def prepared_many(self, bodies: Iterable[Body | NewMessage], options: BatchOptions) -> Sequence[NewMessage]:
        plain = self.version == 1 and not self._pool.middleware and tracing.active is None
        messages = checked_many(bodies, options, self._max_body, plain=plain)
        if self.version > 1:
            stamp(messages, self.version)
        return messages

    def stats(self) -> Steps[Stats]:
        consumers = yield ops.members(self.keys.consumers)
        for _ in range(_LOOKS):
            known = consumers
            found, consumers = yield [ops.stats(self.keys, known), ops.members(self.keys.consumers)]
            if set(consumers) <= set(known):  # else a new consumer may hold messages that were not counted
                break
        return Stats(
            queue=self.keys.queue,
            ready=found.ready,
            processing=found.processing,
            delayed=found.delayed,
            dead=found.dead,
            waiting=found.waiting,
            oldest_ready_age=age_of_oldest(self.keys.queue, found.following, found.now),
            consumers=len(consumers),
            paused=found.paused,
            counters=found.counters,
            prepared=found.prepared,
            limited_by=found.limited_by,
            breaker=found.breaker,
        )

    def config(self) -> Steps[Config]:
        return _read_config((yield ops.read_hash(self.keys.config)))

    def configure(self, changes: ConfigChanges) -> Steps[Config]:
        """Set the given fields; None resets a field to its default. Raises InvalidSetting without changing anything."""
        for name in changes:
            _check_setting(name)
        if changes.get(Field.DURABILITY) is not None:
            yield from check_possible(durability(changes[Field.DURABILITY]))
        if changes.get(Field.MAX_BYTES) is not None:  # a server without MEMORY refuses here, not at the first send
            yield ops.bytes_used(self.keys.messages)
        to_set = {name: _checked_config(name, value) for name, value in changes.items() if value is not None}
        to_reset = [name for name, value in changes.items() if value is None]
        for flag in (Field.FAIR, Field.TRACK):
            if to_set.get(flag) == 0:
                del to_set[flag]
                to_reset.append(flag)
        if Field.WEIGHTS in to_set:
            to_set[Field.WEIGHT_DIGESTS] = _weight_digests(to_set[Field.WEIGHTS])
        if Field.WEIGHTS in to_reset:
            to_reset.append(Field.WEIGHT_DIGESTS)
        yield [ops.announce(self.keys.queue), *ops.configure(self.keys, to_set, to_reset)]
        yield from self.search.forget(to_reset)
        return (yield from self.config())

    def pause(self) -> Steps[None]:
        yield [ops.announce(self.keys.queue), ops.pause(self.keys)]

    def resume(self) -> Steps[None]:
        yield ops.resume(self.keys)

    def open_breaker(self, duration: Duration) -> Steps[None]:
        open_for = settings.seconds(duration, "duration", shortest=0.1)
        yield [ops.announce(self.keys.queue), ops.switch_breaker(self.keys, open_for)]

    def close_breaker(self) -> Steps[bool]:
        before = yield ops.switch_breaker(self.keys, 0)
        return bool(before != "closed")

    def purge(self) -> Steps[int]:
        removed = 0
        while step := (yield ops.purge(self.keys, _PURGE_STEP)):
            removed += max(0, step)
        return removed + (yield from self.prepared_records.purge())


def age_of_oldest(queue: str, elements: Iterable[bytes], now: int) -> float:
    """Return the seconds since the oldest of these elements was sent; 0.0 without elements."""
    ages = [0.0]
    for element in elements:
        with contextlib.suppress(Undecodable):
            ages.append((now - Message.decode(queue, element).enqueued_at) / 1000)
    return max(ages)


def _read_config(values: Mapping[str, str]) -> Config:
    def number(name: str, kind: Callable[[str], T]) -> T | None:
        try:
            return kind(values[name]) if name in values else None
        except ValueError:  # written by another program
            raise InvalidSetting(
                f"the queue's {name} in Redis is {values[name]!r}, which is not a number: "
                f"set it again, or reset it with `reliq config QUEUE {name}=`"
            ) from None

    return Config(
        max_length=number(Field.MAX_LENGTH, int),
        max_bytes=number(Field.MAX_BYTES, int),
        max_deliveries=number(Field.MAX_DELIVERIES, int) or settings.MAX_DELIVERIES,
        dead_max_age=number(Field.DEAD_MAX_AGE, float),
        dead_max_count=number(Field.DEAD_MAX_COUNT, int),
        paused=Field.PAUSED in values,
        durability=values.get(Field.DURABILITY, MEMORY.name),
        rate=values.get(Field.RATE),
        burst=number(Field.BURST, int),
        concurrency=number(Field.CONCURRENCY, int),
        key_rate=values.get(Field.KEY_RATE),
        key_concurrency=number(Field.KEY_CONCURRENCY, int),
        fair=Field.FAIR in values,
        weights=_read_weights(values.get(Field.WEIGHTS)),
        track=Field.TRACK in values,
        history=number(Field.HISTORY, float),
    )


def _read_weights(text: str | None) -> dict[str, int]:
    try:
        return settings.weights(json.loads(text), Field.WEIGHTS) if text else {}
    except ValueError:  # written by another program; InvalidSetting is one too
        raise InvalidSetting(f"the queue's weights in Redis are {text!r}: set them again, or reset them") from None


def _weight_digests(weights: Any) -> str:
    return " ".join(f"{group_of(key)}={weight}" for key, weight in json.loads(weights).items())


def _check_setting(name: str) -> None:
    """Refuse an unknown setting, even if it is only reset: the hash also has internal fields (`round`)."""
    if name not in SETTINGS:
        raise InvalidSetting(f"a queue has no setting {name!r}; it has {', '.join(SETTINGS)}")


def _checked_config(name: str, value: Any) -> int | float | str:
    match name:
        case Field.MAX_LENGTH | Field.DEAD_MAX_COUNT:
            return whole(value, name, 1, 10**12)
        case Field.MAX_BYTES:
            return whole(value, name, settings.MIN_QUOTA_BYTES, 10**15)
        case Field.MAX_DELIVERIES:
            return whole(value, name, 1, 10_000)
        case Field.DEAD_MAX_AGE | Field.HISTORY:
            return settings.seconds(value, name, shortest=1.0)
        case Field.RATE | Field.KEY_RATE:
            return settings.rate(value, name)
        case Field.BURST | Field.CONCURRENCY:
            return whole(value, name, 1, 1_000_000)
        case Field.KEY_CONCURRENCY:
            return whole(value, name, 1, 1000)
        case Field.FAIR | Field.TRACK:
            return int(settings.yes_or_no(value, name))
        case Field.WEIGHTS:
            return json.dumps(settings.weights(value, name))
        case _:
            return durability(value).name
