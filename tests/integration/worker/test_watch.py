"""The watch: idle loops of a worker with several queues ask nothing, and go on when there are messages."""

import threading
import time

import pytest

import reliq
from reliq import ops
from reliq.contract import values
from reliq.model.keys import QueueKeys, connection_name
from reliq.model.message import Message
from reliq.transport.notices import Notices
from reliq.transport.watch import Watch, Watches
from reliq.worker import exchange, idle
from tests.support.handlers import settled
from tests.support.workers import eventually, working

QUEUES = [f"q{number}" for number in range(6)]
NEVER = 1000.0


@pytest.fixture(autouse=True)
def early(monkeypatch):
    """Idle loops rest soon, and go on only when the server tells of a message: there are no slow looks."""
    monkeypatch.setattr(values, "EMPTY_FOR", 0.1)
    monkeypatch.setattr(values, "SLOW_LOOK", NEVER)


@pytest.fixture
def handled(app, kind):
    """Handlers of all queues; the bodies of what they have handled."""
    bodies: list[bytes] = []

    def handle(message):
        bodies.append(message.body)

    async def handle_async(message):
        bodies.append(message.body)

    for name in QUEUES:
        app.handler(name)(handle_async if kind == "async" else handle)
    return bodies


@pytest.fixture
def worker(app, kind, handled):
    with working(app, threads=4 if kind == "threads" else 1) as worker:
        yield worker


def resting(worker, full=()):
    """Whether the loops of these queues leave the waiting to the watch; `full`: those that wait for a slot."""
    keys = {QueueKeys(name).freed if name in full else QueueKeys(name).messages for name in QUEUES}
    return lambda: any(
        keys <= one._asked.keys() & one._waiting.keys() for one in worker._idle._watches.by_node.values()
    )


def calls(client, command):
    return client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]


def test_messages_of_each_queue_are_handled_each_time(app, worker, handled):
    for turn in range(3):
        eventually(resting(worker))
        for name in QUEUES:
            app.queue(name).send(f"{name} {turn}")
        eventually(lambda: len(handled) == len(QUEUES))
        handled.clear()


@pytest.fixture
def asked(monkeypatch):
    """What the loops of this worker ask of the server: commandstats would count others too."""
    asked: list[str] = []
    for name in ("settle_and_claim", "wait"):
        original = getattr(exchange.Exchange, name)

        def counted(self, *arguments, name=name, original=original, **options):
            asked.append(name)
            return original(self, *arguments, **options)

        monkeypatch.setattr(exchange.Exchange, name, counted)
    return asked


def test_resting_loops_ask_nothing(asked, worker):
    eventually(resting(worker))
    assert asked
    asked.clear()
    time.sleep(2.5)  # a loop that waits for itself asks every second
    assert asked == []


def test_resting_loops_have_no_thread_and_share_their_connections(client, worker, monkeypatch):
    eventually(resting(worker))
    name = connection_name(worker._owner)
    threads = {f"reliq-{name}" for name in QUEUES}
    eventually(lambda: threads.isdisjoint(one.name for one in threading.enumerate()))
    monkeypatch.setattr(idle, "_SPARE_MOST", 2)
    beside = 2  # those of the heartbeat and the watchdog
    eventually(lambda: connections(client, name) <= 2 + beside)
    monkeypatch.setattr(idle, "_SPARE_FOR", 0.0)
    eventually(lambda: connections(client, name) <= 1 + beside)


def connections(client, name):
    return sum(one["name"] == name for one in client.client_list())


def test_what_becomes_ready_otherwise_is_told_too(app, client, worker, handled):
    eventually(resting(worker))
    app.queue("q0").pause()
    app.queue("q0").send("paused")
    app.queue("q1").send("high", priority="high")
    app.queue("q2").send("keyed", key="k")
    eventually(lambda: sorted(handled) == [b"high", b"keyed"])
    app.queue("q0").resume()
    eventually(lambda: b"paused" in handled)
    eventually(lambda: all(settled(app, name) for name in QUEUES))


class Told:
    """A waiter that notes the keys of which it was told."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def notify(self, key: str) -> None:
        self.keys.append(key)


@pytest.mark.parametrize("kind", ["inline"], indirect=True)
def test_a_notice_about_one_key_costs_no_look_at_all_others(app, client, kind, monkeypatch):
    """A worker of 64 partitions of 20 queues would take some milliseconds for each message."""
    looks: list[str] = []
    again_at = Watch._again_at

    def counted(self, key, at):
        looks.append(key)
        return again_at(self, key, at)

    monkeypatch.setattr(Watch, "_again_at", counted)
    keys = [f"key-{number}" for number in range(300)]
    watches, told = Watches(app.store, app.store.connector()), Told()
    assert watches.add_waiter(keys, told) == []
    (watch,) = watches.by_node.values()
    eventually(lambda: len(watch._asked) == len(keys))
    looks.clear()
    for turn, key in enumerate(keys[:10]):
        client.lpush(key, "x")
        eventually(lambda: len(told.keys) == turn + 1)  # noqa: B023
    watches.stop()
    assert told.keys == keys[:10]
    assert len(looks) < len(keys)


def test_a_lost_notice_costs_the_slow_look(app, request, handled, monkeypatch):
    monkeypatch.setattr(Notices, "take", lambda self: None)
    monkeypatch.setattr(values, "SLOW_LOOK", 1.0)
    worker = request.getfixturevalue("worker")
    eventually(resting(worker))
    app.queue("q3").send("x")
    eventually(lambda: handled == [b"x"], timeout=10)


def test_after_all_connections_were_cut_the_loops_go_on(app, client, worker, handled):
    for body in (b"1", b"2"):
        eventually(resting(worker))
        for one in client.client_list():
            if one["id"] != str(client.client_id()):
                client.client_kill_filter(_id=one["id"])
        app.queue("q4").send(body)
        eventually(lambda: body in handled)  # noqa: B023


def test_after_only_the_connection_that_reads_was_cut_the_loops_go_on(app, client, worker, handled):
    """The server says nothing about it to the one for notices."""
    for body in (b"1", b"2"):
        eventually(resting(worker))
        readers = [one["id"] for one in client.client_list() if int(one["redir"]) > 0]
        assert len(readers) == 1
        client.client_kill_filter(_id=readers[0])
        app.queue("q4").send(body)
        eventually(lambda: body in handled, timeout=20)  # noqa: B023


def test_a_lost_lease_is_noticed_while_the_loop_rests(app, client, worker, handled):
    eventually(resting(worker))
    keys = QueueKeys("q5")
    before = client.smembers(keys.consumers)
    for consumer in before:
        client.delete(keys.lease(consumer.decode()))
    app.queue("q5").send("x")
    eventually(lambda: handled == [b"x"])
    assert client.smembers(keys.consumers) != before


@pytest.fixture
def full(app, monkeypatch):
    """`q0` allows one message in processing, which this consumer has; loops claim when they are told."""
    monkeypatch.setattr(values, "EMPTY_FOR", 0.2)
    monkeypatch.setattr(values, "SLOW_LOOK", NEVER)
    app.queue("q0").configure(concurrency=1)
    app.queue("q0").send_many(["held", "next"])
    with app.queue("q0").consumer(lease=3600) as consumer:
        yield consumer, *consumer.claim(1)


def test_loops_of_a_full_queue_rest_until_a_slot_is_free(asked, full, worker, handled):
    eventually(resting(worker, full=["q0"]))
    asked.clear()
    time.sleep(2.5)
    assert asked == []
    consumer, message = full
    consumer.ack(message)
    eventually(lambda: handled == [b"next"])


def test_loops_of_a_full_queue_look_when_who_had_the_slot_ends_without_a_word(full, worker, handled):
    """It settles, is to claim next, and so tells nobody; then it is killed."""
    eventually(resting(worker, full=["q0"]))
    consumer, message = full
    keys = QueueKeys("q0")
    worker._store.call(ops.settle(keys, consumer.id, 3600.0, [message.element], (), ops.CLAIMS_NEXT, row=1))
    for loop in worker._loops:
        loop.exchange.steps.limits._look_at = 0.0
    eventually(lambda: handled == [b"next"])


@pytest.mark.parametrize("kind", ["inline"], indirect=True)
def test_where_the_server_tells_nothing_each_loop_waits_for_itself(app, url, client, handled, kind):
    client.execute_command("ACL", "SETUSER", "narrow", "on", ">pw", "~*", "+@all", "-client|tracking")
    try:
        with working(app, url=url.replace("//", "//narrow:pw@")) as worker:
            before = calls(client, "blmove")
            eventually(lambda: calls(client, "blmove") >= before + 2 * len(QUEUES))
            assert not any(one.works for one in worker._idle._watches.by_node.values())
            app.queue("q0").send("x")
            eventually(lambda: handled == [b"x"])
    finally:
        client.execute_command("ACL", "DELUSER", "narrow")


@pytest.mark.parametrize("kind", ["inline"], indirect=True)
def test_a_worker_of_one_queue_waits_in_blmove(url, client, kind):
    app = reliq.Reliq(url)
    app.handler("alone")(lambda message: None)
    with working(app) as worker:
        before = calls(client, "blmove")
        eventually(lambda: calls(client, "blmove") >= before + 2)
        assert worker._idle._watches.by_node == {}
    app.close()


def test_a_worker_of_one_empty_queue_only_waits(url, kind, asked, monkeypatch):
    """It asks no more than BLMOVE each second, which costs a message no time, until its slow look."""
    app = reliq.Reliq(url)
    bodies: list[bytes] = []
    app.handler("alone")(lambda message: bodies.append(message.body))
    with working(app, threads=4 if kind == "threads" else 1) as worker:
        (loop,) = worker._loops
        eventually(lambda: loop.exchange.steps.idle)
        asked.clear()
        eventually(lambda: asked.count("wait") >= 1)
        looked_at = loop.exchange.steps._looked_at
        eventually(lambda: asked.count("wait") >= 3)
        assert loop.exchange.steps._looked_at == looked_at
        app.queue("alone").send_many(["x", "y"])
        app.queue("alone").send(reliq.NewMessage("z", priority="high"))
        eventually(lambda: sorted(bodies) == [b"x", b"y", b"z"])
        monkeypatch.setattr(values, "SLOW_LOOK", 0.0)
        eventually(lambda: loop.exchange.steps._looked_at > looked_at)
    app.close()


@pytest.mark.parametrize("kind", ["threads"], indirect=True)
def test_messages_start_beside_a_redelivered_one_that_runs_long(url, client, kind):
    """The loop does not wait in BLMOVE meanwhile: it claims, however long the queue was empty."""
    bodies: list[bytes] = []
    go_on = threading.Event()
    with reliq.Reliq(url) as app:

        @app.handler("alone")
        def handle(message):
            bodies.append(message.body)
            if message.redelivered:
                go_on.wait(20)

        app.queue("alone").send("long")
        (element,) = client.lrange(QueueKeys("alone").messages, 0, -1)
        client.lset(QueueKeys("alone").messages, 0, Message.decode("alone", element).again(redelivered=True))
        with working(app, threads=4):
            eventually(lambda: bodies == [b"long"])
            time.sleep(0.5)  # five times EMPTY_FOR
            app.queue("alone").send("next")
            eventually(lambda: bodies == [b"long", b"next"])
            go_on.set()


def test_a_consumer_of_a_cycle_goes_on_claiming(url, monkeypatch):
    """Claims begin the round that a slow visit holds, of which BLMOVE knows nothing."""
    monkeypatch.setattr(values, "EMPTY_FOR", -1.0)
    with reliq.Reliq(url) as app:
        queue = app.queue("alone")
        queue.cycle.add("ann")
        with queue.consumer() as consumer:
            assert len(consumer.claim()) == 1
            (holding,) = consumer._holdings.values()
            assert consumer.claim() == []
            assert not holding.steps.idle


@pytest.mark.parametrize("kind", ["inline"], indirect=True)
def test_loops_of_partitions_come_and_go(app, handled, worker):
    app.queue("q0").configure(partitions=4)
    eventually(lambda: len(worker._loops) == len(QUEUES) + 3, timeout=30)
    for number in range(8):
        app.queue("q0").send(str(number))
    eventually(lambda: len(handled) == 8)
    app.queue("q0").configure(partitions=1)
    eventually(lambda: len(worker._loops) >= len(QUEUES))
    app.queue("q0").send("last")
    eventually(lambda: b"last" in handled)


def test_a_worker_whose_loops_rest_stops(app, kind, handled):
    with working(app, threads=4 if kind == "threads" else 1) as worker:
        eventually(resting(worker))
    for one in worker._idle._watches.by_node.values():
        one.join(timeout=10)
        assert not one.is_alive()
