"""Each duty of each queue fails alone, is told, and is tried again; no other duty or queue waits for it."""

import logging
import threading
import time
from collections import Counter

import pytest
import redis

import reliq
from reliq import ops
from reliq.model.keys import QueueKeys, monitors_since, monitors_until, new_owner
from reliq.transport.store import Store
from reliq_monitor import attempts, membership
from reliq_monitor.retention import DeadLetterTrimming, SilentProducers, SilentStreams
from tests.support.turns import Monitor
from tests.support.workers import eventually

BAD, GOOD = QueueKeys("bad"), QueueKeys("good")
#: The keys of the queue that another application has, and the duties that cannot be done there.
FOREIGN = [
    ("jobs", {"staged"}),
    ("prepared", {"prepared"}),
    ("delayed", {"promote"}),
    ("consumers", {"scan"}),
    ("config", {"dead letters", "promote", "reclaim"}),
    ("producers", {"producers"}),
    ("epochs", {"streams"}),
    ("messages", {"promote", "reclaim"}),
]


@pytest.fixture
def server(url):
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture
def running(url, monkeypatch):
    """Start a monitor as its own process would run it; stopped at the end."""
    for duty in (DeadLetterTrimming, SilentProducers, SilentStreams):
        monkeypatch.setattr(duty, "interval", 0.2)
    stopping, threads = threading.Event(), []

    def start():
        monitor = Monitor(Store(url), 0.05)
        threads.append(threading.Thread(target=monitor.run, args=(stopping,)))
        threads[-1].start()
        return monitor

    yield start
    stopping.set()
    for thread in threads:
        thread.join()


def abandoned(app, keys):
    """A message held by a consumer with an expired lease, and one that is due."""
    queue, consumer = app.queue(keys.queue), new_owner(connected=False)
    queue.send("held")
    app.store.call(ops.register(keys, consumer, 600.0))
    app.store.call(ops.claim(keys, consumer, 600.0, 1))
    app.store.call(ops.command("DEL", keys.lease(consumer)))
    queue.send("due", delay=0.001)


@pytest.mark.parametrize(("name", "duties"), FOREIGN)
def test_a_foreign_key_of_one_queue_stops_nothing_else(app, server, running, caplog, name, duties):
    caplog.set_level(logging.WARNING, "reliq.monitor")
    abandoned(app, BAD)
    abandoned(app, GOOD)
    server.delete(getattr(BAD, name))
    server.set(getattr(BAD, name), "of another application")
    monitor = running()
    eventually(lambda: server.llen(GOOD.messages) == 2, what="both messages of the other queue are ready")
    expected = {(duty, "bad") for duty in duties}
    eventually(lambda: monitor.state().failing == expected, what=f"{expected} are told to fail")
    assert {duty for duty, count in monitor.state().failures.items() if count} == duties
    seen = monitor.state().last_scan_at
    eventually(lambda: monitor.state().last_scan_at > seen)

    server.delete(getattr(BAD, name))
    eventually(lambda: not monitor.state().failing, what="it is tried again")
    said = [record.getMessage() for record in caplog.records if "queue=bad" in record.getMessage()]
    for duty in duties:
        assert len([line for line in said if f"duty={duty} queue" in line and "works again" not in line]) == 1


def foreign(server, kind, key):
    """Put a value of another application in the place of a key."""
    server.delete(key)
    match kind:
        case "string":
            server.set(key, "x")
        case "list":
            server.rpush(key, "x")
        case "hash":
            server.hset(key, "x", "y")
        case "set":
            server.sadd(key, "x")
        case "zset":
            server.zadd(key, {"x": 1})
        case "stream":
            server.xadd(key, {"x": "y"})


@pytest.mark.parametrize("monitors", [1, 2])
def test_queues_that_are_broken_in_every_key_stop_nothing_for_a_hundred_others(
    app, server, running, caplog, monitors
):  # fmt: skip
    caplog.set_level(logging.WARNING, "reliq.monitor")
    broken = [QueueKeys(f"broken-{kind}") for kind in ("string", "list", "hash", "set", "zset", "stream")]
    others = [QueueKeys(f"queue-{number}") for number in range(100)]
    for keys in broken:
        server.sadd("reliq:queues", keys.queue)
        for key in (*keys.everything, keys.processing("c1"), keys.lease("c1")):
            foreign(server, keys.queue.removeprefix("broken-"), key)
    for keys in others:
        abandoned(app, keys)
    app.schedules.add("tick", "1s", others[50].queue)
    started = [running() for _ in range(monitors)]
    eventually(lambda: all(server.llen(keys.messages) >= 2 for keys in others), what="the messages of the others")
    eventually(lambda: app.schedules.get("tick").fired >= 2)
    failing = set().union(*(one.state().failing for one in started))
    assert {queue for _, queue in failing} == {keys.queue for keys in broken}
    assert {duty for duty, _ in failing} >= {"scan", "promote", "staged", "prepared", "dead letters", "producers"}
    assert all(time.time() - one.state().last_scan_at < 5 for one in started)
    told = [record.getMessage() for record in caplog.records]
    lines = Counter(line.partition(": ")[0] for line in told if ": for " not in line)  # a reminder, after half a minute
    assert max(lines.values()) <= monitors, "each failure is told once"


def test_the_queue_of_a_foreign_key_gets_its_messages_back_afterwards(app, server, running):
    abandoned(app, BAD)
    server.set(BAD.messages, "of another application")
    monitor = running()
    eventually(lambda: ("reclaim", "bad") in monitor.state().failing)
    server.delete(BAD.messages)
    eventually(lambda: server.llen(BAD.messages) == 2)


def test_a_job_with_a_manifest_of_another_version_holds_up_no_other(app, server, running):
    now = app.store.call(ops.server_time())
    server.sadd("reliq:queues", "bad")
    server.zadd(BAD.jobs, {"old": now - 1000})
    server.hset(BAD.job("old"), mapping={"state": "committed", "run": "r", "manifest": b"\xc1"})
    abandoned(app, GOOD)
    monitor = running()
    eventually(lambda: server.llen(GOOD.messages) == 2)
    eventually(lambda: monitor.state().failing == {("staged", "bad")})
    assert server.exists(BAD.job("old"))


def test_a_foreign_set_of_queues_makes_the_monitor_look_stale(app, server, running):
    """No queue is known then, and what is not known is not looked after."""
    abandoned(app, GOOD)
    monitor = running()
    eventually(lambda: server.llen(GOOD.messages) == 2)
    server.rename("reliq:queues", "aside")
    server.set("reliq:queues", "of another application")
    eventually(lambda: ("queues", "") in monitor.state().failing)
    stale = monitor.state().last_scan_at
    app.store.call(ops.command("ZADD", GOOD.delayed, 1, b"x"))
    eventually(lambda: server.zcard(GOOD.delayed) == 0, what="the queues that it knows are looked after")
    assert monitor.state().last_scan_at == stale
    server.rename("aside", "reliq:queues")
    eventually(lambda: monitor.state().last_scan_at > stale)


def test_a_server_that_refuses_every_call_is_away_and_no_duty_fails_at_it(app, server, running, caplog):
    """Such as after a change of the password. There was a line for each duty of each queue, and pauses up to 30 s."""
    caplog.set_level(logging.WARNING, "reliq.monitor")
    for name in "abc":
        app.queue(name).send(1)
    monitor = running()
    eventually(lambda: monitor.state().last_scan_at)
    server.config_set("maxmemory-policy", "allkeys-lru")
    try:
        server.client_kill_filter(_type="normal", skipme=True)
        eventually(lambda: any("allkeys-lru" in line for line in caplog.messages))
        eventually(lambda: not monitor.state().last_scan_at, what="it is known to be away")
    finally:
        server.config_set("maxmemory-policy", "noeviction")
    eventually(lambda: monitor.state().last_scan_at, what="it works again")
    assert [line.partition(":")[0] for line in caplog.messages if "allkeys-lru" in line] == ["monitor"]
    assert not any(monitor.state().failures.values())


def leads(monitor):
    state = monitor.state()
    return state.leading, state.led_queues, state.members


def test_a_foreign_key_in_the_place_of_the_members_makes_every_monitor_lead_everything(app, server, running):
    server.rpush(monitors_until("0"), "of another application")
    abandoned(app, GOOD)
    monitors = [running(), running()]
    eventually(lambda: server.llen(GOOD.messages) == 2)
    for monitor in monitors:
        eventually(lambda: leads(monitor) == (True, 1, 0))  # noqa: B023
        eventually(lambda: monitor.state().failing == {("members", "")})  # noqa: B023
    seen = monitors[0].state().last_scan_at
    eventually(lambda: monitors[0].state().last_scan_at > seen)


def test_what_fails_is_tried_again_after_pauses_that_grow(app, server, url):
    server.sadd("reliq:queues", "bad")
    server.set(BAD.delayed, "of another application")
    monitor = Monitor(Store(url))
    for _ in range(20):
        monitor.promote()
    assert monitor.state().failures["promote"] == 1


def delay_of_one_that_is_due(app, server):
    before, sent = server.llen(GOOD.messages), time.monotonic()
    app.queue("good").send("due", delay=0.3)
    eventually(lambda: server.llen(GOOD.messages) > before)
    return time.monotonic() - sent - 0.3


def least_delay(app, server, over):
    """How late the least late of five messages is that become due before the work in another queue is over."""
    delays = [delay_of_one_that_is_due(app, server)]
    while len(delays) < 5 and not over():
        delays.append(delay_of_one_that_is_due(app, server))
    return min(delays)


def test_a_large_reclaim_does_not_delay_what_is_due_in_another_queue(app, server, running):
    """100,000 messages of one dead consumer take many seconds; a message that is due must not wait for them."""
    app.queue("good").send("warm")
    consumer = new_owner(connected=False)
    held = 30_000
    app.queue("bad").send_many(["x"] * held)
    app.store.call(ops.register(BAD, consumer, 600.0))
    server.rename(BAD.messages, BAD.processing(consumer))
    server.delete(BAD.lease(consumer))
    running()
    eventually(lambda: server.llen(BAD.messages) > 0)
    assert least_delay(app, server, lambda: server.llen(BAD.processing(consumer)) == 0) < 0.5
    eventually(lambda: server.llen(BAD.messages) == held, timeout=60)


def test_trimming_many_dead_letters_does_not_delay_what_is_due(app, server, running):
    app.queue("good").send("warm")
    app.queue("bad").configure(dead_max_count=1)
    letters, count = reliq.NewMessage("x"), 30_000
    now = app.store.call(ops.server_time())
    pipeline = server.pipeline(transaction=False)
    for _ in range(count):
        pipeline.zadd(BAD.dead, {letters.element(now): now})
    pipeline.execute()
    server.sadd("reliq:queues", "bad")
    running()
    eventually(lambda: server.zcard(BAD.dead) < count)
    assert least_delay(app, server, lambda: server.zcard(BAD.dead) == 1) < 0.5
    eventually(lambda: server.zcard(BAD.dead) == 1, timeout=60)


def test_a_spare_fails_at_nothing(server, running, monkeypatch):
    """What it failed at when it led is the matter of those who lead now."""
    monkeypatch.setattr(membership, "MOST_LEADING", 1)
    monkeypatch.setattr(attempts, "_FORGOTTEN", 0.5)
    server.set("reliq:{@flows}:open", "of another application")
    monitor = running()
    eventually(lambda: ("open_flows", "") in monitor.state().failing)
    heir = running()
    eventually(lambda: monitor.state().members == 2)
    for key in (monitors_since("0"), monitors_until("0")):
        server.zrem(key, monitor._whole._membership.id)
    eventually(lambda: heir.state().leading and not monitor.state().leading)
    eventually(lambda: ("open_flows", "") in heir.state().failing)
    eventually(lambda: not monitor.state().failing)
