"""Flows whose messages lie in several partitions, while the number of these changes too."""

import threading

import pytest

import reliq
from reliq import ops
from reliq.model.keys import QueueKeys
from tests.support.turns import Monitor
from tests.support.workers import eventually, working

NAMES = ["orders", *(f"orders@partition.{number}" for number in range(1, 4))]


@pytest.fixture
def ran(app):
    done: list[str] = []
    lock = threading.Lock()

    @app.handler("orders", result="1h")
    def handle(message):
        with lock:
            done.append(message.body.decode())
        if message.body == b"dies":
            raise reliq.Dead("as it should")
        return sorted(message.results()) if message.body == b"end" else int(message.body)

    return done


def nothing_is_left(app, client, flow) -> None:
    Monitor(app.store).tell_flows()
    for name in NAMES:
        keys = QueueKeys(name)
        assert not client.exists(keys.followed, keys.active, keys.waiting, keys.flows)
    assert app.flow_progress(flow.id).state == "ended"


def test_a_fan_in_over_all_partitions(app, client, orders, ran):
    with app.flow() as flow:
        keyed = [flow.send("orders", number, key=f"k{number}") for number in range(10)]
        parts = [*keyed, *(flow.send("orders", number) for number in range(10, 40))]
        end = flow.send("orders", "end", after=parts)
    spread = [app.store.call(ops.list_length(QueueKeys(name).messages)) for name in NAMES]
    assert all(spread)
    with working(app, monitor=True):
        eventually(lambda: "end" in ran)
    assert (sorted(map(int, ran[:-1])), ran[-1]) == ([*range(40)], "end")
    assert orders.result(end.id) == [*range(40)]
    nothing_is_left(app, client, flow)


def test_a_chain_over_keys_with_homes_of_their_own(app, client, orders, ran):
    with app.flow() as flow:
        before: list = []
        for number in range(12):
            before = [flow.send("orders", number, key=f"k{number}", after=before)]
    with working(app, monitor=True):
        eventually(lambda: len(ran) == 12)
    assert ran == [*map(str, range(12))]
    nothing_is_left(app, client, flow)


def test_failures_are_judged_across_partitions(app, client, orders, ran):
    with app.flow() as flow:
        first = flow.send("orders", "dies", key="a")
        for number in range(8):
            flow.send("orders", number, key=f"k{number}", after=[first], on_failure="run" if number % 2 else "skip")
    with working(app, monitor=True):
        eventually(lambda: len(ran) == 5)
        eventually(lambda: not any(one.state == "open" for one in app.flow_progress(flow.id).members))
    assert sorted(ran[1:]) == ["1", "3", "5", "7"]
    states = [one.state for one in app.flow_progress(flow.id).members]
    assert states == ["dead", *["skipped", "handled"] * 4]


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (4, 3)])
def test_the_number_of_partitions_changes_while_messages_wait(app, client, orders, ran, before, after):
    orders.configure(partitions=before)
    with working(app, monitor=True):
        eventually(lambda: not orders.partitions().moving)
    with app.flow() as flow:
        first = [flow.send("orders", number, key=f"k{number}") for number in range(10)]
        middle = [flow.send("orders", 10 + number, key=f"k{number}", after=[first[number]]) for number in range(10)]
        flow.send("orders", "end", after=middle)
    orders.configure(partitions=after)
    with app.flow() as during:
        during.send("orders", 101, key="k1", after=[during.send("orders", 100, key="k1")])
    with working(app, monitor=True):
        eventually(lambda: len(ran) == 23)
        eventually(lambda: app.flow_progress(flow.id).state == app.flow_progress(during.id).state == "ended")
    places = {body: place for place, body in enumerate(ran)}
    assert len(places) == 23
    assert all(places[str(number)] < places[str(10 + number)] < places["end"] for number in range(10))
    assert places["1"] < places["100"] < places["101"]


def test_a_producer_with_a_stale_layout_leaves_nothing_in_partitions_that_are_gone(app, url, client, orders, ran):
    orders.configure(partitions=4)
    monitor = Monitor(app.store)
    with reliq.Reliq(url) as stale:
        stale.queue("orders").send("0")
        orders.purge()
        orders.configure(partitions=1)
        while orders.partitions().partitions[1:]:
            monitor.scan()
            monitor.tend_partitions()
        with stale.flow() as flow:
            first = [flow.send("orders", number, key=f"k{number}") for number in range(10)]
            flow.send("orders", "end", key="end", after=first)
            flow.send("orders", "end", key="other", after=first)
    with working(app):
        eventually(lambda: len(ran) == 12)
    nothing_is_left(app, client, flow)


def test_messages_of_a_flow_go_to_partitions_that_have_room(app, client, orders):
    orders.configure(max_length=100)  # 25 a partition
    orders.send_many([reliq.NewMessage("x", key="k") for _ in range(25)])
    with app.flow() as flow:
        first = [flow.send("orders", number) for number in range(20)]
        flow.send("orders", "end", after=first)
    assert (orders.stats().ready, orders.stats().counters.get("cancelled")) == (46, None)
    refused = r"holds 25 of at most 25 messages; nothing of flow \w+ was sent"
    with pytest.raises(reliq.QueueFull, match=refused), app.flow() as flow:  # noqa: PT012
        for number in range(20):
            flow.send("orders", number)
        flow.send("orders", "keyed", key="k")
    with pytest.raises(reliq.QueueFull), app.flow() as other:  # noqa: PT012
        for number in range(70):
            other.send("orders", number)
    assert [app.flow_progress(one.id) for one in (flow, other)] == [None, None]
    assert orders.stats().ready == 46
