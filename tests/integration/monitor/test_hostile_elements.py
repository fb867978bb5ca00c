"""Hostile elements through real processes: each ends somewhere visible, and nothing stops at any of them."""

from typing import Any

import msgspec
import pytest
import redis

import reliq
from reliq import ops
from reliq.contract import values
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import QueueKeys, new_owner
from reliq.transport.store import Store
from tests.integration.api.serving import serving
from tests.support.state import element
from tests.support.turns import Monitor
from tests.support.workers import eventually, working

KEYS = QueueKeys("orders")
LARGE = 8 * 1024 * 1024
HUGE = 2**64 - 1


def with_field(place, value):
    fields = msgspec.msgpack.decode(element("a", nonce=place * 1000 + 7))
    return msgspec.msgpack.encode([*fields[:place], value, *fields[place + 1 :]])


WRONG: tuple[Any, ...] = (HUGE, 2**63, -1, 1.5, True, None, [], "x")
HOSTILE = [
    *(with_field(place, value) for place in (2, 3, 4, 5, 6) for value in WRONG),
    *(with_field(1, value) for value in ("", "\x00", "x" * 300, HUGE, None)),
    *(with_field(9, {name: HUGE}) for name in ("expires_at", "key", "errors", "priority", "group", "reason")),
    with_field(9, {"errors": [{"at": HUGE, "worker": "", "error_class": "", "text": ""}]}),
    with_field(9, {"key": "k", "group": "x" * 16}),
    with_field(7, {"a": HUGE}), with_field(8, "text"), with_field(8, b"x" * LARGE),
    msgspec.msgpack.encode(HUGE), b"", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000, b"x" * LARGE,
    element("most", deliveries=values.MAX_COUNT, failures=values.MAX_COUNT, redelivered=True),
]  # fmt: skip


@pytest.fixture
def server(url):
    with redis.Redis.from_url(url) as client:
        client.sadd("reliq:queues", "orders")
        yield client


def settled(app):
    stats = app.queue("orders").stats()
    return stats.ready + stats.processing + stats.delayed == 0


@pytest.mark.parametrize("options", [{}, {"threads": 4}], ids=["inline", "threads"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_worker_settles_every_one_of_them_and_goes_on(app, server, options, fails):
    ran = []

    @app.handler("orders", retry=reliq.fixed("1ms", limit=2))
    def handle(message):
        ran.append(message.id)
        if fails and message.id != "last":
            raise ValueError(message.failures)

    server.lpush(KEYS.messages, *HOSTILE, element("last"))
    with working(app, monitor=True, **options):
        eventually(lambda: "last" in ran and settled(app), timeout=60)
    counters = {name.decode(): int(count) for name, count in server.hgetall(KEYS.counters).items()}
    assert counters.get("acked", 0) + counters["dead_lettered"] == len(HOSTILE) + 1


def test_the_monitor_returns_or_buries_every_one_of_them(app, server):
    consumer = new_owner()
    server.sadd(KEYS.consumers, consumer)
    server.rpush(KEYS.processing(consumer), *HOSTILE)
    monitor = Monitor(Store(app.url))
    report = monitor.scan()
    assert report.reclaimed + report.died == len(HOSTILE)
    assert server.llen(KEYS.messages) + server.zcard(KEYS.dead) == len(HOSTILE)
    assert not server.exists(KEYS.processing(consumer))


def test_lists_and_pages_show_them(app, server):
    """Put among the dead letters by hand, and at scores that no clock has."""
    scores = [0, 1.5, -1e300, 1e300, float("inf"), float("-inf")]
    for number, raw in enumerate(HOSTILE):
        server.zadd(KEYS.dead, {raw: scores[number % len(scores)]})
        server.lpush(KEYS.messages, raw)
    seen, after = 0, None
    while seen < len(HOSTILE):
        page = app.queue("orders").dead.list(limit=10, after=after)
        seen, after = seen + len(page.letters), page.next
        assert all(letter.summary()["died_at"] <= values.MAX_TIME_MS for letter in page.letters)
    app.queue("orders").stats()
    with serving(app.url) as client:
        for path in ("/", "/queues/orders", "/queues/orders/dead", "/v1/queues/orders", "/v1/queues/orders/dead"):
            assert client.get(path).status_code == 200, path


def test_a_key_is_not_blocked_by_what_does_not_decode(app, server):
    """A script reads the key in the last bytes of an element, whatever stands in front of it."""
    consumer = new_owner()
    extra = {"key": "k", "group": "0123456789abcdef"}
    hostile = msgspec.msgpack.encode([1, "a", 1, HUGE, 0, False, 0, {}, b"", extra])
    server.hset(KEYS.active, "0123456789abcdef", "a")
    server.sadd(KEYS.consumers, consumer)
    server.rpush(KEYS.processing(consumer), hostile)
    assert Monitor(Store(app.url)).scan().died == 1
    assert not server.exists(KEYS.active)
    assert app.store.call(ops.members(KEYS.consumers)) == []


SMALLEST = 1024 * 1024  #: the smallest limit that a server can have for an argument


def of_size(size):
    return element("a", body=b"x" * (size - len(element("a", body=b"x" * 70_000)) + 70_000))


@pytest.fixture(scope="module")
def narrow():
    """A server that takes no argument of more than 1 MiB."""
    with EmbeddedRedis(settings=["--proto-max-bulk-len", str(SMALLEST)]) as server:
        yield server


@pytest.fixture
def tight(narrow):
    with redis.Redis(port=narrow.port) as client:
        client.flushall()
        client.sadd("reliq:queues", "orders")
        yield client


AS_LARGE_AS_REDIS_TAKES = [b"\xc1" * (SMALLEST - 1), of_size(SMALLEST - 1)]


@pytest.mark.parametrize("raw", AS_LARGE_AS_REDIS_TAKES, ids=["unreadable", "readable"])
def test_an_element_as_large_as_redis_takes_becomes_a_dead_letter_of_a_worker(narrow, tight, raw):
    with reliq.Reliq(narrow.url) as app:
        ran = []

        @app.handler("orders", retry=reliq.fixed("1ms", limit=2))
        def handle(message):
            ran.append(len(message.body))
            if len(message.body) > 7:
                raise ValueError("no")

        tight.rpush(KEYS.messages, raw)
        app.queue("orders").send("another")
        with working(app, lease=2.0):
            eventually(lambda: tight.zcard(KEYS.dead) == 1 and settled(app))
        assert tight.zrange(KEYS.dead, 0, -1) == [raw]
        assert 7 in ran
        assert tight.hget(KEYS.counters, "dead:decode") == b"1"
        (letter,) = app.queue("orders").dead.list()
        assert letter.size > SMALLEST - 100
        assert app.queue("orders").dead.redrive().redriven == 1
        assert tight.lrange(KEYS.messages, 0, -1) == [raw]


@pytest.mark.parametrize("raw", AS_LARGE_AS_REDIS_TAKES, ids=["unreadable", "readable"])
def test_an_element_as_large_as_redis_takes_becomes_a_dead_letter_of_a_monitor(narrow, tight, raw):
    consumer = new_owner(connected=False)
    tight.sadd(KEYS.consumers, consumer)
    tight.set(KEYS.lease(consumer), 1)
    tight.rpush(KEYS.processing(consumer), raw)
    store = Store(narrow.url)
    monitor = Monitor(store)
    eventually(lambda: monitor.scan().died == 1)
    assert tight.zrange(KEYS.dead, 0, -1) == [raw]
    assert tight.hgetall(KEYS.counters) == {b"dead:decode": b"1", b"dead_lettered": b"1"}
    store.close()
