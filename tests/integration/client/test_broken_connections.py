"""Connections that break, or lead to the wrong server, in the middle of an operation. Both clients."""

import asyncio
import contextlib
import math
import socket

import pytest
import redis

import reliq
from reliq import OutcomeUnknown, QueueFull, RedisUnavailable, aio, ops
from reliq.client.heartbeat import Heartbeat
from reliq.embedded import EmbeddedRedis
from reliq.model.found import CancelledMany
from reliq.model.keys import QueueKeys, new_owner
from reliq.ops.request import script_named
from reliq.protocol.lease import Lease
from reliq.transport.aiostore import AioStore
from reliq.transport.store import Store
from reliq_monitor.reclaim import reclaim
from tests.support.losing_proxy import LosingProxy
from tests.support.proxy import Proxy
from tests.support.turns import Monitor
from tests.support.workers import eventually

KEYS = QueueKeys("q")
LOADING = b"-LOADING Redis is loading the dataset in memory\r\n"
FULL = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
STRICT = b"-NOPERM this user has no permissions to run the 'evalsha' command\r\n"


class Refusing(Proxy):
    """Loses the answer to the next send once it is `armed`, and answers every later one with its refusal."""

    def __init__(self, port, refusal):
        super().__init__(port, request=self._note, reply=self._answer)
        self._refusal, self.armed, self._lost, self._sending = refusal, False, False, False

    def _note(self, data):
        self._sending = b"EVALSHA" in data
        return data

    def _answer(self, data):
        if not (self.armed and self._sending):
            return data
        if self._lost:
            return self._refusal
        self._lost = True
        return None


@pytest.mark.parametrize("refusal", [LOADING, FULL, STRICT], ids=["loading", "full", "forbidden"])
def test_a_refusal_after_a_lost_answer_does_not_make_it_certain(redis_server, app, face, refusal):
    with Refusing(redis_server.port, refusal) as proxy:
        queue = face(proxy.url, send_timeout=0.3).queue("q")
        for body in ("the queue is announced", "the script is loaded"):
            queue.send(body)
        proxy.armed = True
        with pytest.raises(OutcomeUnknown) as caught:
            queue.send("x", id="unsure")
    assert caught.value.ids == ("unsure",)
    assert app.queue("q").stats().ready == 3


def test_a_refusal_without_one_is_certain(redis_server, app, face):
    with Refusing(redis_server.port, FULL) as proxy:
        queue = face(proxy.url, send_timeout=0.3).queue("q")
        for body in ("the queue is announced", "the script is loaded"):
            queue.send(body)
        proxy.armed = proxy._lost = True
        with pytest.raises(QueueFull):
            queue.send("x")


class Stores:
    """A store of either face, made blocking."""

    def __init__(self, kind, runner):
        self._kind, self._runner, self._made = kind, runner, []

    def __call__(self, url, **options):
        self._made.append((Store if self._kind == "sync" else AioStore)(url, **options))
        return self._made[-1]

    def run(self, store, steps):
        answer = store.run(steps)
        return answer if self._kind == "sync" else self._runner.run(_awaited(answer))

    def close(self):
        for store in self._made:
            closing = store.close()
            if closing is not None:
                self._runner.run(closing)


async def _awaited(answer):
    return await answer


@pytest.fixture(params=["sync", "asyncio"])
def stores(request):
    with asyncio.Runner() as runner:
        stores = Stores(request.param, runner)
        yield stores
        stores.close()


def guarded(between=lambda: None, look=True):
    """Set a key in a transaction that watches it; `between` happens after the Watch."""
    yield ops.Watch(("watched",))
    between()
    if look:
        yield [ops.command("GET", "watched")]
    return (yield ops.Transaction((ops.command("SET", "watched", "by the transaction"),)))


@pytest.mark.parametrize("look", [True, False], ids=["before its look", "before its transaction"])
def test_a_connection_that_is_lost_takes_its_watch_along(stores, url, look, monkeypatch):
    monkeypatch.setattr("reliq.transport.connection._IDLE", -1)  # every use is one after an idle time
    store = stores(url)
    stores.run(store, guarded())
    with redis.Redis.from_url(url) as client:

        def lose():
            client.set("watched", "by another")
            client.client_kill_filter(_type="normal", skipme=True)

        with pytest.raises((RedisUnavailable, OutcomeUnknown)):
            stores.run(store, guarded(lose, look))
        assert client.get("watched") == b"by another"
        assert stores.run(store, guarded()) == [b"OK"]


def test_a_look_at_the_server_in_between_leaves_the_watch_standing(stores, url):
    store = stores(url)
    with redis.Redis.from_url(url) as client:

        def check():
            client.set("watched", "by another")
            store.check_again()

        assert stores.run(store, guarded(check)) is None


def test_a_look_that_is_refused_is_not_repeated_where_nothing_watches(stores, redis_server, url):
    """A server that is loading lets WATCH pass, and refuses the look."""
    refused: list[bool] = []

    def request(data):
        if b"GET" not in data or refused:
            return data
        refused.append(data)
        with redis.Redis.from_url(url) as client:
            client.set("watched", "by another")
        return data.replace(b"GET", b"GOT")

    def reply(data):
        return LOADING if b"unknown command" in data else data

    with Proxy(redis_server.port, request, reply) as proxy, pytest.raises(RedisUnavailable):
        stores.run(stores(proxy.url, timeout=0.5), guarded())
    with redis.Redis.from_url(url) as client:
        assert client.get("watched") == b"by another"


def test_a_transaction_that_is_refused_is_not_repeated_where_nothing_watches(stores, redis_server, url):
    """A replica refuses it; when it is a master again the watch has ended with the refusal."""
    refused: list[bool] = []
    with redis.Redis.from_url(url) as client:

        def request(data):
            if b"MULTI" in data and not refused:
                refused.append(data)
                client.set("watched", "by another")
                client.replicaof("127.0.0.1", "1")
            elif refused:
                client.replicaof("no", "one")
            return data

        with Proxy(redis_server.port, request) as proxy, pytest.raises(RedisUnavailable):
            stores.run(stores(proxy.url, timeout=0.5), guarded())
        client.replicaof("no", "one")
        assert refused
        assert client.get("watched") == b"by another"


def test_a_reclaim_that_loses_its_connection_takes_nothing_from_a_consumer_that_settles(stores, redis_server, app, url):
    app.queue("q").send("x")
    with app.queue("q").consumer() as consumer, redis.Redis.from_url(url) as client:
        (message,) = consumer.claim()
        client.set(KEYS.lease(consumer.id), 1)
        cuts: list[bool] = []

        def cut(data):
            if b"LRANGE" not in data or cuts:
                return data
            cuts.append(data)
            return None

        with Proxy(redis_server.port, request=cut) as proxy, pytest.raises(RedisUnavailable):
            stores.run(stores(proxy.url, timeout=0.5), reclaim(KEYS, consumer.id, 5, known_dead=False, at_once=1))
        assert cuts
        consumer.ack(message)
    assert app.queue("q").stats().ready == 0


@pytest.fixture
def failover():
    """A stable address that leads to one server, and a function after which it leads to another one."""
    with EmbeddedRedis() as first, EmbeddedRedis() as second, Proxy(first.port) as address:

        def fail_over():
            with redis.Redis(port=first.port) as client:
                client.replicaof("127.0.0.1", second.port)
            address.target = second.port

        yield address.url, fail_over, second
        second.kill()  # stopped, it would wait for the replica


def test_a_send_follows_a_failover_behind_a_stable_address(failover, face):
    url, fail_over, heir = failover
    queue = face(url).queue("q")
    queue.send("before")
    fail_over()
    queue.send("after")
    assert queue.stats().ready >= 1
    with redis.Redis(port=heir.port) as client:
        assert client.llen(KEYS.messages) >= 1


def test_what_only_reads_follows_those_that_were_refused(failover):
    url, fail_over, heir = failover
    store = Store(url)
    reader, writer = store.connection(), store.connection()
    which = ops.command("CONFIG", "GET", "port")
    store.call(which, reader)
    store.call(ops.command("PING"), writer)
    fail_over()
    store.call(ops.command("SET", "key", 1), writer)
    assert store.call(which, reader)[1] == str(heir.port).encode()
    store.close()


def test_heartbeats_and_the_monitor_follow_a_failover(failover):
    url, fail_over, heir = failover
    app, owner = reliq.Reliq(url), new_owner()
    lost: list[Lease] = []
    app.store.call(ops.register(KEYS, owner, 15.0))
    heartbeat = Heartbeat(app.store, owner, 15.0, lambda: [Lease(KEYS, owner, 15.0)], lost.append)
    monitor = Monitor(app.store)
    heartbeat.beat()
    monitor.scan()
    fail_over()
    with redis.Redis(port=heir.port) as client:
        client.set(KEYS.lease(owner), 1)
        client.zadd(KEYS.delayed, {"x": 1})
        client.sadd("reliq:queues", "q")

        def renewed():
            with contextlib.suppress(RedisUnavailable):
                heartbeat.beat()
            return int(client.get(KEYS.lease(owner)) or 0) > 1

        def promoted():
            with contextlib.suppress(RedisUnavailable):
                monitor.promote()
            return client.llen(KEYS.messages) == 1

        eventually(renewed)
        eventually(promoted)
    assert not lost
    app.close()


@pytest.mark.parametrize("error", [RuntimeError("TCPTransport closed=True"), asyncio.IncompleteReadError(b"", 1)])
@pytest.mark.parametrize("verb", ["send_packed_command", "read_response", "connect"])
def test_what_an_event_loop_says_of_a_closed_transport_is_a_lost_connection(url, app, error, verb):
    async def story():
        store = AioStore(url)
        await store.run(ops.one(ops.command("PING")))
        connections: list[socket.socket] = []

        def breaking():
            connection = make()
            connections.append(connection)
            if len(connections) == 1:
                setattr(connection, verb, raising)
            return connection

        async def raising(*_, **__):
            raise error

        await store.close()
        make, store.new_connection = store.new_connection, breaking
        assert await store.run(ops.one(ops.command("PING"))) == b"PONG"
        assert len(connections) == 2
        await store.close()

    asyncio.run(story())


def test_a_uvloop_transport_that_was_reset_is_a_lost_connection(url, app):
    uvloop = pytest.importorskip("uvloop")

    async def story():
        async with aio.Reliq(url) as sender:
            for number in range(50):
                await sender.queue("q").send(number)
                for connection in sender.store._idle:
                    connection._raw._writer.transport.abort()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
    assert app.queue("q").stats().ready == 50


@pytest.mark.parametrize("options", [{"delay": 60}, {}, {"key": "k"}])
@pytest.mark.parametrize("lost", [1, math.inf])
def test_a_cancellation_whose_answer_is_lost_is_repeated_and_says_what_it_has_done(redis_server, app, options, lost):
    """If no try gets an answer, the outcome is unknown."""
    identity = app.queue("orders").send("body", **options)
    removing = [script_named(name).sha.encode() for name in ("cancel", "tracking/sweep")]
    cuts = 0
    asked: list[bytes] = []

    def request(data: bytes) -> bytes:
        asked[:] = [data]
        return data

    def cut_when_removed(data: bytes) -> bytes | None:
        nonlocal cuts
        gone = app.queue("orders").find(identity) is None
        if not gone or cuts == lost or not any(sha in asked[0] for sha in removing):
            return data
        cuts += 1
        return None

    app.queue("orders").find(identity)  # its scripts are loaded
    with (
        Proxy(redis_server.port, request, cut_when_removed) as proxy,
        reliq.Reliq(proxy.url, send_timeout=0.3) as other,
        pytest.raises(OutcomeUnknown) if lost > 1 else contextlib.nullcontext(),
    ):
        assert other.queue("orders").cancel(identity) == "cancelled"
    assert app.queue("orders").stats().ready == 0
    assert app.queue("orders").cancel(identity) == "unknown"


def test_cancel_many_counts_what_it_has_removed_in_calls_whose_answers_are_lost(redis_server, app, face):
    orders, sweep = app.queue("orders"), script_named("tracking/sweep").sha.encode()
    orders.send_many([reliq.NewMessage(1, headers={"a": "b"}, delay=delay) for delay in (0, 60) for _ in range(30)])
    odd = iter(range(100))
    with LosingProxy(redis_server.port, lambda data: sweep in data and next(odd) % 2 > 0) as proxy:
        queue, proxy.armed = face(proxy.url).queue("orders"), True
        assert queue.cancel_many(headers={"a": "b"}) == CancelledMany(60, 0)
    assert proxy.lost > 2
    assert orders.stats().counters["cancelled"] == 60


def test_a_signal_whose_answer_is_lost_is_repeated_and_answered_as_the_first_was(redis_server, app, face):
    """It was taken, though the record has it by then; that of someone else was there before."""
    giving = script_named("steps/signal").sha.encode()
    to_lose: list[bool] = []
    with LosingProxy(redis_server.port, lambda data: giving in data and bool(to_lose) and to_lose.pop()) as proxy:
        queue, proxy.armed = face(proxy.url).queue("orders"), True
        assert queue.signal("a", "loads the script") is True
        for expected in (True, False):
            to_lose.append(True)
            assert queue.signal("a", "go", "yes") is expected
    assert proxy.lost == 2
    assert app.queue("orders").stats().counters["signalled"] == 2


def losing(names, to_lose):
    """Name the requests that run one of these scripts, once for each entry of a list."""
    scripts = [script_named(name).sha.encode() for name in names]
    return lambda data: any(sha in data for sha in scripts) and bool(to_lose) and to_lose.pop()


def test_an_operator_is_told_what_the_call_did_whose_answer_was_lost(redis_server, app, face):
    app.queue("orders").cycle.add("a", "b", "c")
    to_lose: list[bool] = []
    with LosingProxy(redis_server.port, losing(("cycle/cycle_remove", "switch_breaker"), to_lose)) as proxy:
        queue, proxy.armed = face(proxy.url).queue("orders"), True
        queue.open_breaker("1m")
        assert queue.cycle.remove("a") == 1  # both scripts are loaded
        to_lose.append(True)
        assert queue.cycle.remove("a", "b", "c") == 2
        to_lose.append(True)
        assert queue.close_breaker() is True
        assert queue.close_breaker() is False
    assert proxy.lost == 2


def test_a_subscriber_is_told_what_the_call_did_whose_answer_was_lost(redis_server, app, face):
    to_lose: list[bool] = []
    with LosingProxy(redis_server.port, losing(("topics/bind",), to_lose)) as proxy:
        far, proxy.armed = face(proxy.url), True
        assert far.subscribe("mailer", "order.#") is True  # the script is loaded
        for change, pattern in ((far.subscribe, "stock.#"), (far.unsubscribe, "stock.#")):
            to_lose.append(True)
            assert change("mailer", pattern) is True
            assert change("mailer", pattern) is False
    assert proxy.lost == 2


RECEIPTS = ("receipts/set_visibility", "receipts/purge_received")


@pytest.mark.parametrize("track", [False, True], ids=["plain", "tracked"])
def test_a_receiver_is_told_what_the_call_did_whose_answer_was_lost(redis_server, app, face, track):
    near = app.queue("orders")
    near.configure(track=track)
    near.send_many(range(5))
    first, *others = [one.receipt for one in near.receive(limit=5)]
    to_lose: list[bool] = []
    with LosingProxy(redis_server.port, losing(RECEIPTS, to_lose)) as proxy:
        queue, proxy.armed = face(proxy.url).queue("orders"), True
        assert queue.delete_received([first]) == ["deleted"]  # the scripts are loaded
        assert queue.change_visibility([(others[0], 60)]) == ["changed"]
        assert queue.delete_received(others[:2]) == ["deleted", "deleted"]
        for seconds in (90, 0):
            to_lose.append(True)
            assert queue.change_visibility([(others[2], seconds)]) == ["changed"]
        assert queue.change_visibility([(others[2], 0)]) == ["expired"]
        to_lose.append(True)
        assert queue.purge_received() == 1
    assert proxy.lost == 3
    assert near.stats().ready == 1


def test_a_visibility_that_was_ended_leaves_the_next_receiver_its_message(redis_server, app, face):
    """The call whose answer was lost is repeated after another receiver has taken the message."""
    near, asked = app.queue("orders"), list[bool]()
    taken: list[reliq.Received] = []
    near.send("x")
    (received,) = near.receive()
    sha = script_named("receipts/set_visibility").sha.encode()

    def note(data: bytes) -> bytes:
        asked.extend([True] if sha in data else [])
        return data

    def lose(data: bytes) -> bytes | None:
        if not asked or taken:
            return data
        taken.extend(near.receive(visibility=60))
        return None

    with Proxy(redis_server.port, request=note, reply=lose) as proxy:
        app.store.call([ops.command("SCRIPT", "LOAD", script_named("receipts/set_visibility").source)])
        queue = face(proxy.url).queue("orders")
        assert queue.change_visibility([(received.receipt, 0)], late=True) == ["changed"]
    assert [one.receives for one in taken] == [2]
    assert near.delete_received([taken[0].receipt]) == ["deleted"]


def test_a_lost_lease_is_counted_once(redis_server, app, client, face):
    app.queue("orders").send_many(["a", "b"])
    with LosingProxy(redis_server.port, lambda data: b"HINCRBY" in data and b"lease_lost" in data) as proxy:
        with face(proxy.url).queue("orders").consumer(lease=3600) as consumer:
            consumer.claim()
            client.delete(*client.keys("*:lease:*"))
            proxy.armed = True
            while not (claimed := consumer.claim()):
                pass
            assert claimed
        assert proxy.lost == 1
    assert app.queue("orders").stats().counters["lease_lost"] == 1
