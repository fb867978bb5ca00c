"""A real Redis Cluster of three masters: queues lie on any of them, and everything works as on one server."""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from types import SimpleNamespace

import pytest
import redis

import reliq
from reliq import OutcomeUnknown, QueueFull, RedisUnavailable, RedisUnsuitable, Retry, aio, fixed, ops
from reliq.client.heartbeat import Heartbeat
from reliq.contract import values
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import QUEUES as QUEUES_KEY
from reliq.model.keys import TOPICS, QueueKeys, new_owner
from reliq.ops.topology import WATCHED, slot_of
from reliq.protocol.lease import Lease
from reliq.protocol.partial_reads import every_queue
from reliq.protocol.stats import read_queues
from reliq.transport.aiostore import AioStore
from reliq.transport.errors import TryAgain
from reliq.transport.server import addressed
from reliq.transport.store import Store
from reliq_monitor import MonitorThread
from reliq_monitor.audit import audit, balanced
from tests.support.cluster import await_epochs
from tests.support.ports import free_port_with_bus
from tests.support.turns import Monitor
from tests.support.workers import eventually, working

QUEUES = [f"q{number}" for number in range(12)]  # on all three nodes


@pytest.fixture(scope="module")
def nodes():
    settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedRedis(settings=settings, port=free_port_with_bus())) for _ in range(3)]
        clients = [stack.enter_context(redis.Redis(port=server.port)) for server in servers]
        step = 16384 // 3 + 1
        for place, client in enumerate(clients):
            client.execute_command("CLUSTER", "ADDSLOTS", *range(place * step, min((place + 1) * step, 16384)))
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", clients[0].connection_pool.connection_kwargs["port"])
        eventually(lambda: complete(servers), timeout=60)
        yield servers


def complete(servers):
    """Whether each node knows who has which of all the slots."""
    infos = []
    for server in servers:
        with redis.Redis(port=server.port) as client:
            infos.append(str(client.execute_command("CLUSTER", "INFO")))
    return all("cluster_state:ok" in one and "cluster_slots_ok:16384" in one for one in infos)


@pytest.fixture
def cluster_url(nodes):
    for server in nodes:
        with redis.Redis(port=server.port) as client:
            client.flushall()
    return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in nodes)


@pytest.fixture
def app(cluster_url):
    app = reliq.Reliq(cluster_url)
    yield app
    app.close()


def test_the_slot_of_a_key_is_that_of_its_tag():
    """Values of CLUSTER KEYSLOT."""
    assert slot_of("123456789") == 12739
    assert slot_of("reliq:{orders}:messages") == slot_of("orders") == slot_of("reliq:{orders}:lease:c1")
    assert slot_of("a{}b") == slot_of("a{}b") != slot_of("ab")


def test_queues_on_all_nodes(app, nodes):
    for name in QUEUES:
        app.queue(name).send_many([name] * 3)
    assert app.queues() == sorted(QUEUES)
    sizes = []
    for server in nodes:
        with redis.Redis(port=server.port) as client:
            sizes.append(len(list(client.scan_iter("*:messages"))))
    assert sum(sizes) == len(QUEUES)
    assert min(sizes) > 0
    readings = app.store.run(read_queues(app.store.run(every_queue())))
    assert [(one.queue, one.ready) for one in readings] == [(name, 3) for name in sorted(QUEUES)]
    for name in QUEUES:
        with app.queue(name).consumer() as consumer:
            consumer.ack(*consumer.claim(limit=3, wait=5))
        assert app.queue(name).stats().counters["acked"] == 3


def test_large_bodies_on_all_nodes(app):
    for name in QUEUES:
        app.subscribe(name, "large.#")
        app.queue(name).send(b"s" * 5_000)
    app.publish("large.one", b"p" * 5_000)
    for name in QUEUES:
        with app.queue(name).consumer() as consumer:
            messages = consumer.claim(limit=2, wait=5)
            assert [message.body for message in messages] == [b"s" * 5_000, b"p" * 5_000]
            consumer.ack(*messages)
        assert app.store.call(ops.command("EXISTS", QueueKeys(name).bodies)) == 0


def test_asyncio_sends_to_and_claims_from_every_node(cluster_url):
    async def story():
        async with aio.Reliq(cluster_url) as app:
            for name in QUEUES:
                await app.queue(name).send(name)
            for name in QUEUES:
                async with app.queue(name).consumer() as consumer:
                    (message,) = await consumer.claim(wait=5)
                    await consumer.ack(message)
            return [(await app.queue(name).stats()).counters["acked"] for name in QUEUES]

    assert asyncio.run(story()) == [1] * len(QUEUES)


def test_batches_results_find_and_cancel(app):
    ends = []
    for name in QUEUES[:4]:
        app.queue(name).configure(track=True, history="1h")
        app.handler(name, result="1h")(lambda message: message.json())
    app.handler("ends")(lambda message: ends.append((message.body, message.headers["batch-handled"])))
    with app.batch(on_done=("ends", "outer")) as batch:
        ids = [batch.send(name, number) for number, name in enumerate(QUEUES[:4])]
        later = batch.send(QUEUES[0], "x", delay="1h")
        with batch.batch(on_done=("ends", "inner")) as inner:
            inner.send_many(QUEUES[1], range(3))
    assert [app.find(one).queue for one in ids] == QUEUES[:4]
    assert app.queue(QUEUES[0]).find(later).place == "delayed"
    assert app.queue(QUEUES[0]).cancel(later)
    with working(app, monitor=True):
        results = [app.queue(name).result(one, wait=20) for name, one in zip(QUEUES, ids, strict=False)]
        assert results == [0, 1, 2, 3]
        eventually(lambda: len(ends) == 2)
    assert ends == [(b"inner", "3"), (b"outer", "7")]  # the 3 of the inner batch count too
    assert app.batches() == []
    assert app.queue(QUEUES[0]).find(ids[0]).place == "done"


def test_a_worker_with_retries_delays_and_dead_letters(app):
    seen = []
    for name in QUEUES[:4]:

        @app.handler(name, retry=fixed(0.05, limit=1))
        def work(message):
            seen.append(message.queue)
            if message.body == b"bad":
                raise Retry

    with working(app, monitor=True):
        for name in QUEUES[:4]:
            app.queue(name).send("good", delay=0.05)
            app.queue(name).send("bad")
        eventually(lambda: all(app.queue(name).stats().dead == 1 for name in QUEUES[:4]))
        eventually(lambda: all(app.queue(name).stats().counters.get("acked") == 1 for name in QUEUES[:4]))
        for name in QUEUES[:4]:
            assert app.queue(name).dead.redrive().redriven == 1
        eventually(lambda: len(seen) == 4 * 5)
    assert balanced(app.store.run(audit()))


def test_what_a_vanished_consumer_held_comes_back(app):
    for name in QUEUES:
        keys, owner = QueueKeys(name), new_owner()
        app.queue(name).send(name)
        app.store.call(ops.register(keys, owner, 15.0))
        app.store.call(ops.claim(keys, owner, 15.0, 1))
        app.store.call(ops.command("SET", keys.lease(owner), 1))
    monitor = Monitor(app.store)
    eventually(lambda: monitor.scan() and all(app.queue(name).stats().ready == 1 for name in QUEUES))


def test_a_monitor_sees_to_every_node(app):
    for name in QUEUES:
        app.queue(name).send(name, delay=0.001)
        app.store.call(ops.command("HSET", QueueKeys(name).producers, "silent", "1 1"))
    app.queue(QUEUES[0]).send("far ahead", delay=3600)
    monitor = Monitor(app.store)
    promoted = itertools.accumulate(monitor.promote()[0] for _ in itertools.count())
    eventually(lambda: next(promoted) == len(QUEUES))
    assert monitor.promote() == (0, None)
    monitor.tidy()
    for name in QUEUES:
        assert app.store.call(ops.command("HEXISTS", QueueKeys(name).producers, "silent")) == 0
    assert (monitor.finish_staged(), monitor.ask_undecided()) == (0, (0, 0))


def test_publish_reaches_queues_on_all_nodes(app):
    for name in QUEUES:
        app.subscribe(name, "order.#")
    assert list(app.publish("order.created", 1)) == sorted(QUEUES)
    assert [app.queue(name).stats().ready for name in QUEUES] == [1] * len(QUEUES)


def test_where_one_is_full_the_caller_knows_who_got_it(app):
    for name in QUEUES:
        app.subscribe(name, "order.#")
    app.queue("q3").configure(max_length=1)
    app.publish("order.created", 1)
    with pytest.raises(QueueFull, match="'q3' holds 1 of at most 1 messages; only") as caught:
        app.publish("order.created", 2)
    ready = {name for name in QUEUES if app.queue(name).stats().ready == 2}
    assert set(caught.value.reached) == ready
    assert "q3" not in ready


@pytest.mark.parametrize("body", [b"hello", b"h" * 5_000], ids=["small", "large"])
def test_slots_that_move_are_followed(app, nodes, body):
    app.queue("other").send(1)  # now it knows where everything is
    slot = slot_of("moving")
    clients = [redis.Redis(port=server.port) for server in nodes]
    owners = [client.execute_command("CLUSTER", "MYID") for client in clients]
    owner = next(place for place, client in enumerate(clients) if _serves(client, slot))
    heir = (owner + 1) % 3

    def move(source: int, target: int) -> None:
        # An importing node takes the slot with a later epoch: else a late message of the other one gives it back.
        await_epochs(clients)
        clients[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", owners[source])
        for client in (clients[target], *clients):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", owners[target])

    move(owner, heir)
    try:
        app.queue("moving").send(body)
        assert clients[heir].exists(QueueKeys("moving").messages)
        assert app.queue("moving").stats().ready == 1
    finally:
        clients[heir].flushall()
        move(heir, owner)
        for client in clients:
            client.close()


@pytest.mark.parametrize("endpoint", ["ip", "unknown-endpoint"])
@pytest.mark.parametrize("face", ["sync", "asyncio"])
def test_a_lease_is_renewed_while_its_slot_is_moved(app, nodes, cluster_url, face, endpoint):
    """The slot of `moving` goes to the next node: the lease is renewed before, between and after."""
    keys, owner = QueueKeys("moving"), new_owner()
    app.store.call(ops.register(keys, owner, 15.0))
    slot = slot_of("moving")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(redis.Redis(port=server.port)) for server in nodes]
        runner = stack.enter_context(asyncio.Runner())
        renew = renewing(face, cluster_url, runner, keys, owner, stack)
        for client in clients if endpoint != "ip" else ():  # it names no host: that is the one that was asked
            if not client.config_get("cluster-preferred-endpoint-type"):
                pytest.skip("Redis before 7 always names the host")
            client.config_set("cluster-preferred-endpoint-type", endpoint)
            stack.callback(client.config_set, "cluster-preferred-endpoint-type", "ip")
        ids = [client.execute_command("CLUSTER", "MYID") for client in clients]
        source = next(place for place, client in enumerate(clients) if _serves(client, slot))
        heir = (source + 1) % 3
        await_epochs(clients)
        clients[heir].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        clients[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[heir])
        lease = keys.lease(owner)
        try:
            put_back(clients[source], lease)
            assert renew()
            assert is_renewed(clients[source], lease)
            put_back(clients[source], lease)
            clients[source].execute_command("MIGRATE", "127.0.0.1", nodes[heir].port, lease, 0, 60_000)
            with pytest.raises(redis.exceptions.AskError):
                clients[source].execute_command("GET", lease)
            assert renew()
            clients[source].execute_command("MIGRATE", "127.0.0.1", nodes[heir].port, keys.consumers, 0, 60_000)
            for client in (clients[heir], *clients):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[heir])
            assert is_renewed(clients[heir], lease)
            put_back(clients[heir], lease)
            assert renew()
            assert is_renewed(clients[heir], lease)
        finally:
            clients[heir].flushall()
            if not _serves(clients[source], slot):  # with a later epoch than that of the heir's claim
                await_epochs(clients)
                clients[source].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[heir])
            for client in (clients[source], *clients):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[source])


def renewing(face, cluster_url, runner, keys, owner, stack):
    """A function that renews the lease once, by a store of the face."""
    beat = ops.heartbeat(keys, owner, 15.0)
    if face == "sync":
        store = stack.enter_context(contextlib.closing(Store(cluster_url)))
        return lambda: store.call([beat])[0]
    store = AioStore(cluster_url)
    stack.callback(lambda: runner.run(store.close()))
    return lambda: runner.run(store.run(ops.one(beat)))


def put_back(client, lease):
    """Let the lease end when it would have ended had it not been renewed for ten minutes."""
    client.set(lease, int(client.get(lease)) - 600_000)


def is_renewed(client, lease):
    """Whether it ends later than ten minutes ago: on a busy machine it may be over by now."""
    seconds, _ = client.time()
    return int(client.get(lease)) > (seconds - 300) * 1000


def _serves(client, slot):
    try:
        client.execute_command("GET", "{moving}")
        return True
    except redis.exceptions.MovedError:
        return False


@pytest.mark.parametrize("first", [True, False], ids=["its queue first", "its queue last"])
def test_a_publish_that_reached_one_node_and_not_the_other_is_no_certain_failure(app, nodes, cluster_url, first):
    # Not a node that every publish asks for the queues there are, and for what they are bound to.
    asked = {slot_of(key) // (16384 // 3 + 1) for key in (QUEUES_KEY, TOPICS)}
    victim, other = nodes[min({0, 1, 2} - asked)], nodes[min(asked)]
    away, here = ([name for name in QUEUES if on(server, name)] for server in (victim, other))
    names = next((a, h) for a in away for h in here if (a < h) == first)
    for name in names:
        app.subscribe(name, "order.#")
    impatient = reliq.Reliq(cluster_url, send_timeout=0.5)
    victim.stop()
    try:
        with pytest.raises(RedisUnavailable if first else OutcomeUnknown):
            impatient.publish("order.created", 1)
        assert app.queue(names[1]).stats().ready == (0 if first else 1)
    finally:
        victim.start()
        eventually(lambda: complete(nodes), timeout=60)
        impatient.close()


def on(server, name):
    """Whether the server has the queue's slot."""
    with redis.Redis(port=server.port) as client:
        try:
            client.get(QueueKeys(name).messages)
        except redis.exceptions.MovedError:
            return False
    return True


def test_what_follows_a_watch_goes_to_no_node_that_does_not_watch():
    """The slot has moved in between: the transaction would go unguarded there."""
    connections = {("here", 1): SimpleNamespace(watching=True), ("there", 1): SimpleNamespace(watching=False)}
    assert addressed(("here", 1), connections) == addressed(WATCHED, connections) == ("here", 1)
    with pytest.raises(TryAgain):
        addressed(("there", 1), connections)


def test_a_node_that_hangs_stops_the_heartbeats_of_no_other(app, nodes):
    """Its answer takes longer to be given up than these leases last."""
    leases = [Lease(QueueKeys(name), new_owner(), 2.0) for name in QUEUES]
    lost: list[Lease] = []
    for lease in leases:
        app.store.call(ops.register(lease.keys, lease.consumer, lease.length))
    heartbeat = Heartbeat(app.store, new_owner(), 2.0, lambda: leases, lost.append)
    heartbeat.start()
    os.kill(nodes[1].pid, signal.SIGSTOP)
    stopped = time.time() * 1000
    try:
        with redis.Redis(port=nodes[0].port) as one, redis.Redis(port=nodes[2].port) as other:

            def deadlines():
                found = [client.get(key) for client in (one, other) for key in client.scan_iter("*:lease:*")]
                assert len(found) > 2
                assert min(map(int, found)) > time.time() * 1000
                return min(map(int, found))

            eventually(lambda: deadlines() > stopped + 8000)
    finally:
        os.kill(nodes[1].pid, signal.SIGCONT)
        heartbeat.stop()
        eventually(lambda: complete(nodes), timeout=60)


def test_a_wrong_url_says_what_to_write(nodes, url):
    with pytest.raises(RedisUnsuitable, match="node of a Redis Cluster: use redis\\+cluster://"):
        reliq.Reliq(nodes[0].url).queue("q").send(1)
    with pytest.raises(RedisUnsuitable, match="is not a cluster: use redis://"):
        reliq.Reliq(url.replace("redis://", "redis+cluster://").removesuffix("/0")).queue("q").send(1)
    with pytest.raises(reliq.InvalidSetting, match="a port is not valid"):
        reliq.Reliq("redis+cluster://here:there")


def test_a_node_that_is_away_stops_only_its_own_queues(app, nodes, cluster_url):
    for name in QUEUES:
        app.queue(name).send(1)
    # Not the node of the set of all queues: partitions/test_names_away.py takes that one away.
    victim = nodes[0] if slot_of(QUEUES_KEY) > 16384 // 3 + 1 else nodes[2]
    impatient = reliq.Reliq(cluster_url, send_timeout=0.2)
    with redis.Redis(port=victim.port) as client:
        theirs = {key.decode().split("{")[1].split("}")[0] for key in client.scan_iter("*:messages")}
    assert theirs
    victim.stop()
    try:
        for name in QUEUES:
            if name in theirs:
                with pytest.raises(RedisUnavailable):
                    impatient.queue(name).send(2)
            else:
                impatient.queue(name).send(2)
    finally:
        victim.start()
        eventually(lambda: complete(nodes), timeout=60)
    for name in theirs:
        app.queue(name).send(2)
    assert [app.queue(name).stats().ready for name in QUEUES] == [2] * len(QUEUES)
    impatient.close()


@pytest.mark.timeout(300)
def test_a_node_that_hangs_stops_no_duty_for_the_queues_of_the_others(app, cluster_url, nodes, monkeypatch):
    monkeypatch.setattr(values, "SOCKET_MARGIN", 0.5)  # the monitor gives up the answers of the node sooner
    step = 16384 // 3 + 1
    others = [name for name in QUEUES if slot_of(QueueKeys(name).jobs) // step != 1]
    for name in QUEUES:
        app.queue(name).send("x", delay=3600)
    thread = MonitorThread(Store(cluster_url))
    thread.start()
    try:
        eventually(lambda: thread.monitor.state().leading)
        os.kill(nodes[1].pid, signal.SIGSTOP)
        for _ in range(2):
            before = {name: app.queue(name).stats().ready for name in others}
            for name in others:
                app.queue(name).send("due", delay=0.1)
            eventually(lambda: all(app.queue(name).stats().ready > before[name] for name in others), timeout=120)  # noqa: B023
        eventually(lambda: {duty for duty, _ in thread.monitor.state().failing} & {"node"})
    finally:
        os.kill(nodes[1].pid, signal.SIGCONT)
        thread.stop()
