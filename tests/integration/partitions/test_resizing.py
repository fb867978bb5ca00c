"""The number of partitions changes under load: nothing is lost, and the messages of a key stay in order."""

import threading
import time
from collections import defaultdict

import pytest

import reliq
from reliq import ops
from reliq.errors import ChangeUnderWay
from reliq.features.steps import ops as own
from reliq.model.keys import QueueKeys
from reliq.model.partitions import Layout, bucket_of_key, home_by_bucket, layout_text
from reliq.ops.schema import Config
from reliq.protocol import resizing, resting
from reliq.protocol import shares as policy_shares
from reliq.protocol import stats as snapshot
from reliq.protocol.stats import stats_of
from reliq_monitor import partitions
from tests.support.turns import Monitor
from tests.support.workers import eventually, working

NAMES = ["orders", *(f"orders@partition.{number}" for number in range(1, 8))]


class Tending(Monitor):
    """A monitor that looks for queues before each turn, as its loop does."""

    def tend_partitions(self) -> int:
        self.scan()
        return super().tend_partitions()


@pytest.fixture
def monitor(app: reliq.Reliq) -> Monitor:
    return Tending(app.store)


def layout_of(app: reliq.Reliq):
    return app.store.call(ops.layout(QueueKeys("orders")))


def key_that_moves(before: int, after: int) -> tuple[str, str, str]:
    """Return a key, its home among `before` partitions and that among `after`."""
    for number in range(10_000):
        bucket = bucket_of_key(f"k{number}")
        first, then = home_by_bucket(before)[bucket], home_by_bucket(after)[bucket]
        if first != then:
            return f"k{number}", NAMES[first], NAMES[then]
    raise AssertionError("no key moves")


def ready(app: reliq.Reliq, name: str) -> int:
    return app.store.run(stats_of(QueueKeys(name))).ready


def test_a_change_with_much_to_copy_is_told_in_several_turns(app, monitor, monkeypatch):
    """Other duties have their turns in between."""
    orders = app.queue("orders")
    orders.send("x")
    for number in range(300):
        orders.signal(f"early-{number}", "go", number)
    changed = Layout(("1", "2"), moving=True, version=1)
    change = ops.set_policy(QueueKeys("orders"), ["partitions", layout_text(changed)])
    app.store.call([*map(ops.announce, NAMES[1:3]), change])
    monkeypatch.setattr(partitions, "_A_TURN", 0.0)
    turns = 0
    while layout_of(app).moving:
        monitor.tend_partitions()
        turns += 1
    assert turns > 6, "a turn makes one request"
    homes = [QueueKeys(name) for name in NAMES[1:3]]
    assert [len(app.store.run(ops.one(own.early_records(home, 0, 10_000)))[1]) for home in homes] == [300, 300]


def test_a_producer_that_does_not_know_the_queue_yet_asks_the_former_home_first(app, url, monitor):
    orders = app.queue("orders")
    app.subscribe("orders", "order")
    orders.configure(partitions=5)
    key, old, new = key_that_moves(5, 4)
    orders.send("1", key=key)
    orders.configure(partitions=4)
    with reliq.Reliq(url) as other:
        other.publish("order", "2", key=key)
    assert (ready(app, old), ready(app, new)) == (1, 1)
    with orders.consumer() as consumer:
        (message,) = consumer.claim(limit=5, wait=1)
        assert message.body == b"1"


@pytest.mark.parametrize("publish", [False, True])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 8), (8, 3), (4, 1)])
def test_a_key_begins_in_its_new_home_when_the_former_one_has_no_message_of_it(app, monitor, before, after, publish):
    orders = app.queue("orders")
    app.subscribe("orders", "order")
    orders.configure(partitions=before)
    monitor.tend_partitions()
    key, old, new = key_that_moves(before, after)

    def send(body: str) -> str:
        return app.publish("order", body, key=key)["orders"] if publish else orders.send(body, key=key)

    first, second = send("1"), send("2")
    orders.configure(partitions=after)
    third, fourth = send("3"), send("4")
    assert (ready(app, old), ready(app, new)) == (2, 2)
    monitor.tend_partitions()
    assert layout_of(app).moving
    with orders.consumer() as consumer:
        for wanted in (first, second):
            (message,) = consumer.claim(limit=5)
            assert message.id == wanted
            consumer.ack(message)
        assert consumer.claim(limit=5) == []
        fifth = send("5")
        assert monitor.tend_partitions() == 1
        for wanted in (third, fourth, fifth):
            (message,) = consumer.claim(limit=5)
            assert message.id == wanted
            consumer.ack(message)
    monitor.tend_partitions()
    assert not layout_of(app).moving


@pytest.mark.parametrize("over", [False, True], ids=["given back", "time over"])
@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (8, 3), (4, 1)])
def test_what_was_in_flight_when_its_key_moved_comes_before_the_others_of_the_key(
    app, client, monitor, before, after, runs, over
):
    orders = app.queue("orders")
    orders.configure(partitions=before)
    monitor.tend_partitions()
    key, old, _ = key_that_moves(before, after)
    for number in range(5):
        orders.send(str(number), key=key)
    flying = orders.receive(limit=2, visibility=60, runs=runs)
    assert [one.message.body for one in flying] == [b"0", b"1"][: 1 + runs]
    orders.configure(partitions=after)
    for number in range(5, 8):
        orders.send(str(number), key=key)
    monitor.tend_partitions()

    if over:
        received = QueueKeys(old).received
        client.zadd(received, dict.fromkeys(client.zrange(received, 0, -1), 1))
    else:
        orders.change_visibility([(one.receipt, 0) for one in flying])
    handled = []

    def handle() -> bool:
        monitor.tend_partitions()
        for one in orders.receive(limit=5, runs=runs):
            handled.append(one.message.body)
            orders.delete_received([one.receipt])
        return len(handled) == 8

    eventually(handle)
    assert handled == [b"%d" % number for number in range(8)]
    monitor.tend_partitions()
    assert not layout_of(app).moving


@pytest.mark.parametrize(("before", "after"), [(1, 2), (8, 3)])
def test_the_limit_of_a_key_holds_while_the_key_moves(app, monitor, before, after):
    orders = app.queue("orders")
    orders.configure(partitions=before, key_concurrency=2)
    monitor.tend_partitions()
    key, old, new = key_that_moves(before, after)
    for number in range(3):
        orders.send(f"{number}", limit_key=key)
    with orders.consumer() as consumer:
        first = consumer.claim(limit=5)
        assert len(first) == 2
        orders.configure(partitions=after)
        for number in range(3, 6):
            orders.send(f"{number}", limit_key=key)
        monitor.tend_partitions()
        assert (ready(app, old), ready(app, new)) == (1, 3)
        assert consumer.claim(limit=5) == []
        consumer.ack(*first)
        (third,) = consumer.claim(limit=5)
        monitor.tend_partitions()
        assert consumer.claim(limit=5) == []
        consumer.ack(third)
        monitor.tend_partitions()
        others = consumer.claim(limit=5)
        assert [one.body for one in others] == [b"3", b"4"]
        consumer.ack(*others, *consumer.claim())
        consumer.ack(*consumer.claim())
    monitor.tend_partitions()
    assert not layout_of(app).moving
    assert orders.stats().ready == 0


def test_each_key_that_leaves_is_counted_once_and_none_that_has_come(app, monitor):
    orders = app.queue("orders")
    orders.configure(partitions=1, key_concurrency=2)
    keys = [f"k{number}" for number in range(40)]
    moved = sum(home_by_bucket(4)[bucket_of_key(key)] != 0 for key in keys)
    orders.send_many([reliq.NewMessage("1", key=key) for key in keys] * 2)
    orders.send_many([reliq.NewMessage("1", limit_key=key) for key in keys] * 3)
    orders.configure(partitions=4)
    orders.send_many([reliq.NewMessage("2", key=key) for key in keys])
    counts = [one.keys_elsewhere for one in orders.partitions().partitions]
    assert counts == [2 * moved, 0, 0, 0]


def test_a_producer_that_missed_the_change_sends_to_the_right_home(app, url, monitor):
    late = reliq.Reliq(url)
    orders = late.queue("orders")
    app.queue("orders").configure(partitions=2)
    monitor.tend_partitions()
    key, _, new = key_that_moves(2, 8)
    orders.send("1", key=key)
    with app.queue("orders").consumer() as consumer:
        consumer.ack(*consumer.claim())
    app.queue("orders").configure(partitions=8)
    monitor.tend_partitions()
    orders.send("2", key=key)
    orders.send_many(["without a key"] * 1000)
    late.close()
    assert ready(app, new) >= 1
    assert sum(ready(app, name) for name in NAMES) == 1001
    assert min(ready(app, name) for name in NAMES) > 0


def test_a_delayed_message_is_taken_to_the_new_home_when_it_is_due(app, monitor):
    orders = app.queue("orders")
    orders.configure(partitions=2)
    monitor.tend_partitions()
    key, old, new = key_that_moves(2, 4)
    sent = orders.send(b"x" * 50_000, key=key, delay=0.05)
    orders.configure(partitions=4)
    eventually(lambda: monitor.promote()[0])
    assert ready(app, old) == 1
    assert monitor.tend_partitions() == 1
    assert (ready(app, old), ready(app, new)) == (0, 1)
    with orders.consumer() as consumer:
        (message,) = consumer.claim(wait=1)
    assert (message.id, message.body) == (sent, b"x" * 50_000)
    assert orders.find(sent).place == "ready"


def brought_and_left(app: reliq.Reliq, monitor: Monitor, bodies: list[str]) -> tuple[str, str]:
    """Let a monitor die between enqueuing messages in their new home and removing them; return both homes."""
    orders = app.queue("orders")
    orders.configure(partitions=2)
    monitor.tend_partitions()
    key, old, new = key_that_moves(2, 4)
    for body in bodies:
        orders.send(body, key=key, delay=0.05)
    orders.configure(partitions=4)
    eventually(lambda: (monitor.promote(), ready(app, old) == len(bodies))[1])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ops, "send_home", lambda keys, strays: ops.list_length(keys.dead))
        Tending(app.store).tend_partitions()
    assert (ready(app, old), ready(app, new)) == (len(bodies), len(bodies))
    return old, new


@pytest.mark.parametrize("size", [1, 50_000])
def test_a_message_that_a_monitor_brings_twice_enters_once(app, monitor, size):
    orders = app.queue("orders")
    old, new = brought_and_left(app, monitor, [str(place) * size for place in range(5)])
    eventually(lambda: monitor.tend_partitions() or ready(app, old) == 0)
    assert (ready(app, old), ready(app, new)) == (0, 5)
    bodies = set()
    with orders.consumer() as consumer:
        for _ in range(5):
            eventually(lambda: monitor.tend_partitions() == 0)
            (message,) = consumer.claim(wait=1)
            bodies.add(message.body)
            consumer.ack(message)
    assert bodies == {str(place).encode() * size for place in range(5)}
    assert [app.store.call(ops.hash_size(QueueKeys(name).bodies)) for name in (old, new)] == [0, 0]


def test_a_message_that_was_brought_is_not_left_where_it_waited_when_that_is_its_home_again(app, monitor):
    orders = app.queue("orders")
    _, new = brought_and_left(app, monitor, ["brought"])
    orders.configure(partitions=2)
    eventually(lambda: monitor.tend_partitions() or not layout_of(app).moving)
    assert [ready(app, name) for name in NAMES] == [int(name == new) for name in NAMES]
    with orders.consumer() as consumer:
        (message,) = consumer.claim(wait=1)
        consumer.ack(message)
        assert (message.body, consumer.claim()) == (b"brought", [])


def test_a_message_without_its_body_is_taken_home_too_and_does_not_hold_up_the_change(app, monitor):
    orders = app.queue("orders")
    orders.configure(partitions=2)
    key, old, new = key_that_moves(2, 4)
    orders.send(b"x" * 50_000, key=key, delay=0.05)
    orders.configure(partitions=4)
    app.store.call(ops.delete(QueueKeys(old).bodies))
    eventually(lambda: monitor.promote()[0])
    monitor.tend_partitions()
    assert (ready(app, old), ready(app, new)) == (0, 1)


def test_messages_are_taken_to_a_home_that_has_room_for_some_of_them_only(app, monitor):
    orders = app.queue("orders")
    orders.configure(partitions=2, max_length=12)
    monitor.tend_partitions()
    key, old, new = key_that_moves(2, 4)
    for place in range(5):
        orders.send(str(place), key=key, delay=0.05)
    orders.configure(partitions=4)
    eventually(lambda: (monitor.promote(), ready(app, old) == 5)[1])
    monitor.tend_partitions()
    assert 0 < ready(app, new) <= 3
    handled = []
    with orders.consumer() as consumer:

        def handle() -> bool:
            monitor.tend_partitions()
            for message in consumer.claim():
                handled.append(message.body)
                consumer.ack(message)
            return len(handled) == 5

        eventually(handle)


def test_a_change_that_a_restart_of_the_server_undid_in_part_takes_effect_again(app, monitor):
    orders = app.queue("orders")
    key, _, new = key_that_moves(1, 2)
    orders.send("1", key=key)
    orders.configure(partitions=2)
    monitor.tend_partitions()
    app.store.call(ops.remove_fields(QueueKeys(new).config, [b"homes", b"retired"]))
    with orders.consumer() as consumer:
        consumer.ack(*consumer.claim(wait=1))
    monitor.tend_partitions()
    assert not layout_of(app).moving
    orders.send("2", key=key)
    assert ready(app, new) == 1


def test_a_change_that_a_restart_undoes_while_it_is_told_is_undone_everywhere(app, client, monkeypatch):
    """Redis restarts from an older state, while the process that changes the number still tells the partitions."""
    orders = app.queue("orders")
    for count in (4, 2):
        orders.configure(partitions=count)
    older = {name: client.dump(QueueKeys(name).config) for name in NAMES[:4]}
    tell = ops.take_in

    def restarting(keys, *others):
        if keys.queue == NAMES[3]:
            while older:
                name, state = older.popitem()
                client.restore(QueueKeys(name).config, 0, state, replace=True)
        return tell(keys, *others)

    monkeypatch.setattr(ops, "take_in", restarting)
    orders.configure(partitions=4)

    layout = layout_of(app)
    assert (layout.count, older) == (2, {})
    known = {name: app.store.call(ops.known_version(QueueKeys(name))) for name in layout.every("orders")}
    assert known == dict.fromkeys(NAMES[:4], layout.version)
    assert set(client.hget(QueueKeys(NAMES[3]).config, "homes")[:1024]) == {ord("0")}


def test_the_layout_of_a_first_partition_that_was_restarted_from_an_older_state_becomes_the_latest(app, url, monitor):
    orders = app.queue("orders")
    orders.configure(partitions=2)
    before = layout_of(app)
    orders.configure(partitions=3)
    app.store.call(ops.set_policy(QueueKeys("orders"), ["partitions", layout_text(before)]))
    app.store.call(ops.remove_fields(QueueKeys("orders").config, [b"homes", b"retired"]))
    for _ in range(3):
        monitor.tend_partitions()
    keys = [f"k{number}" for number in range(40)]
    with reliq.Reliq(url) as producer:
        producer.queue("orders").send_many([reliq.NewMessage("body", key=key) for key in keys])
    assert [ready(app, name) for name in NAMES[:2]] == [
        sum(home_by_bucket(2)[bucket_of_key(key)] == place for key in keys) for place in range(2)
    ]


def test_dead_letters_of_a_retired_partition_come_back_to_the_home_of_their_key(app, monitor):
    orders = app.queue("orders")
    orders.configure(partitions=4)
    monitor.tend_partitions()
    key, old, _ = key_that_moves(4, 1)
    orders.send("body", key=key)
    with orders.consumer() as consumer:
        consumer.dead(*consumer.claim(wait=1), "broken")
    orders.configure(partitions=1)
    for _ in range(5):
        monitor.tend_partitions()
    assert "orders@partition.3" in layout_of(app).every("orders") or old != NAMES[3]
    assert orders.dead.redrive().redriven == 1
    monitor.tend_partitions()
    assert ready(app, "orders") == 1
    for _ in range(5):
        monitor.tend_partitions()
    assert layout_of(app).every("orders") == ["orders"]


def test_the_counters_of_a_partition_that_is_forgotten_stay_those_of_the_queue(app, monitor):
    orders = app.queue("orders")
    orders.configure(partitions=3)
    orders.send_many([reliq.NewMessage("body", key=f"k{number}") for number in range(100)])
    with orders.consumer() as consumer:
        while messages := consumer.claim(limit=50):
            consumer.ack(*messages)
    before = orders.stats().counters
    orders.configure(partitions=1)
    for _ in range(3):
        monitor.tend_partitions()
    assert layout_of(app).every("orders") == ["orders"]
    assert orders.stats().counters == before
    assert before["acked"] == 100
    orders.configure(partitions=3)
    assert orders.stats().counters == before


def worked_off(app: reliq.Reliq, partitions: int) -> dict[str, int]:
    """Handle messages in all partitions, close all but the first one, and return the counters."""
    orders = app.queue("orders")
    orders.configure(partitions=partitions)
    orders.send_many([reliq.NewMessage("body", key=f"k{number}") for number in range(100)])
    with orders.consumer() as consumer:
        while messages := consumer.claim(limit=50):
            consumer.ack(*messages)
    before = orders.stats().counters
    orders.configure(partitions=1)
    return before


def forget_all(app: reliq.Reliq, monitor: Monitor) -> None:
    while layout_of(app).retired:
        monitor.tend_partitions()


def test_counters_that_a_killed_monitor_has_left_are_not_counted_twice(app, monitor):
    before = worked_off(app, 3)
    with pytest.MonkeyPatch.context() as killed:
        killed.setattr(resizing, "_drop_counters", lambda forgotten: iter(()))
        forget_all(app, monitor)
    app.queue("orders").configure(partitions=3)
    assert app.queue("orders").stats().counters == before


def test_a_breaker_that_was_open_in_a_forgotten_partition_is_closed_when_that_comes_again(app, monitor):
    worked_off(app, 3)
    app.queue("orders").open_breaker("1h")
    forget_all(app, monitor)
    app.queue("orders").close_breaker()
    app.queue("orders").configure(partitions=3)
    assert app.queue("orders").stats().breaker == "closed"


def test_a_partition_that_is_open_again_keeps_its_counters(app, monitor):
    before = worked_off(app, 3)
    forget_all(app, monitor)
    app.queue("orders").configure(partitions=3)
    app.queue("orders").send_many(["body"] * 6)
    app.store.run(resizing._drop_counters([QueueKeys(name) for name in NAMES[1:3]]))  # by a monitor that was paused
    assert app.queue("orders").stats().counters["enqueued"] == before["enqueued"] + 6


def test_a_late_call_for_other_counters_deletes_none_of_a_closed_partition(app):
    before = worked_off(app, 3)
    for name in NAMES[1:3]:
        counts = app.store.call(ops.read_hash(QueueKeys(name).counters))
        assert app.store.call(ops.drop_counters(QueueKeys(name), counts | {"enqueued": "1"})) == 0
        assert app.store.call(ops.drop_counters(QueueKeys(name), {"enqueued": counts["enqueued"]})) == 0
    assert app.queue("orders").stats().counters == before


def test_counters_are_complete_while_partitions_are_forgotten(app, monitor, monkeypatch):
    before = worked_off(app, 3)

    def forgotten_meanwhile(keys: QueueKeys):
        answer = yield from stats_of(keys)
        if keys.queue == "orders":
            forget_all(app, monitor)
        return answer

    monkeypatch.setattr("reliq.protocol.queue.stats_of", forgotten_meanwhile)
    assert app.queue("orders").stats().counters == before
    assert layout_of(app).every("orders") == ["orders"]


def test_a_snapshot_is_complete_while_partitions_are_forgotten(app, monitor, monkeypatch):
    before = worked_off(app, 3)
    readable = snapshot._readable

    def forgotten_meanwhile(names, layouts, unreadable, what):
        if what == "partition":
            forget_all(app, monitor)
        return (yield from readable(names, layouts, unreadable, what))

    monkeypatch.setattr(snapshot, "_readable", forgotten_meanwhile)
    (orders,) = app.store.run(snapshot.read_queues(["orders"]))
    assert orders.counters == before
    assert layout_of(app).every("orders") == ["orders"]


def test_a_batch_counts_what_was_handled_in_partitions_that_are_forgotten(app, monitor, client):
    orders = app.queue("orders")
    orders.configure(partitions=3)
    with app.batch(on_done=("reports", "end")) as batch:
        batch.send_many("orders", ["body"] * 9)
        with orders.consumer() as consumer:
            consumer.ack(*consumer.claim(limit=9))
        orders.configure(partitions=1)
        forget_all(app, monitor)
        assert batch.progress().handled == 9
    assert monitor.end_batches() == 1
    with app.queue("reports").consumer() as consumer:
        (end,) = consumer.claim()
        assert end.headers["batch-handled"] == "9"
    assert [name for name in NAMES if client.exists(QueueKeys(name).followed)] == []


@pytest.mark.parametrize("kept", ["result", "history", "output"])
def test_a_partition_is_kept_as_long_as_it_keeps_results_histories_or_output(app, monitor, client, kept):
    orders = app.queue("orders")
    orders.configure(partitions=2, history="1h" if kept == "history" else None)
    key, old, _ = key_that_moves(2, 1)

    @app.handler("orders", result="1h" if kept == "result" else None)
    def handle(message):
        if kept == "output":
            message.emit("chunk")
        return 42

    identity = orders.send("body", key=key)
    with working(app):
        eventually(lambda: orders.stats().counters.get("acked") == 1)
    orders.configure(partitions=1)
    for _ in range(3):
        monitor.tend_partitions()
    assert layout_of(app).retired
    if kept == "result":
        assert orders.result(identity) == 42
    elif kept == "output":
        assert [chunk.value for chunk in orders.output(identity)] == ["chunk"]
    else:
        assert [event.name for event in orders.find(identity).history][-1] == "acked"
    keys = QueueKeys(old)
    client.delete(keys.results, keys.history, keys.outputs)  # as if their time had passed
    monitor.tend_partitions()
    assert layout_of(app).every("orders") == ["orders"]


def test_partitions_that_are_closed_have_a_part_of_the_limits_and_not_more_than_that(app, monitor, client):
    orders = app.queue("orders")
    orders.configure(partitions=4, concurrency=8, rate="400/s", dead_max_count=40)
    orders.send_many(["body"] * 400)
    orders.configure(partitions=1)
    monitor.tend_partitions()
    of_each = [client.hmget(QueueKeys(name).config, "concurrency", "dead_max_count") for name in NAMES[:4]]
    assert of_each == [[b"2", b"10"]] * 4
    config = orders.config()
    assert (config.concurrency, config.rate, config.dead_max_count) == (8, "400/s", 40)
    with orders.consumer() as consumer:
        assert 0 < len(consumer.claim(limit=100)) <= 8
    with orders.consumer() as consumer:
        while messages := consumer.claim(limit=100, wait=1):
            consumer.ack(*messages)
    for _ in range(5):
        monitor.tend_partitions()
    assert layout_of(app).every("orders") == ["orders"]
    fields = ("concurrency", "dead_max_count", "rate", "whole", "homes")
    assert client.hmget(QueueKeys("orders").config, *fields) == [b"8", b"40", b"400/s", None, None]


def limits_of(client, *names: str) -> list[tuple[str, ...]]:
    """Return the rate, the concurrency and the burst that these partitions have of their queue's."""
    found = [client.hmget(QueueKeys(name).config, "rate", "concurrency", "burst") for name in names]
    return [tuple(one.decode() for one in some if one is not None) for some in found]


@pytest.fixture
def closed(app, monitor):
    """A queue whose second partition is closed, and has a dead letter only."""
    orders = app.queue("orders")
    orders.configure(partitions=2, rate="2000/s", burst=20, concurrency=8)
    for _ in range(2):
        orders.send("body")
    with orders.consumer() as consumer:
        for message in [*consumer.claim(limit=2), *consumer.claim(limit=2)]:
            consumer.dead(message, reason="test")
    orders.configure(partitions=1)
    for _ in range(2):
        monitor.tend_partitions()
    assert layout_of(app).retired == ("1",)
    assert orders.stats().dead == 2
    return orders


def test_a_closed_partition_without_messages_leaves_its_share_of_the_limits_to_the_others(client, closed):
    assert limits_of(client, "orders") == [("2000/s", "8", "20")]
    assert limits_of(client, NAMES[1])[0][1] == "0"
    assert closed.config().concurrency == 8
    assert closed.stats().limited_by == ""


def test_a_message_that_comes_back_to_a_closed_partition_waits_until_it_has_its_share_again(
    app, monitor, client, closed
):
    assert closed.dead.redrive().redriven == 2
    with closed.consumer() as consumer:
        (first,) = consumer.claim(limit=5)
        assert consumer.claim(limit=5) == []
        monitor.tend_partitions()
        assert limits_of(client, *NAMES[:2]) == [("1000/s", "4", "10")] * 2
        (second,) = eventually(lambda: consumer.claim(limit=5, wait=1))
        monitor.tend_partitions()
        assert limits_of(client, *NAMES[:2]) == [("1000/s", "4", "10")] * 2, "while it is in processing"
        consumer.ack(first, second)
    for _ in range(3):
        monitor.tend_partitions()
    assert layout_of(app).every("orders") == ["orders"]
    assert limits_of(client, "orders") == [("2000/s", "8", "20")]


def test_a_delayed_message_that_is_due_soon_keeps_the_share_of_its_partition(app, monitor, client):
    orders = app.queue("orders")
    orders.configure(partitions=2, rate="2000/s")
    for _ in range(2):
        orders.send("body", delay=50)
    orders.configure(partitions=1)
    for _ in range(3):
        monitor.tend_partitions()
    assert limits_of(client, *NAMES[:2]) == [("1000/s",)] * 2


def test_messages_that_come_while_a_partition_is_put_to_rest_wait_for_the_next_turn(
    app, monitor, client, monkeypatch, closed
):
    client.hset(QueueKeys("orders").config, "partitions", layout_text(layout_of(app).rested(())))
    looks, redrives = resting._is_idle, iter([closed.dead.redrive])

    def then_a_redrive(keys):
        found = yield from looks(keys)
        for redrive in redrives:
            redrive()
        return found

    monkeypatch.setattr(resting, "_is_idle", then_a_redrive)
    monitor.tend_partitions()
    assert limits_of(client, "orders") == [("1000/s", "4", "10")]
    assert limits_of(client, NAMES[1])[0][1] == "0"
    for _ in range(2):
        monitor.tend_partitions()
    assert limits_of(client, *NAMES[:2]) == [("1000/s", "4", "10")] * 2
    with closed.consumer() as consumer:
        assert len(eventually(lambda: consumer.claim(limit=5, wait=1)) + consumer.claim(limit=5)) == 2


def test_a_change_by_an_earlier_layout_is_made_again_by_a_monitor(app, monitor, client, monkeypatch, closed):
    closed.dead.redrive()
    begin, turns = policy_shares._give, iter([monitor.tend_partitions])

    def late(shares):
        for turn in turns:  # the partition gets its share back, before the caller gives the shares of the layout before
            turn()
        return (yield from begin(shares))

    monkeypatch.setattr(policy_shares, "_give", late)
    closed.configure(concurrency=6)
    for _ in range(2):
        monitor.tend_partitions()
    assert limits_of(client, *NAMES[:2]) == [("1000/s", "3", "10")] * 2


def test_shares_that_a_monitor_gives_do_not_undo_what_is_changed_meanwhile(app, monitor, monkeypatch):
    orders = app.queue("orders")
    orders.configure(partitions=2, concurrency=8)
    orders.send("body")
    orders.configure(partitions=1)
    shares, changes = policy_shares._shares, iter([lambda: app.queue("orders").configure(concurrency=100)])

    def slow(*arguments):
        found = shares(*arguments)
        for change in changes:
            change()
        return found

    monkeypatch.setattr(policy_shares, "_shares", slow)
    monitor.tend_partitions()
    assert orders.config().concurrency == 100


def test_a_queue_that_is_resumed_while_a_monitor_gives_shares_stays_resumed(app):
    orders = app.queue("orders")
    orders.configure(partitions=3)
    orders.pause()

    def with_a_resume_before_the_other_partitions():
        steps, answer = policy_shares.share_again("orders", layout_of(app)), None
        try:
            while True:
                request = steps.send(answer)
                answer = yield request
                if answer == 1:  # it has given the first one its share
                    orders.resume()
        except StopIteration as stop:
            return stop.value

    assert app.store.run(with_a_resume_before_the_other_partitions())
    assert [one.stats.paused for one in orders.partitions().partitions] == [False] * 3


@pytest.mark.parametrize("calls", range(1, 8))
@pytest.mark.parametrize("act", ["pause", "policy"])
def test_a_change_whose_caller_died_is_finished_by_a_monitor(app, client, monitor, act, calls):
    """`calls`: after so many round trips the caller is no more; then it is as if it had been paused in all of them."""
    orders = app.queue("orders")
    orders.configure(partitions=3, max_length=30)
    orders.send("body")
    if act == "pause":
        steps: ops.Steps[object] = policy_shares.switch(orders._steps.homes, "the pause", paused=True)
    else:
        changes = {"max_length": "60", "paused": "1"}
        steps = policy_shares.take_effect("orders", layout_of(app), lambda policy: {**policy, **changes})
    app.store.run(broken_off(steps, calls))
    paused = orders.config().paused
    monitor.tend_partitions()
    assert not client.hexists(QueueKeys("orders").config, "change")
    assert [one.stats.paused for one in orders.partitions().partitions] == [paused] * 3
    assert orders.config().max_length == (60 if act == "policy" and paused else 30)


def broken_off(steps, calls):
    """Run so many requests of the steps, and no more."""
    answer = None
    for _ in range(calls):
        try:
            answer = yield steps.send(answer)
        except StopIteration:
            return


def noted(token):
    return ops.set_policy(QueueKeys("orders"), [Config.CHANGE, token])


def test_a_monitor_does_not_end_a_change_that_has_begun_since(app, client, monitor):
    orders = app.queue("orders")
    orders.configure(partitions=3)
    app.store.call(noted("first"))
    steps = policy_shares.finish_change("orders", layout_of(app), "first")

    def with_another_before_its_end():
        answer, begun = None, False
        try:
            while True:
                request = steps.send(answer)
                if not begun:
                    begun = True
                    yield noted("second")
                answer = yield request
        except StopIteration:
            return

    app.store.run(with_another_before_its_end())
    assert app.store.call(ops.unfinished_change(QueueKeys("orders"))) == "second"
    monitor.tend_partitions()
    assert app.store.call(ops.unfinished_change(QueueKeys("orders"))) is None


def test_a_second_change_waits_for_the_end_of_the_first(app, monitor):
    orders = app.queue("orders")
    orders.send("body", key=key_that_moves(1, 2)[0])
    orders.configure(partitions=2)
    with pytest.raises(ChangeUnderWay, match="the change of queue 'orders' from 1 to 2 is still under way"):
        orders.configure(partitions=4)
    orders.purge()
    monitor.tend_partitions()
    assert orders.configure(partitions=4).partitions == 4


def test_a_change_whose_caller_died_when_it_had_stored_the_layout_is_finished_by_a_monitor(app, monitor):
    orders = app.queue("orders")
    orders.send("body", key=key_that_moves(1, 3)[0])
    app.store.run(resizing.change("orders", 3, sharded=False))
    with orders.consumer() as consumer:
        consumer.ack(*consumer.claim(wait=1))
    monitor.tend_partitions()
    assert not orders.partitions().moving
    assert orders.configure(partitions=2).partitions == 2


def test_a_change_that_fails_stays_known_as_failing_though_no_message_waits(app, monitor, monkeypatch):
    orders = app.queue("orders")
    orders.send("body", key=key_that_moves(1, 3)[0])
    app.store.run(resizing.change("orders", 3, sharded=False))

    def refused(*arguments):
        raise reliq.RedisUnsuitable("as it should")

    with monkeypatch.context() as patched:
        patched.setattr(ops, "take_in", refused)
        monitor.tend_partitions()
    assert ("partitions", "orders") in monitor.state().failing


def test_a_change_that_was_interrupted_is_brought_to_its_end_by_a_monitor(app, monitor, monkeypatch):
    orders = app.queue("orders")
    orders.configure(max_length=800)
    orders.send("1", key=key_that_moves(1, 4)[0])
    real, calls = ops.take_in, []

    def dies_half_way(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(ops, "take_in", dies_half_way)
        with pytest.raises(KeyboardInterrupt):
            orders.configure(partitions=4)
    orders.send_many(["body"] * 100)
    sender = threading.Thread(
        target=orders.send_many, args=([reliq.NewMessage("body", key=f"k{number}") for number in range(100)],)
    )
    sender.start()  # keys that move have no home before the monitor has told all partitions
    eventually(lambda: orders.stats().ready > 101)
    monitor.tend_partitions()
    sender.join()
    assert orders.stats().ready == 201
    assert orders.config().max_length == 800
    assert app.store.run(stats_of(QueueKeys(NAMES[3]))).ready > 0 or layout_of(app).moving


@pytest.mark.long
@pytest.mark.parametrize("kind", ["inline", "threads"])
def test_nothing_is_lost_and_each_key_is_in_order_while_the_number_changes_under_load(app, url, kind):
    orders = app.queue("orders")
    sent: dict[str, int] = defaultdict(int)
    seen: dict[str, list[int]] = defaultdict(list)
    running: set[str] = set()
    overlaps: list[str] = []
    stop = threading.Event()

    @app.handler("orders")
    def handle(message: reliq.Message) -> None:
        key = message.key
        if key:
            if key in running:
                overlaps.append(key)
            running.add(key)
            time.sleep(0.0005)
            running.discard(key)
        seen[key].append(int(message.body))

    def produce(part: int) -> None:
        with reliq.Reliq(url) as producer:
            queue = producer.queue("orders")
            while not stop.is_set():
                # Else the backlog, not the change, takes the time.
                if sum(sent.values()) - sum(map(len, [*seen.values()])) > 400:
                    time.sleep(0.005)
                    continue
                keys = [f"{part}-{number}" for number in range(40)]
                batch = []
                for key in keys:
                    batch.append(reliq.NewMessage(str(sent[key]), key=key))
                    sent[key] += 1
                queue.send_many(batch)
                queue.send_many(["0"] * 20)
                sent[""] += 20

    producers = [threading.Thread(target=produce, args=(part,)) for part in range(3)]
    options = {"threads": 4} if kind == "threads" else {}
    with working(app, monitor=True, **options):  # type: ignore[arg-type]
        for one in producers:
            one.start()
        for count in (4, 7, 2, 1, 3):
            eventually(lambda: not layout_of(app).moving, timeout=60, what="the change before has ended")
            orders.configure(partitions=count)
            time.sleep(0.3)  # load between two changes
        stop.set()
        for one in producers:
            one.join()
        eventually(lambda: sum(map(len, seen.values())) >= sum(sent.values()), timeout=120)
        eventually(lambda: not layout_of(app).moving, timeout=10)
    assert {key: len(some) for key, some in seen.items()} == dict(sent)
    wrong = [key for key, some in seen.items() if key and some != sorted(some)]
    for key in wrong[:4]:
        print(
            key,
            [(i, some) for i in range(len(seen[key])) if (some := seen[key][max(0, i - 2) : i + 3]) != sorted(some)],
        )
    assert (wrong, overlaps) == ([], [])
