"""Claiming by hand from a queue with partitions: one that fails stops no other, and nothing is forgotten."""

import contextlib
import re
import threading
from functools import partial

import pytest
import redis

import reliq
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.errors import RedisUnavailable
from reliq.model.keys import QueueKeys, process_of
from reliq.ops.topology import slot_of
from reliq.protocol import claiming
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.lease import Trust
from reliq.protocol.stats import stats_of
from tests.support.cluster import Cluster
from tests.support.crash import crash
from tests.support.fleet import wait
from tests.support.losing_proxy import LosingProxy, scripts_of
from tests.support.turns import Monitor
from tests.support.workers import eventually

COUNT = 12
NAMES = ["orders", *(f"orders@partition.{number}" for number in range(1, 4))]


@pytest.fixture
def away(cluster):
    """Kill a node until the end of the test."""
    killed = []

    def kill(server):
        killed.append(server)
        crash(server)

    yield kill
    for server in killed:
        server.start()
    wait(cluster.whole, "the cluster after a node was away")


@pytest.fixture
def soon(monkeypatch):
    """Let what failed be tried again at once."""
    monkeypatch.setattr(claiming, "_AGAIN", 0.0)


def names_of(app: reliq.Reliq, queue: str) -> list[str]:
    return app.store.call(ops.layout(QueueKeys(queue))).every(queue)


def held_of(app: reliq.Reliq, names: list[str]) -> int:
    return sum(app.store.run(stats_of(QueueKeys(name))).processing for name in names)


def got_of(messages, names) -> set[str]:
    """Return the ids of the messages from these partitions."""
    return {message.id for message in messages if message.holder.keys.queue in names}


def claimed(consumer):
    messages = consumer.claim(limit=100, wait=5)
    assert messages
    return messages


def inner(consumer):
    return getattr(consumer, "inner", consumer)


@contextlib.contextmanager
def half_moved(cluster: Cluster, name: str):
    """Begin to move the slot of a partition, its config first; end that after the context."""
    source, slot = cluster.master_of(name), slot_of(name)
    target = next(one for one in cluster.masters() if one is not source)
    with redis.Redis(port=source.port) as old, redis.Redis(port=target.port) as new:
        heir = new.execute_command("CLUSTER", "MYID")
        new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", old.execute_command("CLUSTER", "MYID"))
        old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", heir)
        old.execute_command("MIGRATE", "127.0.0.1", target.port, QueueKeys(name).config, 0, 5000)
        yield
        while keys := old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            old.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for one in (new, old):
            one.execute_command("CLUSTER", "SETSLOT", slot, "NODE", heir)


@pytest.mark.parametrize("place", [0, 5], ids=["first partition", "another one"])
def test_what_was_claimed_before_a_partition_failed_is_returned(face, cluster, soon, place):
    with reliq.Reliq(cluster.url) as app:
        queue = f"moving{place}-{face.__name__}"
        app.queue(queue).configure(partitions=COUNT)
        names = names_of(app, queue)
        sent = app.queue(queue).send_many(["body"] * 100 * COUNT)
        others = [name for name in names if name != names[place]]
        with face(cluster.url, send_timeout=1).queue(queue).consumer() as consumer:
            got = consumer.claim(limit=10)  # it has read which partitions there are
            with half_moved(cluster, names[place]):
                while len(got_of(got, others)) < 100 * len(others):
                    got += claimed(consumer)
                assert held_of(app, others) == len(got_of(got, others))
            while len(got) < len(sent):
                got += claimed(consumer)
            consumer.ack(*got)
        assert sorted(message.id for message in got) == sorted(sent)
        assert held_of(app, names) == 0


@pytest.mark.parametrize("first", [True, False], ids=["of the first partition", "of others"])
def test_living_nodes_give_messages_while_one_node_is_away(face, cluster, away, first):
    with reliq.Reliq(cluster.url) as app:
        queue = f"away{first}-{face.__name__}"
        app.queue(queue).configure(partitions=COUNT)
        names = names_of(app, queue)
        app.queue(queue).send_many(["body"] * 100 * COUNT)
        victim = cluster.master_of(queue)
        if not first:
            victim = next(one for one in cluster.masters() if one is not victim)
        there = {name for name in names if cluster.master_of(name) is not victim}
        with (
            contextlib.suppress(RedisUnavailable),
            face(cluster.url, send_timeout=1).queue(queue).consumer() as consumer,
        ):
            got = consumer.claim(limit=10)  # it has read which partitions there are
            away(victim)
            while len(got_of(got, there)) < 100 * len(there):
                got += claimed(consumer)
            assert consumer.claim() == []
            ids = got_of(got, there)
        assert len(ids) == 100 * len(there)  # else a claim has raised


def test_if_no_partition_can_be_reached_the_claim_says_so(face):
    with EmbeddedRedis() as server:
        queue = face(server.url, send_timeout=0.2).queue("orders")
        queue.configure(partitions=4)
        refused = 0
        with contextlib.suppress(RedisUnavailable), queue.consumer() as consumer:
            assert consumer.claim() == []
            server.kill()
            for _ in range(3):
                with pytest.raises(RedisUnavailable):
                    consumer.claim(wait=0.1)
                refused += 1
        assert refused == 3


def test_an_interrupt_in_a_later_partition_forgets_nothing_that_was_claimed_before(face, monkeypatch):
    queue = face().queue("orders")
    queue.configure(partitions=4)
    sent = queue.send_many(["body"] * 400)
    with queue.consumer() as consumer:
        (first,) = consumer.claim()
        parts = inner(consumer)._holdings
        kind = type(parts["orders"])
        claim, claimed = kind.claim, []

        def interrupted(part, *arguments):
            claimed.append(part)
            if len(claimed) == 3:
                raise KeyboardInterrupt
            return claim(part, *arguments)

        monkeypatch.setattr(kind, "claim", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.claim(limit=400)
        monkeypatch.undo()
        got = [first.id]
        while messages := consumer.claim(limit=400):
            got += [message.id for message in messages]
        assert sorted(got) == sorted(sent)


def test_messages_whose_claim_fails_after_they_were_taken_come_with_the_next_claim(face, monkeypatch):
    queue = face().queue("orders")
    sent = queue.send_many(["body"] * 3)
    with queue.consumer() as consumer:
        part = inner(consumer)._first
        consumer.claim(limit=1)

        def away():
            raise RedisUnavailable("its node is away")

        class Ended(Trust):
            def renewed(self, sent_at):
                pass

        monkeypatch.setattr(part, "heartbeat", away)
        monkeypatch.setattr(part.steps, "trust", Ended(part.steps.lease))
        with pytest.raises(RedisUnavailable):
            consumer.claim(limit=2)
        monkeypatch.undo()
        assert sorted(message.id for message in consumer.claim(limit=2)) == sorted(sent[1:])


def test_what_a_call_without_an_answer_has_taken_is_handed_out_though_its_partition_is_empty(face, client):
    queue = face().queue("orders")
    queue.configure(partitions=4)
    with queue.consumer() as consumer:
        assert consumer.claim() == []
        part = inner(consumer)._holdings["orders@partition.2"]
        for _ in range(4):
            queue.send("body")
        consumer.ack(*consumer.claim(limit=4))
        sent = [queue.send("body") for _ in range(4)]
        client.lmove(part.keys.messages, part.keys.processing(part.id), "RIGHT", "LEFT")
        part.steps.connected(named=True)  # as after a lost connection
        assert sorted(message.id for message in consumer.claim(limit=4)) == sorted(sent)


def test_a_partition_whose_answers_are_lost_keeps_its_messages_and_stops_no_other(face, app, redis_server, soon):
    app.queue("orders").configure(partitions=4)
    sent = app.queue("orders").send_many(["body"] * 400)
    silent, others = NAMES[2], [*NAMES[:2], NAMES[3]]
    with LosingProxy(redis_server.port, scripts_of(silent)) as proxy:
        with face(proxy.url, send_timeout=0.5).queue("orders").consumer() as consumer:
            got = consumer.claim(limit=10)  # it has read which partitions there are
            proxy.armed = True
            while len(got_of(got, others)) < 300:
                got += claimed(consumer)
            consumer.claim(limit=10)
            assert proxy.lost
            proxy.armed = False
            while len(got) < 400:
                got += claimed(consumer)
            consumer.ack(*got)
        assert sorted(message.id for message in got) == sorted(sent)
    assert app.queue("orders").stats().counters["acked"] == 400
    assert held_of(app, NAMES) == 0


def test_a_claim_outlasts_answers_of_all_partitions_that_are_lost(face, app, redis_server, soon):
    app.queue("orders").configure(partitions=2)
    names = names_of(app, "orders")
    sent = [app.queue("orders").send("body") for _ in range(20)]

    def lost(data: bytes) -> bool:
        return proxy.lost < 24 and any(scripts_of(name)(data) for name in names)

    with LosingProxy(redis_server.port, lost) as proxy:
        with face(proxy.url, send_timeout=30).queue("orders").consumer() as consumer:
            proxy.armed = True
            got: list[reliq.Message] = []
            while len(got) < 20:
                got += consumer.claim(limit=20)
            consumer.ack(*got)
        assert proxy.lost == 24
    assert sorted(message.id for message in got) == sorted(sent)
    assert app.queue("orders").stats().counters["acked"] == 20


def test_who_leaves_without_an_answer_from_one_partition_has_left_the_others(face, app, redis_server, client, caplog):
    app.queue("orders").configure(partitions=4)
    app.queue("orders").send_many(["body"] * 400)
    with LosingProxy(redis_server.port, scripts_of(NAMES[2])) as proxy:
        with face(proxy.url, send_timeout=0.5).queue("orders").consumer() as consumer:
            consumer.ack(*consumer.claim(limit=400))
            assert [client.scard(QueueKeys(name).consumers) for name in NAMES] == [1, 1, 1, 1]
            proxy.armed = True
        assert proxy.lost
    assert [client.scard(QueueKeys(name).consumers) for name in (*NAMES[:2], NAMES[3])] == [0, 0, 0]
    assert "not_unregistered queue=orders@partition.2" in caplog.text
    assert app.queue("orders").stats().counters["acked"] == 400


def test_who_leaves_while_redis_is_away_waits_for_it_once(face, monkeypatch):
    """Each partition waited for Redis in its turn: 16 of them for more than a minute, if Redis hung."""
    tried, leave = [], ConsumerSteps.leave

    def try_it(steps):
        tried.extend([steps.keys.queue] * steps.alive)
        return leave(steps)

    monkeypatch.setattr(ConsumerSteps, "leave", try_it)
    with EmbeddedRedis() as server:
        app = face(server.url, send_timeout=0.2)
        app.queue("orders").configure(partitions=4)
        app.queue("orders").send_many(["body"] * 400)
        with pytest.raises(reliq.ReliqError), app.queue("orders").consumer() as consumer:  # noqa: PT012
            got: list[reliq.Message] = []
            while len(got) < 400:
                got += claimed(consumer)
            server.stop()
    assert tried in (NAMES[:1], NAMES[:2])  # a call that was sent before may have been carried out


def test_a_heartbeat_by_hand_renews_the_other_leases_if_a_partition_fails(face, monkeypatch):
    queue = face().queue("orders")
    queue.configure(partitions=4)
    with queue.consumer() as consumer:
        consumer.claim()
        renewed = []
        for name, part in inner(consumer)._holdings.items():

            def beat(name=name):
                renewed.append(name)
                if name == "orders":
                    raise RedisUnavailable("its node is away")
                return done(answer=True) if hasattr(consumer, "inner") else True

            monkeypatch.setattr(part, "heartbeat", beat)
        with pytest.raises(RedisUnavailable):
            consumer.heartbeat()
        assert sorted(renewed) == sorted(NAMES)
        monkeypatch.undo()


async def done(answer):
    return answer


def test_many_partitions_share_connections_and_a_heartbeat_and_after_fewer_the_leases_of_the_others_go(
    face, url, client
):
    with reliq.Reliq(url) as app:
        orders, monitor = app.queue("orders"), Monitor(app.store)
        orders.configure(partitions=8)
        threads, earlier = threading.active_count(), connections_of_consumers(client)
        queue = face().queue("orders")
        with queue.consumer(lease=30 if hasattr(queue, "inner") else 3) as consumer:
            orders.send_many(["body"] * 800)
            held = [message for _ in range(8) for message in consumer.claim(limit=100)]
            left = next(message for message in held if message.holder.keys.queue == "orders@partition.3")
            consumer.ack(*(message for message in held if message is not left))
            assert len(connections_of_consumers(client) - earlier) <= 3
            assert threading.active_count() <= threads + 1
            orders.configure(partitions=2)

            def after_look() -> list[str]:
                monitor.scan()
                monitor.tend_partitions()
                inner(consumer)._homes._read_at = float("-inf")
                assert consumer.claim() == []
                return sorted(inner(consumer)._holdings)

            eventually(lambda: after_look() == NAMES)  # the last one that holds a message keeps those before it
            consumer.ack(left)
            eventually(lambda: after_look() == NAMES[:2])
            gone = [key.decode() for key in client.scan_iter() if re.search(r"@partition.[2-9]}", key.decode())]
            assert {key.partition("}:")[2].partition(":")[0] for key in gone} == {"config", "producers"}
            with pytest.warns(RuntimeWarning, match="was settled before"):
                consumer.ack(*held)  # to settle a message again is no error


def connections_of_consumers(client) -> set[str]:
    """Return the connections that consumers have."""
    return {one["id"] for one in client.client_list() if one["name"].startswith("reliq:c")}


def test_a_consumer_that_vanishes_with_a_message_of_each_partition_is_no_proof_against_any(face, app, client):
    """None of them was alone: which one was running is not known."""
    app.queue("orders").configure(partitions=4, max_deliveries=1)
    for number in range(20):  # each in a partition that its id decides
        app.queue("orders").send(number)
    vanishing = face().queue("orders").consumer()
    with vanishing as consumer:
        held = [message for _ in range(4) for message in consumer.claim(limit=1)]
        assert sorted(message.holder.keys.queue for message in held) == sorted(NAMES)
        for part in inner(consumer)._holdings.values():
            part.steps.end_life()  # nothing is given back
    for name in client.scan_iter("*:lease:*"):
        client.set(name, 1)
    monitor = Monitor(app.store)
    assert (monitor.scan().reclaimed, monitor.scan().died) == (4, 0)
    assert {message.deliveries for message in claimed_of(app)} == {0}


def claimed_of(app):
    with app.queue("orders").consumer() as consumer:
        messages = consumer.claim(limit=100)
        consumer.ack(*messages)
        return messages


def test_a_partition_that_comes_back_has_a_consumer_with_another_id(face, app):
    """A request of the former one that arrives late must not reach the list of the new one."""
    orders, monitor = app.queue("orders"), Monitor(app.store)
    queue, seen = face().queue("orders"), list[str]()
    with queue.consumer() as consumer:

        def has_followed(number: int) -> bool:
            monitor.scan()
            monitor.tend_partitions()
            inner(consumer)._homes._read_at = float("-inf")
            assert consumer.claim() == []
            return len(inner(consumer)._holdings) == number

        for partitions in (2, 1, 2):
            orders.configure(partitions=partitions)
            eventually(partial(has_followed, partitions))
            seen += [part.id for name, part in inner(consumer)._holdings.items() if name != "orders"]
        assert len(set(seen)) == 2
        assert {process_of(one) for one in seen} == {process_of(consumer.id)}


def test_connections_that_calls_at_once_needed_are_closed_once_they_are_idle_for_long(face):
    app = face()
    orders = app.queue("orders")
    orders.send("body")
    idle = inner(app).store._idle
    idle.extend(inner(app).store.connection() for _ in range(8))
    for one in idle:
        one.idle_since = float("-inf")
    for _ in range(len(idle)):
        orders.send("body")
    assert len(idle) == 1
    assert idle[0].idle_since > 0
