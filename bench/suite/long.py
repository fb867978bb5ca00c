"""The longest call of each script at its documented limits: meanwhile Redis answers no other client."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import reliq
from bench.suite.flat import BODY, monitoring
from bench.suite.growth import Longest, _none
from bench.suite.harness import Check, Row, Setting, fresh_redis
from reliq import NewMessage, ops
from reliq.contract.values import MAX_BATCH
from reliq.features.steps.ops import Parting, park
from reliq.model.keys import QueueKeys, new_owner
from reliq.model.message import Message
from reliq.ops.held import Hold
from reliq.protocol.outcomes import buried, failure_now, retried

BOUND_MS = 2.0
_CALLS = 5  #: calls, pages or claims of a round
_PATIENCE = 20.0  #: seconds that a monitor has
_QUEUE = "bench"

Act = Callable[[reliq.Reliq, Any], None]


@dataclass(frozen=True, slots=True)
class Case:
    """What is there before, the calls that are measured, and the policy of the queue."""

    name: str
    act: Act
    before: Act = _none
    policy: Mapping[str, Any] | None = None


def _sends(at_once: int = MAX_BATCH, **options: Any) -> Act:
    """Call send_many with so many messages; an option may be a function of the number of the message."""

    def act(app: reliq.Reliq, client: Any) -> None:
        queue = app.queue(_QUEUE)
        for start in range(0, _CALLS * MAX_BATCH, at_once):
            numbers = range(start, start + at_once)
            queue.send_many([_message(options, number) for number in numbers] if options else [BODY] * at_once)

    return act


def _message(options: Mapping[str, Any], number: int) -> NewMessage:
    return NewMessage(BODY, **{name: one(number) if callable(one) else one for name, one in options.items()})


def _keyed(number: int) -> str:
    return f"key-{number}"


def _few(number: int) -> str:
    return f"key-{number % 10}"


def _claimed(settle: Callable[[Any, list[Any]], None]) -> Act:
    """Claim a thousand messages and settle them in one call, several times."""

    def act(app: reliq.Reliq, client: Any) -> None:
        with app.queue(_QUEUE).consumer() as consumer:
            for _ in range(_CALLS):
                settle(consumer, consumer.claim(limit=MAX_BATCH))

    return act


def _dead(**options: Any) -> Act:
    def act(app: reliq.Reliq, client: Any) -> None:
        _sends(**options)(app, client)
        with app.queue(_QUEUE).consumer() as consumer:
            while some := consumer.claim(limit=MAX_BATCH):
                consumer._settle(some, lambda one: _buried(consumer, one))

    return act


def _buried(consumer: Any, message: Any) -> Any:
    return buried(message, failure_now(consumer.id, "Dead", "it is wrong"), "rejected")


def _retried(consumer: Any, messages: list[Any]) -> None:
    consumer._settle(messages, lambda one: retried(one, failure_now(consumer.id, "Retry", "later"), 3600))


def _bury(consumer: Any, messages: list[Any]) -> None:
    consumer._settle(messages, lambda one: _buried(consumer, one))


def _monitored(until: Callable[[reliq.Reliq, Any], bool], first: Act) -> Act:
    def act(app: reliq.Reliq, client: Any) -> None:
        first(app, client)
        with monitoring(app.url):
            ends = time.monotonic() + _PATIENCE
            while time.monotonic() < ends and not until(app, client):
                time.sleep(0.2)

    return act


def _due(app: reliq.Reliq, client: Any) -> None:
    key = QueueKeys(_QUEUE).delayed
    while some := client.zrangebyscore(key, 2, "+inf", 0, 100):
        client.zadd(key, dict.fromkeys(some, 1))


def _nothing_delayed(app: reliq.Reliq, client: Any) -> bool:
    return client.zcard(QueueKeys(_QUEUE).delayed) == 0


def _vanished(app: reliq.Reliq, client: Any) -> None:
    keys = QueueKeys(_QUEUE)
    for _ in range(_CALLS):
        one = new_owner(connected=False)
        app.store.call(ops.register(keys, one, 3600.0))
        app.store.call([ops.claim(keys, one, 3600.0, 100) for _ in range(10)])
    client.mset(dict.fromkeys(client.scan_iter("reliq:*:lease:*", count=1000), 1))


def _none_in_flight(app: reliq.Reliq, client: Any) -> bool:
    return app.queue(_QUEUE).stats().processing == 0


def _resized(app: reliq.Reliq, client: Any) -> bool:
    return app.queue(_QUEUE).partitions().moving is False


def _to_partitions(app: reliq.Reliq, client: Any) -> None:
    app.queue(_QUEUE).configure(partitions=16)


def _consumers(app: reliq.Reliq, client: Any) -> None:
    for _ in range(10):
        app.store.call([ops.register(QueueKeys(_QUEUE), new_owner(connected=False), 3600.0) for _ in range(1000)])


def _members(app: reliq.Reliq, client: Any) -> None:
    app.queue(_QUEUE).cycle.add(*(f"member-{number}" for number in range(5 * MAX_BATCH)))


def _schedules(app: reliq.Reliq, client: Any) -> None:
    steps = app.schedules._steps
    app.store.run(steps.put([steps.define(f"s-{number}", "1h", _QUEUE, BODY, {}) for number in range(5000)]))


def _batched(app: reliq.Reliq, client: Any) -> None:
    with app.batch(on_done=("ends", "done")) as batch:
        for _ in range(_CALLS):
            batch.send_many(_QUEUE, [BODY] * MAX_BATCH)


def _flow(app: reliq.Reliq, client: Any) -> None:
    with app.flow() as flow:
        first = flow.send(_QUEUE, BODY)
        for _ in range(999):
            flow.send(_QUEUE, BODY, after=[first])


def _bound(app: reliq.Reliq, client: Any) -> None:
    for number in range(100):
        app.subscribe(f"{_QUEUE}-{number}", "orders.#")


def _publish(app: reliq.Reliq, client: Any) -> None:
    for _ in range(20):
        app.publish("orders.new", BODY)


def _parked(app: reliq.Reliq, client: Any) -> None:
    """They wait for a signal, each for an hour."""
    keys, one = QueueKeys(_QUEUE), new_owner(connected=False)
    app.store.call(ops.register(keys, one, 3600.0))
    for _ in range(_CALLS):
        app.queue(_QUEUE).send_many([BODY] * MAX_BATCH)
        elements = app.store.call(ops.claim(keys, one, 3600.0, MAX_BATCH)).elements
        for element in elements:
            app.store.call(park(Hold(keys, one, Message.decode(_QUEUE, element), 0), "go", 3600.0, Parting(element)))


def _stats(app: reliq.Reliq, client: Any) -> None:
    for _ in range(_CALLS):
        app.queue(_QUEUE).stats()


def _of_queue(call: Callable[[Any], object]) -> Act:
    def act(app: reliq.Reliq, client: Any) -> None:
        call(app.queue(_QUEUE))

    return act


_FOLLOWED = {"track": True, "history": "1h"}
_ALL: dict[str, Any] = {"key": _few, "priority": "high", "headers": {"kind": "much"}}
_PLAIN, _WITH_KEYS, _LATER = _sends(), _sends(key=_few), _sends(delay=3600)

CASES: tuple[Case, ...] = (
    Case("send_many", _PLAIN),
    Case("send_many, delay", _LATER),
    Case("send_many, a key each", _sends(key=_keyed)),
    Case("send_many, ten keys", _WITH_KEYS),
    Case("send_many, priority", _sends(priority="high")),
    Case("send_many, dedup_key", _sends(dedup_key=_keyed)),
    Case("send_many, limit_key, fair", _sends(limit_key=_few), policy={"fair": True}),
    Case("send_many, limit_key, key_rate", _sends(limit_key=_keyed), policy={"key_rate": "100/s"}),
    Case("send_many, followed", _PLAIN, policy=_FOLLOWED),
    Case("send_many, key and priority, followed", _sends(**_ALL), policy=_FOLLOWED),
    Case("send_many, max_length, max_bytes", _PLAIN, policy={"max_length": 10**6, "max_bytes": 2**30}),
    Case("send_many of a batch", _batched),
    Case("send_many of 5,000, delay", _sends(5000, delay=3600)),
    Case("send_many of 5,000, a key each", _sends(5000, key=_keyed)),
    Case("send_many of 5,000, key_rate", _sends(5000, limit_key=_keyed), policy={"key_rate": "100/s"}),
    Case("send_many of 5,000, key and priority, followed", _sends(5000, **_ALL), policy=_FOLLOWED),
    Case("publish to 100 queues", _publish, _bound),
    Case("a flow of 1,000", _flow),
    Case("claim and ack 1,000", _claimed(lambda consumer, some: consumer.ack(*some)), _PLAIN),
    Case("claim and ack 1,000 of ten keys", _claimed(lambda consumer, some: consumer.ack(*some)), _WITH_KEYS),
    Case("claim and ack 1,000 with keys", _claimed(lambda consumer, some: consumer.ack(*some)), _sends(key=_keyed)),
    Case("claim and ack 1,000, followed", _claimed(lambda consumer, some: consumer.ack(*some)), _PLAIN, _FOLLOWED),
    Case("claim and ack every second of 1,000", _claimed(lambda consumer, some: consumer.ack(*some[::2])), _PLAIN),
    Case("claim and retry 1,000", _claimed(_retried), _PLAIN),
    Case("claim and release 1,000", _claimed(lambda consumer, some: consumer.release(*some)), _PLAIN),
    Case("claim and bury 1,000", _claimed(_bury), _PLAIN),
    Case(
        "claim 1,000 within key_rate",
        _claimed(lambda consumer, some: consumer.ack(*some)),
        _sends(limit_key=_keyed),
        {"key_rate": "100/s", "fair": True},
    ),
    Case("purge", _of_queue(lambda queue: queue.purge()), _PLAIN),
    Case("purge of keys, followed", _of_queue(lambda queue: queue.purge()), _sends(**_ALL), _FOLLOWED),
    Case("purge, delayed", _of_queue(lambda queue: queue.purge()), _LATER, _FOLLOWED),
    Case("purge of parked messages", _of_queue(lambda queue: queue.purge()), _parked),
    Case("purge of dead letters", _of_queue(lambda queue: queue.dead.purge(all=True)), _dead()),
    Case("redrive", _of_queue(lambda queue: queue.dead.redrive()), _dead()),
    Case("redrive of keys, followed", _of_queue(lambda queue: queue.dead.redrive()), _dead(**_ALL), _FOLLOWED),
    Case("cancel_many, one key", _of_queue(lambda queue: queue.cancel_many(key="key-1")), _WITH_KEYS),
    Case(
        "cancel_many, followed",
        _of_queue(lambda queue: queue.cancel_many(headers=_ALL["headers"])),
        _sends(**_ALL),
        _FOLLOWED,
    ),
    Case(
        "cancel_many, delayed",
        _of_queue(lambda queue: queue.cancel_many(headers=_ALL["headers"])),
        _sends(headers=_ALL["headers"], delay=3600),
    ),
    Case("find", _of_queue(lambda queue: queue.find("no-such-id")), _PLAIN),
    Case("search", _of_queue(lambda queue: list(queue.search("no such text"))), _PLAIN),
    Case("delayed.run", _of_queue(lambda queue: queue.delayed.run(all=True)), _LATER),
    Case("promote", _monitored(_nothing_delayed, _due), _LATER),
    Case("promote with keys, followed", _monitored(_nothing_delayed, _due), _sends(**_ALL, delay=3600), _FOLLOWED),
    Case("reclaim", _monitored(_none_in_flight, _vanished), _PLAIN),
    Case("resize to 16 partitions", _monitored(_resized, _to_partitions), _sends(key=_keyed)),
    Case("stats of 10,000 consumers", _stats, _consumers),
    Case("cycle.add of 5,000", _members),
    Case("5,000 schedules", _schedules),
)


def measured(case: Case, rounds: int) -> dict[str, list[float]]:
    """Return the longest call of each script in each round, in ms; not what lies in the log of no round."""
    found: dict[str, list[float]] = {}
    with fresh_redis() as (server, client):
        for number in range(-1, rounds):  # the first one loads the scripts
            with reliq.Reliq(server.url) as app:
                app.queue(_QUEUE).configure(**(case.policy or {}))
                case.before(app, client)
                longest = Longest(client)
                case.act(app, client)
            if number >= 0:
                for name, times in longest.found().items():
                    found.setdefault(name, []).append(times[0])
            client.flushall()
    return dict(sorted(found.items(), key=lambda one: -median(one[1])))


def rows(setting: Setting, only: str = "") -> Iterator[Row]:
    for case in CASES:
        if only not in case.name:
            continue
        every = measured(case, setting.rounds)
        first = next(iter(every.values()), [0.0])
        row = Row(f"long: {case.name}", [Check("longest call, ms", first, BOUND_MS, at_least=False)])
        row.notes = [", ".join(f"{name} {median(ms):.2f} ({min(ms):.2f}..{max(ms):.2f})" for name, ms in every.items())]
        row.figures = {"longest": every}
        print(f"  {row.what}: {row.notes[0] or 'below 0.2'}", flush=True)
        yield row
