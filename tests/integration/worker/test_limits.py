"""The limits of a queue under real workers: rate, concurrency, hold, circuit breaker."""

import threading
import time

import pytest

import reliq
from reliq.model.keys import QueueKeys
from tests.support.handlers import bind, settled, working_as
from tests.support.workers import eventually, working

KEYS = QueueKeys("q")


def test_a_rate_holds_over_several_workers(app, kind):
    queue, handled = app.queue("q"), []
    queue.configure(rate="200/s", burst=10)
    bind(app, kind, lambda message: handled.append(time.monotonic()))
    queue.send_many(range(150))
    with working_as(kind, app), working_as(kind, app):
        eventually(lambda: len(handled) == 150)
    assert handled[-1] - handled[0] >= (150 - 10 - 1) / 200 - 0.05  # the clock of the server, read here


def test_concurrency_holds_over_several_workers(app):
    queue, lock = app.queue("q"), threading.Lock()
    now, most = set(), []

    @app.handler("q")
    def handle(message):
        with lock:
            now.add(message.id)
            most.append(len(now))
        time.sleep(0.005)
        with lock:
            now.discard(message.id)

    queue.configure(concurrency=3)
    queue.send_many(range(100))
    with working(app, threads=4), working(app, threads=4):
        eventually(lambda: len(most) == 100)
        eventually(lambda: settled(app))
    assert max(most) <= 3


def test_a_worker_without_a_slot_waits_in_redis_and_takes_the_next_one(app, client):
    queue, held, go_on = app.queue("q"), threading.Event(), threading.Event()
    queue.configure(concurrency=1)

    @app.handler("q")
    def handle(message):
        if message.body == b"first":
            held.set()
            go_on.wait(30)

    queue.send("first")
    with working(app), working(app):
        assert held.wait(10)
        queue.send("second")
        eventually(lambda: any(one["cmd"] == "blpop" for one in client.client_list()))
        assert queue.stats().ready == 1
        go_on.set()
        eventually(lambda: settled(app))


def test_a_worker_without_a_token_does_not_poll(app, client):
    queue, handled = app.queue("q"), []
    queue.configure(rate="1/h", burst=2)
    app.handler("q")(lambda message: handled.append(message.body))
    queue.send_many(range(5))
    with working(app):
        eventually(lambda: len(handled) == 2)
        eventually(lambda: queue.stats().processing == 0)
        before, began = client.info("commandstats")["cmdstat_evalsha"]["calls"], time.monotonic()
        time.sleep(2.0)
        asked = client.info("commandstats")["cmdstat_evalsha"]["calls"] - before
    assert asked <= 1 + time.monotonic() - began  # a heartbeat, or a look whether the limits have changed
    assert queue.stats().ready == 3


def test_an_idle_worker_gets_a_message_of_a_limited_queue_at_once(app, client):
    queue, handled = app.queue("q"), threading.Event()
    queue.configure(rate="10/s")
    app.handler("q")(lambda message: handled.set())
    with working(app):
        eventually(lambda: any(one["cmd"] == "blmove" for one in client.client_list()))
        queue.send("x")
        assert handled.wait(5)
        eventually(lambda: settled(app))


def test_a_limit_that_comes_while_a_worker_waits_counts_at_once(app, client):
    """Its BLMOVE knows no limits: what it has taken goes back."""
    queue, handled = app.queue("q"), []
    app.handler("q")(lambda message: handled.append(message.body))
    with working(app):
        eventually(lambda: any(one["cmd"] == "blmove" for one in client.client_list()))
        client.hset(KEYS.flow, "held_until", int(time.time() * 1000) + 3_600_000)
        client.hset(KEYS.config, "limited", 1)
        queue.send("x")
        eventually(lambda: queue.stats().counters.get("released"))
        assert queue.stats().ready == 1
    assert handled == []


def test_a_raised_or_removed_limit_is_noticed(app):
    queue, handled = app.queue("q"), []
    queue.configure(rate="1/h", burst=1)
    app.handler("q")(lambda message: handled.append(message.body))
    queue.send_many(range(30))
    with working(app):
        eventually(lambda: len(handled) == 1)
        queue.configure(rate=None, burst=None)
        eventually(lambda: len(handled) == 30)
        eventually(lambda: settled(app))
    assert queue.config().rate is None


def test_retry_of_scope_queue_holds_the_others_and_charges_them_nothing(app, kind):
    queue, started = app.queue("q"), []

    def handle(message):
        started.append((message.body, time.monotonic(), message.failures))
        if len(started) == 1:
            raise reliq.Retry("too many requests", delay=0.5, scope="queue")

    bind(app, kind, handle)
    queue.send("first")
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().delayed == 1)
        queue.send_many(["second", "third"])
        eventually(lambda: len(started) == 4)
        eventually(lambda: settled(app))
    (_, failed_at, _), *others = started
    assert all(at - failed_at >= 0.49 for _, at, _ in others)
    assert sorted((body, failures) for body, _, failures in others) == [(b"first", 1), (b"second", 0), (b"third", 0)]


def test_retry_of_scope_key_holds_the_messages_of_that_key_only(app, kind):
    queue, started = app.queue("q"), []

    def handle(message):
        started.append((message.limit_key, time.monotonic()))
        if len(started) == 1:
            raise reliq.Retry("too many requests", delay=1, scope="key")

    bind(app, kind, handle)
    queue.send("first", limit_key="tenant")
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().delayed == 1)
        queue.send_many(range(3), limit_key="tenant")
        queue.send_many(range(3), limit_key="other")
        eventually(lambda: len(started) == 8)
        eventually(lambda: settled(app))
    (_, failed_at), *others = started
    assert all(at - failed_at >= 0.99 for key, at in others if key == "tenant")
    assert [key for key, _ in others][:3] == ["other"] * 3


def test_the_rate_of_a_key_holds_over_several_workers_and_delays_no_other_key(app, kind):
    queue, handled = app.queue("q"), []
    queue.configure(key_rate="20/s")
    bind(app, kind, lambda message: handled.append((message.limit_key, time.monotonic())))
    queue.send_many(range(20), limit_key="slow")
    for number in range(40):
        queue.send(number, limit_key=f"tenant-{number}")
    with working_as(kind, app, monitor=True), working_as(kind, app):
        eventually(lambda: len(handled) == 60)
        eventually(lambda: settled(app))
    slow = [at for key, at in handled if key == "slow"]
    others = [at for key, at in handled if key != "slow"]
    assert slow[-1] - slow[0] >= (20 - 2 - 1) / 20 - 0.05
    assert max(others) < slow[10]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"scope": "world", "delay": 1}, "Retry\\(scope=\\) is 'world'"),
        ({"scope": "queue"}, "needs a delay"),
        ({"scope": "key"}, "needs a delay"),
        ({"scope": "queue", "delay": 0}, "needs a delay"),
    ],
)
def test_a_retry_with_a_wrong_scope_says_so(wrong, text):
    with pytest.raises(reliq.InvalidSetting, match=text):
        reliq.Retry(**wrong)


def test_an_outage_charges_few_messages_and_kills_none(app, kind, client):
    queue, down, runs = app.queue("q"), threading.Event(), []
    down.set()

    def handle(message):
        runs.append(message.id)
        if down.is_set():
            raise ConnectionError("the service is down")

    rule = reliq.breaker(threshold=0.5, minimum=10, window="1m", open_for="0.2s")
    bind(app, kind, handle, breaker=rule, retry=reliq.fixed("0s", limit=3))
    queue.send_many(range(300))
    with working_as(kind, app, monitor=True):
        eventually(lambda: client.hget(KEYS.flow, "breaker"))
        counters = queue.stats().counters
        eventually(lambda: queue.stats().counters.get("released", 0) >= counters.get("released", 0) + 3)  # probes
        charged = queue.stats().counters["retried"]
        assert charged <= 10 + 256
        down.clear()
        eventually(lambda: settled(app))
    assert queue.stats().dead == 0
    assert client.hget(KEYS.flow, "breaker") is None


def test_a_poison_message_does_not_keep_the_breaker_open(app, client):
    """A failed probe goes behind the others, so the next probe is another message."""
    queue, handled = app.queue("q"), list[bytes]()
    rule = reliq.breaker(threshold=0.9, minimum=1, window="1m", open_for="0.1s")

    @app.handler("q", breaker=rule, retry=reliq.fixed("0s", limit=50))
    def handle(message):
        if message.body == b"poison" and len(handled) < 3:
            raise ValueError("poison")
        handled.append(message.body)

    queue.send_many(["poison", "a", "b", "c"])
    with working(app):
        eventually(lambda: len(handled) == 4)
        eventually(lambda: settled(app))


def test_expired_messages_do_not_keep_the_breaker_open(app, client):
    """After an outage those at the head have passed their `ttl`: a probe that never ran makes room for the next one."""
    queue, handled = app.queue("q"), list[bytes]()
    rule = reliq.breaker(threshold=0.5, minimum=1, window="1m", open_for="1m")

    @app.handler("q", breaker=rule)
    def handle(message):
        handled.append(message.body)

    queue.open_breaker("1m")
    client.hset(KEYS.flow, "breaker_until", 0)
    for _ in range(20):
        queue.send("old", ttl=0.001)
    queue.send("new")
    with working(app):
        eventually(lambda: handled == [b"new"])
        eventually(lambda: queue.stats().breaker == "closed")


def test_probes_do_not_charge(app, client):
    queue, runs = app.queue("q"), []
    rule = reliq.breaker(threshold=1, minimum=2, window="1m", open_for="0.1s")

    @app.handler("q", breaker=rule, retry=reliq.fixed("0s", limit=3))
    def handle(message):
        runs.append(message.failures)
        raise ConnectionError("down")

    queue.send("only one")
    with working(app):
        eventually(lambda: len(runs) >= 8)
    assert max(runs) <= 3
    assert queue.stats().dead == 0


def test_one_probe_at_a_time_runs_however_long_it_takes(app, url, client):
    """Over two workers, as their claims show: the second one looks at the consumer of the first."""
    queue, broken, begun, go_on = app.queue("q"), [True], [], threading.Event()

    def handle(message):
        if broken[0]:
            raise ConnectionError("down")
        begun.append(message.id)
        go_on.wait(20)

    rule = reliq.breaker(threshold=0.5, minimum=3, window="1m", open_for="0.5s")
    app.handler("q", breaker=rule, retry=reliq.fixed("0s", limit=50))(handle)
    queue.send_many(range(20))
    with working(app, threads=4), reliq.Reliq(url) as beside:
        beside.handler("q", breaker=rule, retry=reliq.fixed("0s", limit=50))(handle)
        with working(beside, threads=4):
            eventually(lambda: client.hget(KEYS.flow, "breaker") == b"open" and queue.stats().processing == 0)
            broken[0] = False
            eventually(lambda: begun)
            time.sleep(3)  # six times `open_for`
            assert len(begun) == 1
            go_on.set()
            eventually(lambda: settled(app))


@pytest.mark.parametrize("waits", ["sleep", "wait"])
def test_a_probe_whose_handler_waits_has_passed(app, client, waits):
    queue, broken = app.queue("q"), [True]

    @app.handler("q", breaker=reliq.breaker(threshold=0.5, minimum=3, window="1m", open_for="0.1s"),
                 retry=reliq.fixed("0s", limit=50))  # fmt: skip
    def handle(message):
        if broken[0]:
            raise ConnectionError("down")
        if waits == "sleep":
            message.sleep("an hour", "1h")
        else:
            message.wait("approval", timeout="2d")

    queue.send_many(range(10))
    with working(app, threads=2):
        eventually(lambda: client.hget(KEYS.flow, "breaker") == b"open")
        broken[0] = False
        eventually(lambda: client.hget(KEYS.flow, "breaker") is None)
        eventually(lambda: (queue.stats().ready, queue.stats().processing) == (0, 0))
    assert queue.stats().delayed + queue.stats().parked == 10


def test_a_step_that_is_tried_again_is_a_failed_run(app, client):
    """It was none: the breaker never opened, and closed when the step of a probe failed."""
    queue, ran = app.queue("q"), list[bytes]()
    rule = reliq.breaker(threshold=0.5, minimum=3, window="1m", open_for="1m")

    def call() -> None:
        raise ConnectionError("down")

    @app.handler("q", breaker=rule)
    def handle(message):
        ran.append(message.body)
        message.step("call", call, retry=reliq.fixed("1h", limit=5))

    queue.send_many(range(10))
    with working(app, threads=2):
        eventually(lambda: client.hget(KEYS.flow, "breaker") == b"open")
        before = len(ran)
        client.hset(KEYS.flow, "breaker_until", 0)
        eventually(lambda: len(ran) > before)
        eventually(lambda: client.hget(KEYS.flow, "breaker") == b"open" and queue.stats().processing == 0)
    assert queue.stats().ready == 10 - len(ran) > 0


@pytest.mark.parametrize("scope", ["queue", "key"])
def test_a_step_that_is_tried_again_holds_the_queue_or_its_key(app, client, scope):
    """It held nothing: the others went on to be answered 429."""
    queue, ran = app.queue("q"), list[bytes]()

    def call() -> None:
        raise reliq.Retry("429", delay="1h", scope=scope)

    @app.handler("q")
    def handle(message):
        ran.append(message.body)
        if message.body == b"first":
            message.step("call", call, retry=3)

    queue.send("first", limit_key="t")
    with working(app, monitor=True):
        if scope == "queue":
            eventually(lambda: queue.stats().limited_by == "held")
        else:
            eventually(lambda: client.hget(KEYS.config, "limited"))
            queue.send("second", limit_key="t")
            queue.send("other", limit_key="o")
            eventually(lambda: ran == [b"first", b"other"])
            eventually(lambda: queue.stats().delayed == 2)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"threshold": 0}, "threshold is 0"),
        ({"threshold": 1.5}, "threshold is 1.5"),
        ({"threshold": True}, "threshold is True"),
        ({"minimum": 0}, "minimum is 0"),
        ({"window": "5 parsec"}, "window is '5 parsec'"),
        ({"open_for": 0}, "open_for is 0"),
    ],
)
def test_a_wrong_breaker_says_what_is_wrong(wrong, text):
    with pytest.raises(reliq.InvalidSetting, match=text):
        reliq.breaker(**wrong)


def test_a_handler_refuses_what_is_no_breaker(app):
    with pytest.raises(reliq.InvalidHandler, match=r"breaker of .q. is 0\.5"):
        app.handler("q", breaker=0.5)(lambda message: None)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"rate": "5/sin"}, "one of s, m or min, h, d"),
        ({"rate": "99999999999999/min"}, "from 1/d to 1000000/s"),
        ({"keep_output": "-1"}, "it must be between 1 second and "),
        ({"burst": "5"}, "whole number"),
    ],
    ids=str,
)
def test_a_wrong_setting_names_its_form_or_its_range(app, wrong, text):
    with pytest.raises(reliq.InvalidSetting, match=text):
        app.queue("q").configure(**wrong)


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_burst_goes_with_its_rate(app, partitions):
    queue = app.queue("q")
    queue.configure(partitions=partitions, rate="100/s", burst=20)

    config = queue.configure(rate=None)

    assert (config.rate, config.burst) == (None, None)
    with pytest.raises(reliq.InvalidSetting, match="set rate too"):
        queue.configure(burst=20)
    assert queue.configure(rate="100/s").burst is None
