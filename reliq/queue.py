"""A queue as producers and operators see it: send, stats, policy, pause, purge.

`QueueSteps` is the whole of it, as steps; `Queue` runs them on threads, `reliq.aio.Queue` on an event loop.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reliq import ops, settings, tracing
from reliq.batch import Bare, checked, checked_many
from reliq.consumer import Consumer
from reliq.cycle import Cycle, CycleSteps
from reliq.dead_letters import DeadLetters
from reliq.delayed import Delayed
from reliq.durability import MEMORY, Durability, check_possible, confirm, durability
from reliq.errors import InvalidSetting, OutcomeUnknown, QueueFull, ReliqError
from reliq.keys import QueueKeys
from reliq.message import Body, Message, NewMessage, Undecodable, check_id
from reliq.ops import Steps, at_most
from reliq.prepared import CHECK_AFTER, CHECKS, Care, Prepared, PreparedSteps
from reliq.producer import Lane, Lanes
from reliq.settings import Duration, whole
from reliq.store import Store

T = TypeVar("T")

_ANNOUNCE_EVERY = 60.0
_PURGE_STEP = 1000
_LOOKS = 3  #: at the queue, while its consumers change


@dataclass(frozen=True, slots=True)
class Stats:
    """A queue at one instant."""

    queue: str
    ready: int
    processing: int
    delayed: int
    dead: int
    waiting: int  #: of the ready ones, those behind another message of their key
    oldest_ready_age: float  #: seconds since the oldest of the next messages was sent, one a priority; 0.0 without any
    consumers: int
    paused: bool
    counters: dict[str, int] = field(default_factory=dict)  #: since the queue exists: enqueued, acked, retried, ...
    prepared: int = 0  #: invisible until their producers decide


@dataclass(frozen=True, slots=True)
class Config:
    """A queue's policy. It lives in Redis, so that every producer, worker and monitor follows the same."""

    max_length: int | None = None  #: messages ready and delayed, above which sends raise QueueFull
    max_bytes: int | None = None  #: of them in Redis' memory, above which sends raise QueueFull
    max_deliveries: int = settings.MAX_DELIVERIES
    dead_max_age: float | None = None  #: seconds a dead letter is kept
    dead_max_count: int | None = None  #: dead letters that are kept, the latest
    paused: bool = False
    durability: str = "memory"  #: of sends that do not say; one that is changed is followed within a minute


class QueueSteps:
    """What can be done to a queue, without the doing."""

    def __init__(self, name: str, lanes: Lanes, max_body: int = settings.BODY_LARGEST) -> None:
        self.keys = QueueKeys(name)
        self._lanes = lanes
        self._max_body = max_body
        self._announced_at = float("-inf")
        self._limited = False  #: it has a max_length or max_bytes, as last seen
        self.durability = MEMORY  #: of the queue's sends that do not say, as last read
        self._clock = lanes.clock
        self.cycle = CycleSteps(self.keys, lanes)
        self.halves = PreparedSteps(self.keys, lanes)

    def send_many(
        self, messages: Sequence[NewMessage], sure: str | None = None, retries: int | None = None
    ) -> Steps[list[str]]:
        """Enqueue them, 1,000 a round trip; the ids, for a duplicate the id of its first message.

        `sure`: the durability that is asked for; None = the queue's own.
        """
        wanted = None if sure is None else durability(sure)
        retries = settings.retries(retries)
        if wanted is not None:
            yield from check_possible(wanted)
        expiring = not isinstance(messages, Bare) and [message for message in messages if message.ttl is not None]
        if expiring and not self._clock.known:
            self._clock.note((yield ops.server_time()))
        ids: list[str] = []
        with tracing.sending(self.keys.queue, messages):
            for start in range(0, len(messages), settings.BATCH_LARGEST):
                batch = messages[start : start + settings.BATCH_LARGEST]
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
        """One call of a script."""
        lane = self._lanes.take()
        now = self._clock.now()
        ids = _ids(batch)
        try:
            if self._limited or self.unknown or not (elements := _unplaced(batch, now)):
                ids = yield from self._enqueue(batch, lane, retries)
            elif not (yield at_most(ops.push(self.keys, elements, lane.producer, lane.sequence, now), retries)):
                self._limited = True
                ids = yield from self._enqueue(batch, lane, retries)
            sure = wanted or self.durability
            if sure.waits:
                yield from confirm(self.keys, sure, lane.producer, lane.sequence)
            return ids
        except OutcomeUnknown as error:
            raise OutcomeUnknown(str(error), tuple(ids)) from None
        finally:
            self._lanes.give_back(lane)

    def _enqueue(self, batch: Sequence[NewMessage], lane: Lane, retries: int | None) -> Steps[list[str]]:
        now = self._clock.now()
        with_options: list[NewMessage] = []
        if not (plain := _unplaced(batch, now)):
            # Order within a call is kept, so one deduplication key in it makes all of them entries with options.
            dedup = any(message.dedup_key is not None for message in batch)
            with_options = [message for message in batch if dedup or message.placed]
            plain = [] if dedup else [message.element(now) for message in batch if not message.placed]
        entries = [
            ops.Entry(one.id, one.element(now), one.delay, one.dedup_key, one.window, one.digest)
            for one in with_options
        ]
        enqueue = at_most(ops.enqueue(self.keys, plain, entries, lane.producer, lane.sequence), retries)
        if self.unknown:
            _, default, answer = yield [*self.introduction(), enqueue]
            self.introduced(default)
        else:
            answer = yield enqueue
        self._clock.note(answer.now)
        if answer.status == "full":
            yield ops.command("HINCRBY", self.keys.counters, "rejected", len(batch))
            raise QueueFull(
                f"queue {self.keys.queue!r} holds {answer.length} of at most {answer.max_length} {answer.unit}; "
                f"none of the {len(batch)} was enqueued"
            )
        if not answer.first_ids:
            return _ids(batch)
        for position in answer.first_ids:
            with_options[position].duplicate = True
            with_options[position].conflict = position in answer.conflicts
        firsts = {id(with_options[position]): first for position, first in answer.first_ids.items()}
        return [firsts.get(id(message), message.id) for message in batch]

    @property
    def unknown(self) -> bool:
        """Whether the queue has not been announced by this producer, or a while ago."""
        return time.monotonic() - self._announced_at > _ANNOUNCE_EVERY

    def introduction(self) -> list[ops.Op[Any]]:
        """What goes before the first message: the queue's name for all to see; and what does it say of durability?"""
        return [ops.announce(self.keys.queue), ops.command("HGET", self.keys.config, "durability")]

    def introduced(self, default: bytes | None) -> None:
        self.durability = durability(default.decode()) if default else MEMORY
        self._limited = False  # who sends next finds out
        self._announced_at = time.monotonic()

    def prepared(self, body: Body | NewMessage, options: Mapping[str, Any]) -> NewMessage:
        """Check one message completely, before anything is sent; raises InvalidMessage or InvalidName."""
        return checked(body if isinstance(body, NewMessage) else NewMessage(body, **options), self._max_body)

    def prepared_many(self, bodies: Iterable[Body | NewMessage], options: Mapping[str, Any]) -> Sequence[NewMessage]:
        return checked_many(bodies, options, self._max_body)

    def stats(self) -> Steps[Stats]:
        consumers = yield ops.members(self.keys.consumers)
        for _ in range(_LOOKS):
            known = consumers
            found, consumers = yield [ops.stats(self.keys, known), ops.members(self.keys.consumers)]
            if set(consumers) <= set(known):  # else somebody came in between, and may hold what was not counted
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
        )

    def config(self) -> Steps[Config]:
        return _read_config((yield ops.read_hash(self.keys.config)))

    def configure(self, changes: Mapping[str, Any]) -> Steps[Config]:
        """Set the fields given; None returns one to its default. Raises InvalidSetting, and changes nothing then."""
        for name in changes:
            _check_setting(name)
        if changes.get("durability") is not None:
            yield from check_possible(durability(changes["durability"]))
        if changes.get("max_bytes") is not None:  # a server that has no MEMORY says so here, and not at the first send
            yield ops.command("MEMORY", "USAGE", self.keys.messages)
        to_set: list[str | int | float] = []
        to_delete: list[str] = []
        for name, value in changes.items():
            if value is None:
                to_delete.append(name)
            else:
                to_set += (name, _checked_config(name, value))
        wanted = [ops.announce(self.keys.queue), ops.command("HINCRBY", self.keys.config, "version", 1)]
        if to_set:
            wanted.append(ops.command("HSET", self.keys.config, *to_set))
        if to_delete:
            wanted.append(ops.command("HDEL", self.keys.config, *to_delete))
        yield wanted
        return (yield from self.config())

    def pause(self) -> Steps[None]:
        yield [ops.announce(self.keys.queue), ops.command("HSET", self.keys.config, "paused", 1)]

    def resume(self) -> Steps[None]:
        yield ops.command("HDEL", self.keys.config, "paused")

    def purge(self) -> Steps[int]:
        removed = 0
        while step := (yield ops.purge(self.keys, _PURGE_STEP)):
            removed += step
        return removed + (yield from self.halves.purge())

    def cancel(self, identity: str) -> Steps[bool]:
        return (yield from ops.one(ops.cancel(self.keys, check_id(identity))))


def _ids(batch: Sequence[NewMessage]) -> list[str]:
    return batch.ids if isinstance(batch, Bare) else [message.id for message in batch]


def _unplaced(batch: Sequence[NewMessage], now: int) -> list[bytes]:
    """The elements, if no script has to look at any of them."""
    if isinstance(batch, Bare):
        return batch.elements(now)
    return [] if [message for message in batch if message.placed] else [message.element(now) for message in batch]


def age_of_oldest(queue: str, elements: Iterable[bytes], now: int) -> float:
    """Seconds since the first of these was sent; 0.0 without any."""
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
        max_length=number("max_length", int),
        max_bytes=number("max_bytes", int),
        max_deliveries=number("max_deliveries", int) or settings.MAX_DELIVERIES,
        dead_max_age=number("dead_max_age", float),
        dead_max_count=number("dead_max_count", int),
        paused="paused" in values,
        durability=values.get("durability", "memory"),
    )


_SETTINGS = ("max_length", "max_bytes", "max_deliveries", "dead_max_age", "dead_max_count", "durability")


def _check_setting(name: str) -> None:
    """Refuse what is no setting, also when it is only reset: the hash has fields of reliq's own (`round`)."""
    if name not in _SETTINGS:
        raise InvalidSetting(f"a queue has no setting {name!r}; it has {', '.join(_SETTINGS)}")


def _checked_config(name: str, value: Any) -> int | float | str:
    match name:
        case "max_length" | "dead_max_count":
            return whole(value, name, 1, 10**12)
        case "max_bytes":
            return whole(value, name, settings.QUOTA_SMALLEST, 10**15)
        case "max_deliveries":
            return whole(value, name, 1, 10_000)
        case "dead_max_age":
            return settings.seconds(value, name, shortest=1.0)
        case _:
            return durability(value).name


class Queue:
    """A queue. Made by `Reliq.queue(name)`; any number of threads may use it."""

    def __init__(self, store: Store, steps: QueueSteps) -> None:
        self._store = store
        self._steps = steps
        self.name = steps.keys.queue
        self.dead = DeadLetters(store, steps.keys)
        self.delayed = Delayed(store, steps.keys)
        self.cycle = Cycle(store, steps.cycle)

    def send(
        self,
        body: Body | NewMessage,
        *,
        id: str | None = None,
        delay: Duration = 0,
        headers: Mapping[str, str] | None = None,
        dedup_key: str | None = None,
        window: Duration = "10m",
        ttl: Duration | None = None,
        key: str | None = None,
        priority: str = "normal",
        durability: str | None = None,
        retries: int | None = None,
    ) -> str:
        """Enqueue one message and answer its id; the options are those of NewMessage.

        `durability`: "memory", "fsync" (on the server's disk) or "replicas=1" (or more) before this answers; where it
        is not reached: OutcomeUnknown; where the server has no such thing: DurabilityUnavailable. None = the queue's.
        A call whose answer is lost is repeated by itself, for 5 seconds (`send_timeout`) and at most `retries` times
        (None = as often as fits), and enqueues once: the script knows the producer's sequence. Raises InvalidMessage,
        InvalidName, QueueFull, RedisUnavailable (not enqueued), and OutcomeUnknown (it may be).
        """
        options = {
            "id": id, "delay": delay, "headers": headers, "dedup_key": dedup_key, "window": window, "ttl": ttl,
            "key": key, "priority": priority,
        }  # fmt: skip
        (sent,) = self._store.run(self._steps.send_many([self._steps.prepared(body, options)], durability, retries))
        return sent

    def send_many(
        self,
        bodies: Iterable[Body | NewMessage],
        *,
        delay: Duration = 0,
        headers: Mapping[str, str] | None = None,
        ttl: Duration | None = None,
        key: str | None = None,
        priority: str = "normal",
        durability: str | None = None,
        retries: int | None = None,
    ) -> list[str]:
        """Enqueue many, 1,000 a round trip, and answer their ids. Bodies, or NewMessages with options of their own.

        All are checked before the first is sent: InvalidMessage names the index, and nothing of the call is enqueued.
        Otherwise raises as `send`; the error's `sent` has the ids of the batches that were enqueued before it.
        """
        options = {"delay": delay, "headers": headers, "ttl": ttl, "key": key, "priority": priority}
        messages = self._steps.prepared_many(bodies, options)
        return self._store.run(self._steps.send_many(messages, durability, retries))

    def prepare(
        self,
        body: Body | NewMessage,
        *,
        timeout: Duration = CHECK_AFTER,
        checks: int = CHECKS,
        id: str | None = None,
        delay: Duration = 0,
        headers: Mapping[str, str] | None = None,
        dedup_key: str | None = None,
        window: Duration = "10m",
        ttl: Duration | None = None,
        key: str | None = None,
        priority: str = "normal",
        durability: str | None = None,
        retries: int | None = None,
    ) -> Prepared:
        """Send a message that nobody sees until its handle commits; as a context it does so at its end.

        Where neither commit nor rollback comes within `timeout`, the application's check-back (`@app.check`) is asked,
        again after each `timeout`, and after so many `checks` without an answer it is a dead letter (undecided). The
        other options and errors are those of `send`; a delay and a dedup_key's window begin with the commit, a ttl now.
        """
        options = {
            "id": id, "delay": delay, "headers": headers, "dedup_key": dedup_key, "window": window, "ttl": ttl,
            "key": key, "priority": priority,
        }  # fmt: skip
        message, care = self._steps.prepared(body, options), Care(durability, retries)
        self._store.run(self._steps.halves.prepare(message, timeout, checks, care))
        return Prepared(self._store, self._steps.halves, message.id, care)

    def prepared(self, id: str) -> Prepared:
        """The handle of a message that was prepared, maybe by another process. Reads nothing; raises InvalidName."""
        return Prepared(self._store, self._steps.halves, id)

    def stats(self) -> Stats:
        """How many are where, and the counters."""
        return self._store.run(self._steps.stats())

    def config(self) -> Config:
        """The policy that is in force."""
        return self._store.run(self._steps.config())

    def configure(self, **changes: Any) -> Config:
        """Change the policy: max_length, max_bytes, max_deliveries, dead_max_age, dead_max_count, durability.

        None = back to the default.
        """
        return self._store.run(self._steps.configure(changes))

    def pause(self) -> None:
        """No message is started from now on, by anybody; sends go on. What is running, runs to its end."""
        self._store.run(self._steps.pause())

    def resume(self) -> None:
        self._store.run(self._steps.resume())

    def purge(self) -> int:
        """Remove what is ready, delayed and prepared, for good; how many that were."""
        return self._store.run(self._steps.purge())

    def cancel(self, id: str) -> bool:
        """Remove a delayed message, a first delivery or a retry.

        True only if it had not been promoted: it will never run.
        """
        return self._store.run(self._steps.cancel(id))

    def consumer(self, lease: Duration = settings.LEASE) -> Consumer:
        """A consumer to claim and settle by hand, as a context."""
        return Consumer(self._store, self._steps.keys, lease)

    def __repr__(self) -> str:
        return f"<Queue {self.name} at {self._store.where}>"
