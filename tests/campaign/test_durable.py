"""kill -9 of workers, monitors, Redis (append-only file, always) and the HTTP service under durable handlers.

They have ten steps, a sleep and two waits; they open flows within flows; or they emit what clients read over HTTP.
DURABLE="10000,500" python -m pytest tests/campaign/test_durable.py: so many messages, and kills, in the first row; in
each of the others a fiftieth as many flows or a fiftieth as many outputs, and a fifth of the kills.
"""

import contextlib
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.errors import OutcomeUnknown, QueueFull, RedisUnavailable, SignalRefused
from tests.campaign.nested import QUEUES, Log, Outer
from tests.campaign.streams import READERS, Client, Service, check_output
from tests.support.workers import eventually, process

MESSAGES, KILLS = map(int, os.environ.get("DURABLE", "150,12").split(","))
WORKERS, MONITORS, STEPS = 3, 2, 10
PATIENCE = 120 + 0.2 * MESSAGES + 3 * KILLS
FEWER, FEWER_KILLS = max(4, MESSAGES // 50), max(3, KILLS // 5)  #: of the rows of flows and output


class Fleet:
    """Processes that are killed and started again."""

    def __init__(
        self, stack: contextlib.ExitStack, url: str, log: Path, app: str = "tests.campaign.durable_app:app"
    ) -> None:
        self._stack = stack
        self._app = app
        self._environment: Any = {"RELIQ_URL": url, "DURABLE_LOG": str(log)}
        self._places: list[Any] = [None] * (WORKERS + MONITORS)
        for place in range(len(self._places)):
            self.start(place)

    def start(self, place: int) -> None:
        arguments = ("worker", self._app) if place < WORKERS else ("monitor",)
        self._places[place] = self._stack.enter_context(process(*arguments, "--quiet", **self._environment))

    def kill(self, place: int) -> None:
        assert self._places[place].poll() is None, self._places[place].communicate()
        self._places[place].kill()
        self._places[place].communicate()
        self.start(place)


@pytest.fixture
def redis_with_log(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path / "redis", ("--appendonly", "yes", "--appendfsync", "always"))
    with server:
        yield server


def give(queue: reliq.Queue, identity: str, value: str) -> bool | None:
    """Give a signal until Redis has answered; None: the answer may have been lost, so it may be the first one."""
    unsure = False
    while True:
        try:
            taken = queue.signal(identity, "go", value)
        except OutcomeUnknown:
            unsure = True
        except (RedisUnavailable, QueueFull):
            time.sleep(0.05)
        except SignalRefused as error:
            assert error.outcome == "ended"  # noqa: PT017
            return None if unsure else False
        else:
            return None if unsure and not taken else taken


def has_handled(stats: reliq.Stats, messages: int) -> bool:
    return stats.counters.get("acked", 0) >= messages


def wait_until(queue: reliq.Queue, condition: Callable[[reliq.Stats], Any]) -> None:
    """Wait for a state of the queue, also while Redis is away."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(RedisUnavailable):
            if condition(queue.stats()):
                return
        time.sleep(0.1)


def kill_one(fleet: Fleet, server: EmbeddedRedis, number: int, chance: random.Random) -> None:
    """Kill a process; each sixth time Redis."""
    if number % 6 == 5:
        server.kill()
        server.start()
    else:
        fleet.kill(chance.randrange(WORKERS + MONITORS))


@pytest.mark.campaign
@pytest.mark.timeout(PATIENCE + 60)
def test_no_finished_step_runs_again_and_no_signal_is_lost_or_given_twice(redis_with_log, tmp_path):
    log, chance = tmp_path / "log", random.Random(7)
    app = reliq.Reliq(redis_with_log.url)
    queue = app.queue("durable")
    ids = queue.send_many(["x"] * MESSAGES)
    accepted: dict[str, list[str]] = {one: [] for one in ids}
    refused: set[str] = set()
    early, late = ids[::2], ids[1::2]  # those of the second half are to be parked when their signal comes
    signals = [(one, value) for some, value in ((early, "first"), (late, "first"), (ids, "second")) for one in some]
    kills, until = 0, time.monotonic() + PATIENCE
    with contextlib.ExitStack() as stack:
        fleet = Fleet(stack, redis_with_log.url, log)
        each = max(1, len(signals) // (KILLS + 1))
        while signals or kills < KILLS:
            for identity, value in signals[:each]:
                if identity == late[0] and value == "first":
                    wait_until(queue, lambda stats: stats.parked >= len(late))
                taken = give(queue, identity, value)
                if taken is not False:
                    accepted[identity].append(value)
                else:
                    refused.add(value)
            del signals[:each]
            if kills < KILLS:
                kill_one(fleet, redis_with_log, kills, chance)
                kills += 1
                time.sleep(chance.random() * 0.5)
        wait_until(queue, lambda stats: stats.counters.get("acked", 0) >= MESSAGES or time.monotonic() > until)
        stats = queue.stats()
    app.close()
    check(log, ids, accepted)
    assert (stats.parked, stats.delayed, stats.dead, stats.missing) == (0, 0, 0, 0)
    assert stats.counters["acked"] == MESSAGES
    assert stats.counters["timed_out"] == MESSAGES  # one wait of each was in vain, and ended once
    assert stats.counters["parked"] > MESSAGES  # others have waited for their signal
    assert refused  # twice is once
    print(f"messages={MESSAGES} kills={kills} counters={stats.counters}")


def check(log: Path, ids: list[str], accepted: dict[str, list[str]]) -> None:
    """Go through what the handlers have noted."""
    finished: set[tuple[str, str]] = set()
    signalled: dict[str, set[str]] = defaultdict(set)
    ended: set[str] = set()
    runs = 0
    for line in log.read_text().splitlines():
        what, identity, *more = line.split()
        match what:
            case "run":
                runs += 1
                assert (identity, more[0]) not in finished, f"step {more[0]} of {identity} ran again"
            case "done":
                finished.add((identity, more[0]))
            case "signal":
                signalled[identity].add(more[0])
            case "vain":
                assert more == ["over"]
            case "end":
                ended.add(identity)
    assert ended == set(ids)
    assert len(finished) == STEPS * len(ids)
    print(f"runs of steps: {runs}, of {len(finished)} that finished")
    for identity in ids:
        assert len(signalled[identity]) == 1, f"{identity} got {signalled[identity]}"
        assert signalled[identity] <= set(accepted[identity]), f"{identity} got what was refused"


@pytest.mark.campaign
@pytest.mark.timeout(PATIENCE + 60)
def test_flows_within_flows_run_in_their_order_and_none_is_lost_or_opened_twice(redis_with_log, tmp_path):
    log, chance = tmp_path / "log", random.Random(11)
    app = reliq.Reliq(redis_with_log.url)
    app.queue(QUEUES[-1]).configure(partitions=3)
    for name in QUEUES:
        app.queue(name).configure(max_deliveries=1000)
    outers = [Outer(app, chance, str(number)) for number in range(FEWER)]
    left, until = dict(enumerate(outers)), time.monotonic() + PATIENCE
    with contextlib.ExitStack() as stack:
        fleet = Fleet(stack, redis_with_log.url, log, "tests.campaign.nested_app:app")
        for kill in range(FEWER_KILLS):
            time.sleep(chance.random() * 0.7)
            kill_one(fleet, redis_with_log, kill, chance)
        while left and time.monotonic() < until:
            with contextlib.suppress(RedisUnavailable):
                left = {at: one for at, one in left.items() if one.differs(app)}
            time.sleep(0.2)
        eventually(lambda: not any(app.queue(name).stats().ready for name in QUEUES))  # of flows that were given up
        given_up = sum(one.given_up(app) for one in outers)
        stats = [app.queue(name).stats() for name in QUEUES]
    assert [text for one in left.values() for text in one.differs(app)] == []
    runs = Log(log, outers).runs
    plans = [plan for one in outers for plan in one.every.values() if plan.state]
    # A handler whose flow has failed has run; what it is said to have come to is what its flow has come to.
    skipped = sum(one.state == "skipped" for one in plans)
    dead = sum(one.dies for one in plans if one.state != "skipped")
    counters = Counter(name for one in stats for name, count in one.counters.items() for _ in range(count))
    assert [(one.ready, one.waiting, one.delayed, one.processing, one.missing) for one in stats] == [(0,) * 5] * 3
    ends = {"enqueued": len(plans), "dead_lettered": dead, "cancelled": skipped, "acked": len(plans) - dead - skipped}
    more = {name: counters[name] - count for name, count in ends.items()}
    # Of a flow whose sender was killed, some or all messages may have run; what they open is opened anew, too.
    assert min(more.values()) >= 0
    assert given_up or not any(more.values())
    app.close()
    states = dict(Counter(one.state for one in plans))
    print(f"flows={FEWER} messages={len(plans)} kills={FEWER_KILLS} runs={runs} states={states} given up={given_up}")


@pytest.mark.campaign
@pytest.mark.timeout(PATIENCE + 60)
def test_clients_of_streams_get_each_chunk_once_and_in_order(redis_with_log, tmp_path):
    """Readers over Server-Sent Events go on with Last-Event-ID, while workers and the HTTP service are killed."""
    chance, messages = random.Random(13), 5 * FEWER
    app = reliq.Reliq(redis_with_log.url)
    queue = app.queue("output")
    queue.configure(max_deliveries=1000)
    ids = queue.send_many(["x"] * messages)
    with contextlib.ExitStack() as stack:
        service = Service(stack, redis_with_log.url)
        clients = [Client(service.url, ids[number::READERS], PATIENCE) for number in range(READERS)]
        eventually(lambda: all(one.connections for one in clients), timeout=60)
        service.kill()  # all of them connect again
        fleet = Fleet(stack, redis_with_log.url, tmp_path / "log", "tests.campaign.output_app:app")
        for kill in range(FEWER_KILLS):
            if kill % 3 == 0:
                wait_until(queue, lambda stats: any(one.is_between for one in clients) or has_handled(stats, messages))
                service.kill()
            else:
                wait_until(queue, lambda stats: stats.processing or has_handled(stats, messages))
                time.sleep(chance.random() * 0.5)
                fleet.kill(chance.randrange(WORKERS + MONITORS))
        wait_until(queue, lambda stats: has_handled(stats, messages))
        for client in clients:
            client.join(PATIENCE)
    there = {one: [*queue.output(one, follow=False)] for one in ids}
    broken = sum(map(check_output, there.values()))
    for client in clients:
        assert client.ended == {*client.found}
        for identity, found in client.found.items():
            assert found == [(one.id, one.run, one.value) for one in there[identity]]
    stats = queue.stats()
    app.close()
    assert (stats.dead, stats.missing, stats.counters["acked"]) == (0, 0, messages)
    again, resumed = sum(one.connections for one in clients) - messages, sum(one.resumed for one in clients)
    assert again >= len(clients)
    print(f"messages={messages} kills={FEWER_KILLS} broken runs={broken} connected again={again} resumed={resumed}")
