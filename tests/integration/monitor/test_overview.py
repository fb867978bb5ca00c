"""Many queues at one look, and the equation of the audit, clause by clause on real runs."""

import threading
from dataclasses import replace

import pytest

import reliq
from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.protocol.partial_reads import every_queue
from reliq.protocol.stats import GROUP, read_queues, stats_of
from reliq.transport.store import Store
from tests.support.turns import Monitor
from tests.support.workers import eventually


def read(app, *names):
    return app.store.run(read_queues(names or app.queues()))


def one(app, name="orders"):
    (reading,) = read(app, name)
    return reading


def test_the_overview_reads_what_stats_reads(app):
    orders = app.queue("orders")
    orders.send_many(["a", "b", "c"])
    orders.send("d", delay=60)
    with orders.consumer() as consumer:
        first, second = consumer.claim(limit=2)
        consumer.ack(first)
        reading, stats = one(app), orders.stats()
        consumer.dead(second, "no")
    assert replace(reading, oldest_ready_age=0.0) == replace(stats, oldest_ready_age=0.0)
    assert reading.exact


def test_a_consumer_that_comes_between_is_counted_at_the_next_look(app):
    orders = app.queue("orders")
    orders.send("a")
    steps = stats_of(QueueKeys("orders"))
    consumers = app.store.call(next(steps))
    with orders.consumer() as consumer:
        consumer.claim()
        first = app.store.call(steps.send(consumers))
        assert [(one.processing, one.exact) for one in first] == [(0, False)]
        again = app.store.call(steps.send(first))
        with pytest.raises(StopIteration) as end:
            steps.send(app.store.call(steps.send(again)))
    assert (end.value.value.processing, end.value.value.exact) == (1, True)


def test_one_queue_takes_two_round_trips(app):
    app.queue("orders").send("a")
    counting = Counting(stats_of(QueueKeys("orders")))
    assert app.store.run(counting.counted()).ready == 1
    assert counting.requests == 2


def test_a_queue_nobody_has_used_reads_as_empty(app):
    reading = one(app, "never")
    assert (reading.ready, reading.processing, reading.missing, reading.oldest_ready_age) == (0, 0, 0, 0.0)


def test_the_queues_policy_is_read_along(app):
    app.queue("orders").configure(max_length=7)
    app.queue("orders").pause()
    assert (one(app).max_length, one(app).paused) == (7, True)


def test_a_delayed_message_that_nobody_promotes_is_overdue(app):
    app.queue("orders").send("a", delay=3600)
    assert one(app).overdue == 0.0
    delayed = QueueKeys("orders").delayed
    (element,) = app.store.call(ops.command("ZRANGE", delayed, 0, -1))
    app.store.call(ops.command("ZADD", delayed, app.store.call(ops.server_time()) - 5000, element))
    assert 5 <= one(app).overdue < 60


def test_an_element_that_does_not_decode_has_no_age(app):
    app.store.call(ops.command("LPUSH", QueueKeys("orders").messages, b"not a message"))
    assert one(app).oldest_ready_age == 0.0


def test_a_full_redis_can_still_be_looked_at(app, redis_server):
    import redis

    app.queue("orders").send_many(["a", "b"])
    with redis.Redis(port=redis_server.port) as client:
        client.config_set("maxmemory", "1")
        try:
            reading = one(app)
        finally:
            client.config_set("maxmemory", "0")
    assert (reading.ready, reading.missing) == (2, 0)


class Counting:
    """Steps, and how many requests they made."""

    def __init__(self, steps):
        self.requests = 0
        self._steps = steps

    def __iter__(self):
        return self.counted()

    def counted(self):
        answer = None
        try:
            while True:
                request = self._steps.send(answer)
                self.requests += 1
                answer = yield request
        except StopIteration as stop:
            return stop.value


def test_a_thousand_queues_take_a_round_trip_for_each_hundred(app):
    names = [f"q{number:04}" for number in range(1000)]
    for name in names:
        app.queue(name).send("x")
    counting = Counting(read_queues(names))
    readings = app.store.run(counting.counted())
    assert [reading.queue for reading in readings] == names
    assert sum(reading.ready for reading in readings) == 1000
    assert counting.requests <= 1000 / GROUP + 1


def test_every_queue_is_found(app):
    app.queue("b").send("x")
    app.queue("a").send("x")
    assert app.store.run(every_queue()) == ["a", "b"]


# --- the audit -------------------------------------------------------------------------------------------------------


def claimed(app, count=1):
    consumer = app.queue("orders").consumer()
    consumer.__enter__()
    return consumer, consumer.claim(limit=count)


def test_ready_processing_delayed_and_dead_are_not_missing(app):
    orders = app.queue("orders")
    orders.send_many(["a", "b", "c"])
    orders.send("d", delay=60)
    with orders.consumer() as consumer:
        consumer.dead(*consumer.claim(), "no")
        consumer.claim()
        reading = one(app)
    assert (reading.ready, reading.processing, reading.delayed, reading.dead) == (1, 1, 1, 1)
    assert reading.missing == 0


def settle_all(app, what):
    orders = app.queue("orders")
    with orders.consumer() as consumer:
        for message in consumer.claim(limit=10):
            what(consumer, message)


@pytest.mark.parametrize(
    ("gone", "remove"),
    [
        ("acked", lambda app: settle_all(app, lambda consumer, message: consumer.ack(message))),
        ("purged", lambda app: app.queue("orders").purge()),
    ],
)
def test_what_left_for_good_is_counted_as_gone(app, gone, remove):
    app.queue("orders").send_many(["a", "b", "c"])
    remove(app)
    reading = one(app)
    assert reading.counters[gone] == 3
    assert reading.missing == 0


def test_cancelled_messages_are_gone(app):
    identity = app.queue("orders").send("a", delay=60)
    assert app.queue("orders").cancel(identity)
    assert (one(app).counters["cancelled"], one(app).missing) == (1, 0)


def buried(app, count):
    app.queue("orders").send_many(["a"] * count)
    settle_all(app, lambda consumer, message: consumer.dead(message, "no"))


def test_purged_dead_letters_are_gone(app):
    buried(app, 2)
    app.queue("orders").dead.purge(all=True)
    assert (one(app).counters["purged_dead"], one(app).missing) == (2, 0)


def test_trimmed_dead_letters_are_gone(app):
    buried(app, 5)
    app.queue("orders").configure(dead_max_count=2)
    Monitor(app.store).tidy()
    assert (one(app).counters["trimmed"], one(app).dead, one(app).missing) == (3, 2, 0)


def test_what_moves_stays_one_message(app):
    orders = app.queue("orders")
    orders.send_many(["a", "b", "c", "d"])
    with orders.consumer() as consumer:
        first, second, third, fourth = consumer.claim(limit=4)
        consumer.retry(first, delay=0.01)
        consumer.release(second)
        consumer.dead(third, "no")
        consumer.ack(fourth)
    eventually(lambda: Monitor(app.store).promote()[0] == 1)
    orders.dead.redrive()
    reading = one(app)
    assert (reading.ready, reading.dead, reading.missing) == (3, 0, 0)


def test_a_duplicate_and_a_refused_message_were_never_there(app):
    orders = app.queue("orders")
    orders.configure(max_length=2)
    orders.send("a", dedup_key="k")
    orders.send("a", dedup_key="k")
    with pytest.raises(reliq.QueueFull):
        orders.send_many(["b", "c"])
    reading = one(app)
    assert (reading.counters["deduplicated"], reading.counters["rejected"]) == (1, 2)
    assert reading.missing == 0


def test_a_message_that_vanishes_is_missing(app):
    app.queue("orders").send_many(["a", "b", "c"])
    app.store.call(ops.command("RPOP", QueueKeys("orders").messages, 2))
    assert one(app).missing == 2


def test_a_second_copy_of_a_message_makes_missing_negative(app):
    app.queue("orders").send("a")
    keys = QueueKeys("orders")
    copy = app.store.call(ops.command("LINDEX", keys.messages, 0))
    app.store.call(ops.command("LPUSH", keys.messages, copy))
    assert one(app).missing == -1


def test_the_audit_balances_at_every_look_while_messages_move(app, url):
    """Consumers come and go, claim, settle and vanish meanwhile: a reading that is exact never shows a difference."""
    orders, stopping = app.queue("orders"), threading.Event()

    def work():
        mine = reliq.Reliq(url)
        while not stopping.is_set():
            with mine.queue("orders").consumer() as consumer:
                for number, message in enumerate(consumer.claim(limit=5)):
                    match number:
                        case 0:
                            consumer.retry(message)
                        case 1:
                            consumer.dead(message, "no")
                        case 2:
                            pass  # given back on leaving
                        case _:
                            consumer.ack(message)
            mine.queue("orders").send_many(["a"] * 5)
            mine.queue("orders").dead.redrive()
        mine.close()

    orders.send_many(["a"] * 50)
    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    looker = Store(url)
    readings = [looker.run(read_queues(["orders"]))[0] for _ in range(300)]
    stopping.set()
    for worker in workers:
        worker.join()
    looker.close()
    exact = [reading for reading in readings if reading.exact]
    assert len(exact) > 200
    assert {reading.missing for reading in exact} == {0}
    assert len({reading.counters.get("claimed", 0) for reading in exact}) > 20
