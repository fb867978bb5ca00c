"""Workers share the partitions of a queue by themselves."""

import threading
import time
from collections import Counter, defaultdict
from typing import Any

import pytest
import redis

import reliq
from reliq.client.heartbeat import Heartbeat
from reliq.model.keys import QueueKeys, new_owner
from reliq.model.partitions import bucket_of_key, home_by_bucket
from reliq.ops import breaker_until, held_until, hold, members
from reliq.protocol.stats import stats_of
from reliq.worker import Options, Worker
from reliq.worker.assignment import Assignment
from tests.support.shares import loads, shares
from tests.support.workers import eventually, working

NAMES = ["orders", *(f"orders@partition.{number}" for number in range(1, 4))]


def consumers_of(app: reliq.Reliq) -> list[set[str]]:
    """Return the processes that serve each partition."""
    return [{one.partition(".")[0] for one in app.store.call(members(QueueKeys(name).consumers))} for name in NAMES]


@pytest.fixture(params=["inline", "threads", "asyncio"])
def kind(request) -> str:
    return request.param


def bind(app: reliq.Reliq, kind: str, function) -> dict[str, Any]:
    if kind == "asyncio":

        @app.handler("orders")
        async def handle(message: reliq.Message) -> None:
            function(message)

    else:
        app.handler("orders")(function)
    return {"threads": 4} if kind == "threads" else {}


def test_one_worker_serves_all_partitions_and_none_waits_for_the_others(app, kind):
    orders = app.queue("orders")
    orders.configure(partitions=4)
    handled: dict[str, float] = {}
    options = bind(app, kind, lambda message: handled.setdefault(message.id, time.monotonic()))
    ids: dict[str, list[str]] = {name: [] for name in NAMES}
    for number in range(400):
        key = f"k{number}"
        ids[NAMES[home_by_bucket(4)[bucket_of_key(key)]]].append(orders.send("body", key=key))
    with working(app, **options):
        eventually(lambda: len(handled) == 400)
    ends = [max(handled[one] for one in some) for some in ids.values()]
    starts = [min(handled[one] for one in some) for some in ids.values()]
    assert max(starts) < min(ends) or max(ends) - min(starts) < 1.0


def test_messages_have_the_name_of_the_queue_and_are_in_order_by_key(app, kind):
    orders = app.queue("orders")
    orders.configure(partitions=4)
    order: dict[str, list[int]] = defaultdict(list)
    queues = set()

    def handle(message: reliq.Message) -> None:
        queues.add(message.queue)
        order[message.key].append(int(message.body))

    options = bind(app, kind, handle)
    orders.send_many([reliq.NewMessage(str(place), key=f"k{place % 20}") for place in range(1000)])
    with working(app, **options):
        eventually(lambda: sum(map(len, order.values())) == 1000)
    assert queues == {"orders"}
    assert all(places == sorted(places) for places in order.values())


def test_two_workers_have_two_partitions_each_and_one_takes_all_when_the_other_ends(app, url):
    app.queue("orders").configure(partitions=4)
    bind(app, "inline", lambda message: None)
    other = reliq.Reliq(url)
    bind(other, "inline", lambda message: None)
    with working(app):
        with working(other):
            eventually(lambda: sorted(Counter(one for some in consumers_of(app) for one in some).values()) == [2, 2])
        eventually(lambda: all(consumers_of(app)) and len(set.union(*consumers_of(app))) == 1)
    other.close()


def test_an_idle_worker_helps_with_a_partition_that_is_behind(app, url):
    orders = app.queue("orders")
    orders.configure(partitions=4)
    by_worker: dict[str, int] = Counter()
    lock = threading.Lock()

    def slow(name: str):
        def handle(message: reliq.Message) -> None:
            time.sleep(0.02)
            with lock:
                by_worker[name] += 1

        return handle

    other = reliq.Reliq(url)
    bind(app, "inline", slow("a"))
    bind(other, "inline", slow("b"))
    names = (f"k{number}" for number in range(4000))
    keys = [key for key in names if home_by_bucket(4)[bucket_of_key(key)] == 2][:500]
    with working(app), working(other):
        eventually(lambda: len(set.union(*consumers_of(app))) == 2 and all(consumers_of(app)))
        orders.send_many([reliq.NewMessage("body", key=key) for key in keys])
        eventually(lambda: sum(by_worker.values()) == len(keys), timeout=40)
    assert min(by_worker["a"], by_worker["b"]) > 0
    other.close()


def test_a_partition_that_another_worker_serves_from_now_on_is_not_reported_as_a_lost_lease(app, caplog):
    bind(app, "inline", lambda message: None)
    worker = Worker(app.store, app.handlers, Options(), new_owner())
    (loop,) = worker._loops
    loop.exchange.ensure_registered()
    leases = worker._leases()  # read by a heartbeat, which is sent after the consumer has unregistered
    assert loop.exchange.leave(lambda: False)
    Heartbeat(app.store, new_owner(), 15.0, lambda: leases, worker._lost).beat()
    assert "lease_lost" not in caplog.text
    assert loop.exchange.steps.consumer == leases[0].consumer


def test_a_worker_that_hands_back_at_the_end_of_its_grace_reports_no_lost_lease(app, caplog):
    bind(app, "inline", lambda message: None)
    worker = Worker(app.store, app.handlers, Options(), new_owner())
    (loop,) = worker._loops
    app.queue("orders").send("body")
    loop.exchange.settle_and_claim(1)
    leases = worker._leases()
    loop.exchange.hand_back(app.store.connection())
    Heartbeat(app.store, new_owner(), 15.0, lambda: leases, worker._lost).beat()
    assert "lease_lost" not in caplog.text
    assert app.queue("orders").stats().ready == 1


def test_partitions_that_are_added_while_it_runs_are_served(app):
    handled = []
    app.handler("orders")(lambda message: handled.append(message.id))
    orders = app.queue("orders")
    with working(app):
        orders.send("before")
        orders.configure(partitions=4)
        sent = {orders.send("after", key=f"k{number}") for number in range(50)}
        eventually(lambda: len(handled) == 51)
    assert sent < set(handled)
    assert app.store.run(stats_of(QueueKeys(NAMES[3]))).counters["acked"] > 0


def test_the_partitions_of_a_process_that_fell_silent_are_served_by_the_others(app):
    app.queue("orders").configure(partitions=4)
    first, second = (Assignment("orders", owner) for owner in ("c" + "0" * 20, "c" + "1" * 20))
    for one in (first, second, first):
        app.store.run(one.look(taken_at=time.monotonic()))
    assert sorted(first.mine + second.mine) == NAMES
    assert len(first.mine) == 2
    with redis.Redis.from_url(app.url) as client:
        client.zincrby(QueueKeys("orders").servers, -4000, "c" + "0" * 20)
    app.store.run(second.look(taken_at=time.monotonic()))
    assert second.mine == NAMES
    app.store.run(second.leave())
    app.store.run(first.look(taken_at=time.monotonic()))
    assert first.mine == NAMES


OWNERS = [f"c{number:020x}" for number in range(100)]


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 7, 8, 11, 12, 13, 16, 50])
@pytest.mark.parametrize("partitions", [2, 3, 4, 12, 24, 64])
def test_all_partitions_are_served_and_no_process_has_much_more_to_do_than_another(partitions, workers):
    served = shares(partitions, OWNERS[:workers])
    assert len(set().union(*served.values())) == partitions
    assert max(loads(served)) <= 1.25 * min(loads(served))


@pytest.mark.parametrize(
    ("partitions", "workers", "most"),
    [(4, 2, 2), (4, 3, 2), (12, 5, 3), (12, 16, 2), (64, 20, 4), (64, 100, 2), (4, 50, 1)],
)
def test_a_process_serves_few_partitions(partitions, workers, most):
    assert max(map(len, shares(partitions, OWNERS[:workers]).values())) == most


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8, 13])
def test_few_partitions_change_hands_when_a_process_comes(workers):
    before, after = shares(24, OWNERS[:workers]), shares(24, [*OWNERS[:workers], "cffffffffffffffffffff"])
    assert sum(len(before[one] - after[one]) for one in before) <= sum(map(len, before.values())) / 2


def test_a_handler_that_holds_its_queue_holds_all_partitions(app, orders):
    started = []

    @app.handler("orders")
    def handle(message):
        started.append(message.id)
        raise reliq.Retry("later", delay=60, scope="queue")

    orders.send_many(["body"] * 400)
    with working(app):
        eventually(lambda: started)
        time.sleep(1.0)  # in which it would take hundreds
    assert len(started) <= 8  # those that the loops of the four partitions had taken before
    assert [one.stats.limited_by for one in orders.partitions().partitions] == ["held"] * 4


def test_a_process_says_which_of_its_partitions_are_closed(app, caplog):
    queue, one = app.queue("orders"), Assignment("orders", "c" + "0" * 20)
    for count in (4, 2):
        queue.configure(partitions=count)
        with caplog.at_level("INFO"):
            app.store.run(one.look(taken_at=time.monotonic()))
    assert [record.getMessage() for record in caplog.records if "serves" in record.getMessage()] == [
        "queue=orders serves 4 of 4 partitions",
        "queue=orders serves 4 of 4 partitions, of which 2 are closed",
    ]


def test_a_hold_reaches_partitions_that_the_worker_does_not_know_yet(app):
    queue, one = app.queue("orders"), Assignment("orders", "c" + "0" * 20)
    app.store.run(one.look(taken_at=time.monotonic()))
    queue.configure(partitions=4)
    app.store.run(one.hold_others("orders", 60.0))
    assert [bool(app.store.call(held_until(QueueKeys(name)))) for name in NAMES] == [False, True, True, True]


def test_partitions_that_are_added_during_a_hold_are_held_as_long(app):
    until = app.store.call(hold(QueueKeys("orders"), 60.0))
    app.queue("orders").configure(partitions=4)
    ends = [app.store.call(held_until(QueueKeys(name))) for name in NAMES]
    assert all(abs(end - until) < 1000 for end in ends)


def test_partitions_that_are_added_while_the_breaker_is_open_open_theirs_as_long(app):
    queue = app.queue("orders")
    queue.open_breaker("1h")
    queue.configure(partitions=4)
    until = [app.store.call(breaker_until(QueueKeys(name))) for name in NAMES]
    assert until[0]
    assert all(abs(end - until[0]) < 1000 for end in until)
    assert [one.stats.breaker for one in queue.partitions().partitions] == ["open"] * 4
