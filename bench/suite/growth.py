"""What one command costs when there is much of something: the longest one, and what a monitor of it asks for.

Each state is built small and large. On the large one every call of the public API is made, a monitor watches for some
seconds in which nothing happens, then it has to act on all of it at once. The longest command is Redis' own figure
(SLOWLOG), for a script with all it does; meanwhile it answers no other client.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import reliq
from bench.suite.flat import BODY, monitoring
from bench.suite.harness import Check, Row, Setting, fresh_redis
from reliq import NewMessage, ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys, new_owner
from reliq.model.message import Message
from reliq.ops.request import script_named
from reliq.protocol.deletion import delete
from reliq.protocol.outcomes import buried, failure_now

BOUND_MS = 5.0
_LOGGED_MICROS = 200  #: a command that takes less is not in the log
_LEASE = 3600.0
_PAGE = 1000
_QUEUE = "bench"

Build = Callable[[reliq.Reliq, int], None]
Act = Callable[[reliq.Reliq, Any], None]


def _pages(size: int) -> Iterator[range]:
    for start in range(0, size, _PAGE):
        yield range(start, min(size, start + _PAGE))


def messages(app: reliq.Reliq, size: int) -> None:
    """Eight of ten are ready, one is delayed, one is dead."""
    queue = app.queue(_QUEUE)
    queue.configure(track=True)
    for page in _pages(size // 10):
        queue.send_many([BODY] * len(page))
        _bury(app, len(page))
    for page in _pages(size // 10):
        queue.send_many([BODY] * len(page), delay=3600)
    for page in _pages(size * 8 // 10):
        queue.send_many([BODY] * len(page))


def _bury(app: reliq.Reliq, count: int) -> None:
    """Let the oldest messages die, all in one call."""
    keys, one = QueueKeys(_QUEUE), new_owner(connected=False)
    app.store.call(ops.register(keys, one, _LEASE))
    elements = app.store.call(ops.claim(keys, one, _LEASE, count)).elements
    failure = failure_now(one, "Dead", "it is wrong")
    moves = [buried(Message.decode(_QUEUE, element), failure, "rejected") for element in elements]
    app.store.call([ops.settle(keys, one, _LEASE, (), moves), ops.forget(keys, one, leaving=True)])


def limit_keys(app: reliq.Reliq, size: int) -> None:
    """Each with one message that is ready and one that waits for it."""
    queue = app.queue(_QUEUE)
    queue.configure(fair=True, key_concurrency=1, key_rate="100/s")
    for _ in range(2):
        for page in _pages(size):
            queue.send_many([NewMessage(BODY, limit_key=f"tenant-{number}") for number in page])


def queues(app: reliq.Reliq, size: int) -> None:
    """Every tenth has a consumer and a delayed message, the others only a ready one."""
    for number in range(size):
        queue = app.queue(f"{_QUEUE}-{number}")
        queue.send(BODY)
        if number % 10 == 0:
            queue.send(BODY, delay=3600)
            app.store.call(ops.register(QueueKeys(queue.name), new_owner(connected=False), _LEASE))


def consumers(app: reliq.Reliq, size: int) -> None:
    app.queue(_QUEUE).send(BODY)
    for page in _pages(size):
        app.store.call([ops.register(QueueKeys(_QUEUE), new_owner(connected=False), _LEASE) for _ in page])


def schedules(app: reliq.Reliq, size: int) -> None:
    steps = app.schedules._steps
    app.store.run(steps.put([steps.define(f"s-{number}", "1h", _QUEUE, BODY, {}) for number in range(size)]))


def batches(app: reliq.Reliq, size: int) -> None:
    """Each with a message that has not ended."""
    for number in range(size):
        with app.batch(on_done=("ends", "done")) as batch:
            batch.send(_QUEUE, number)


# --- what a monitor then has to act on at once ---


def _none(app: reliq.Reliq, client: Any) -> None:
    pass


def _due(app: reliq.Reliq, client: Any) -> None:
    """What is delayed is due."""
    for name in list(client.scan_iter("reliq:*:delayed", count=_PAGE)):
        while some := client.zrangebyscore(name, 2, "+inf", 0, _PAGE):
            client.zadd(name, dict.fromkeys(some, 1))


def _vanished(app: reliq.Reliq, client: Any) -> None:
    """Leases have run out."""
    for page in _paged(list(client.scan_iter("reliq:*:lease:*", count=_PAGE))):
        client.mset(dict.fromkeys(page, 1))


def _ticks(app: reliq.Reliq, client: Any) -> None:
    """All schedules are due in two seconds."""
    steps, soon = app.schedules._steps, datetime.now(UTC) + timedelta(seconds=2)
    every = [one.name for one in app.schedules.list()]
    app.store.run(steps.put([steps.define(name, "1h", _QUEUE, BODY, {"start": soon}) for name in every]))


def _ended(app: reliq.Reliq, client: Any) -> None:
    """The messages of all batches have been handled."""
    with app.queue(_QUEUE).consumer() as consumer:
        while some := consumer.claim(limit=_PAGE):
            consumer.ack(*some)


def _paged(names: list[Any]) -> Iterator[list[Any]]:
    for page in _pages(len(names)):
        yield [names[number] for number in page]


DIMENSIONS: tuple[tuple[str, Build, int, Act], ...] = (
    ("messages", messages, 1_000_000, _due),
    ("limit keys", limit_keys, 100_000, _none),
    ("queues", queues, 10_000, _due),
    ("idle consumers", consumers, 5_000, _vanished),
    ("schedules", schedules, 10_000, _ticks),
    ("open batches", batches, 10_000, _ended),
)


def _calls(app: reliq.Reliq) -> Iterator[Callable[[], Any]]:
    """Yield calls of the public API, those that remove much last."""
    queue = app.queue(_QUEUE)
    one = queue.send(BODY)
    yield lambda: queue.send_many([BODY] * _PAGE)
    yield lambda: queue.send(BODY, delay=3600, priority="high")
    yield lambda: queue.send(BODY, key="key", dedup_key="key")
    yield lambda: queue.send(BODY, limit_key="tenant-7")
    yield lambda: _consume(queue)
    yield from (queue.stats, queue.partitions, app.queues, app.batches, app.schedules.list)
    yield from (lambda: queue.find(one), lambda: queue.find("no-such-id"), lambda: app.find("no-such-id"))
    yield from (lambda: queue.cancel("no-such-id"), lambda: queue.cancel(one))
    yield lambda: queue.cancel_many(key="tenant-9", dry_run=True)
    yield from (lambda: queue.dead.list(limit=50), lambda: queue.dead.redrive(limit=_PAGE))
    yield from (queue.pause, queue.resume, lambda: queue.configure(max_length=10_000_000, dead_max_count=1))
    yield lambda: queue.dead.purge(all=True)
    yield queue.purge
    yield lambda: app.store.run(delete(_QUEUE, force=True))


def call_everything(app: reliq.Reliq) -> list[ReliqError]:
    """Make all calls; return the errors."""
    failed = []
    for call in _calls(app):
        try:
            call()
        except ReliqError as error:
            failed.append(error)
    return failed


def _consume(queue: Any) -> None:
    with queue.consumer() as consumer:
        for _ in range(20):
            some = consumer.claim(limit=100)
            consumer.ack(*some[1:])
            for message in some[:1]:
                consumer.retry(message)


class Longest:
    """The longest command of a server since it was watched."""

    def __init__(self, client: Any) -> None:
        self._client = client
        with suppress(PermissionError, AttributeError):  # as root: what else runs must not count
            os.sched_setscheduler(client.info("server")["process_id"], os.SCHED_RR, os.sched_param(1))
        client.config_set("slowlog-log-slower-than", _LOGGED_MICROS)
        client.config_set("slowlog-max-len", 100_000)
        client.slowlog_reset()

    def found(self) -> dict[str, list[float]]:
        """Return the times of each command or script that are in the log, in ms, the longest first."""
        every: dict[str, list[float]] = {}
        for entry in self._client.slowlog_get(100_000):
            words = entry["command"].split()
            name = words[0].decode().upper()
            if name == "SLOWLOG":
                continue
            if name == "EVALSHA":
                name = _SCRIPTS.get(words[1].decode(), name)
            every.setdefault(name, []).append(entry["duration"] / 1000)
        return dict(
            sorted(((name, sorted(ms, reverse=True)) for name, ms in every.items()), key=lambda one: -one[1][0])
        )


def _scripts() -> dict[str, str]:
    """Return the name of each script by its digest."""
    folder = Path(reliq.__file__).parent
    names = [path.stem for path in (folder / "lua").glob("*.lua")]
    names += [f"{path.parents[1].name}/{path.stem}" for path in folder.glob("features/*/lua/*.lua")]
    return {script_named(name).sha: f"{name}.lua" for name in names}


_SCRIPTS = _scripts()


@contextmanager
def state(build: Build, size: int) -> Iterator[tuple[reliq.Reliq, Any]]:
    with fresh_redis() as (server, client), reliq.Reliq(server.url) as app:
        build(app, size)
        yield app, client


def _idle(client: Any, url: str, seconds: float, then: Callable[[], None]) -> float:
    """Return how many commands a second a monitor costs an idle server; then let it act for as long."""
    with monitoring(url):
        rate = command_rate([client], seconds)
        then()
        time.sleep(seconds)
    return rate


def command_rate(clients: Sequence[Any], seconds: float) -> float:
    """Watch servers for so many seconds; return the commands/s of all of them, with those inside of scripts."""
    before, began = _commands(clients), time.monotonic()
    time.sleep(seconds)
    return (_commands(clients) - before) / (time.monotonic() - began)


def _commands(clients: Sequence[Any]) -> int:
    return sum(int(one.info("stats")["total_commands_processed"]) for one in clients)


def _row(what: str, build: Build, size: int, act: Act, seconds: float) -> Row:
    row = Row(f"growth: {what} {size:,}")
    with state(build, max(1, size // 100)) as (app, client):
        few = _idle(client, app.url, seconds, lambda: None)
    with state(build, size) as (app, client):
        longest = Longest(client)
        many = _idle(client, app.url, seconds, lambda: act(app, client))
        of_monitor = longest.found()
        call_everything(app)
        every = longest.found()
    row.checks = [Check("longest command, ms", [_longest(every)], BOUND_MS, at_least=False)]
    row.notes = [
        "longest (median of those in the log), ms: "
        + (", ".join(f"{name} {ms[0]:.1f} ({median(ms):.1f})" for name, ms in list(every.items())[:6]) or "none"),
        f"of a monitor: {_longest(of_monitor):.1f} ms",
        f"idle, commands/s: {few:.0f} with a hundredth, {many:.0f} with all",
    ]
    row.figures = {"longest": every, "idle": {"few": few, "many": many}}
    return row


def _longest(every: dict[str, list[float]]) -> float:
    return max((ms[0] for ms in every.values()), default=0.0)


def rows(setting: Setting, seconds: float = 6.0, only: Collection[str] = ()) -> list[Row]:
    """Measure each; `seconds`: of a monitor over an idle state, and then over one in which much is to be done."""
    found = []
    for what, build, size, act in DIMENSIONS:
        if only and what not in only:
            continue
        found.append(_row(what, build, setting.volume(size // 10, size), act, seconds))
        print(f"  {found[-1].what}: {found[-1].verdict}", *found[-1].notes, sep="\n    ", flush=True)
    return found
