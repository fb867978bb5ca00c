"""A queue with partitions is one queue: what is sent, read and changed concerns all of them."""

import contextlib
from collections import Counter

import pytest

import reliq
from reliq.errors import (
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    LeaseLost,
    OutcomeUnknown,
    PreparedClosed,
    QueueFull,
)
from reliq.model import partitions
from reliq.model.keys import QueueKeys, partition_queue
from reliq.model.partitions import bucket_of_key, home_by_bucket
from reliq.ops import Together
from reliq.protocol import spread
from reliq.protocol.stats import stats_of
from tests.support.workers import eventually

NAMES = ["orders", *(f"orders@partition.{number}" for number in range(1, 4))]
#: Keys with their homes in three of them.
KEYS_OF_THREE = [
    next(key for key in map(str, range(100)) if home_by_bucket(4)[bucket_of_key(key)] == one) for one in range(3)
]


def ready_by_partition(app: reliq.Reliq) -> dict[str, int]:
    return {name: app.store.run(stats_of(QueueKeys(name))).ready for name in NAMES}


def test_a_queue_has_the_partitions_that_it_was_given(orders):
    assert orders.config().partitions == 4


def test_a_send_makes_no_names_of_all_partitions(app, orders, monkeypatch):
    """With 256 of them, a thousand messages with keys took a producer 0.1 s for that."""
    orders.send("first")
    made: list[str] = []

    def counted(queue, name):
        made.append(name)
        return partition_queue(queue, name)

    monkeypatch.setattr(partitions, "partition_queue", counted)
    orders.send("body")
    orders.send_many([reliq.NewMessage("body", key=str(number)) for number in range(100)])
    assert made == []


def test_calls_about_many_partitions_share_a_connection(url, client):
    with reliq.Reliq(url) as app:
        queue = app.queue("orders")
        others = {one["id"] for one in client.client_list()}
        queue.configure(partitions=64)
        queue.send_many(["body"] * 5_000)
        queue.pause()
        assert queue.stats().ready == queue.purge() == 5_000
        own = [one for one in client.client_list() if one["id"] not in others]
    assert len(own) <= 3  # one for the steps, one for what they do together, one for what that does together


def test_messages_without_a_key_are_spread_evenly(app, orders):
    ids = orders.send_many(["body"] * 4000)
    assert len(set(ids)) == 4000
    assert set(ready_by_partition(app).values()) == {1000}
    assert orders.stats().ready == 4000


def test_single_sends_go_to_one_partition_after_another(app, orders):
    for _ in range(40):
        orders.send("body")
    assert set(ready_by_partition(app).values()) == {10}


def test_messages_of_a_key_go_to_its_home(app, orders):
    keys = [f"customer-{number}" for number in range(100)]
    for key in keys:
        orders.send("body", key=key)
    wanted = Counter(NAMES[home_by_bucket(4)[bucket_of_key(key)]] for key in keys)
    assert ready_by_partition(app) == dict(wanted)


def test_a_producer_that_knows_one_partition_learns_of_the_others(app, url):
    late = reliq.Reliq(url)
    late.queue("orders").send("before")
    app.queue("orders").configure(partitions=4)
    for number in range(20):
        late.queue("orders").send("body", key=f"k{number}")
    late.close()
    wanted = Counter(NAMES[home_by_bucket(4)[bucket_of_key(f"k{number}")]] for number in range(20))
    assert ready_by_partition(app) == dict(wanted + Counter(orders=1))


def test_a_batch_of_all_kinds_keeps_the_order_of_its_ids(app, orders):
    messages = [
        reliq.NewMessage(f"{place}", id=f"id-{place}", key=f"k{place % 7}" if place % 3 else None, delay=place % 2)
        for place in range(500)
    ]
    assert orders.send_many(messages) == [f"id-{place}" for place in range(500)]
    stats = orders.stats()
    assert (stats.ready + stats.delayed, stats.delayed) == (500, 250)


def test_a_dedup_key_is_known_wherever_the_message_comes_from(app, orders):
    first = [orders.send("body", dedup_key=f"d{number}") for number in range(30)]
    again = [orders.send("body", dedup_key=f"d{number}") for number in range(30)]
    assert again == first
    assert orders.stats().ready == 30


def test_a_newer_message_replaces_the_one_that_waits(app, orders):
    for number in range(10):
        for version in range(3):
            orders.send(f"{number} {version}", dedup_key=f"d{number}", replace=True, debounce=60)
    assert sorted(one.body.decode() for one in orders.delayed.list()) == [f"{number} 2" for number in range(10)]


def test_a_large_body_goes_with_its_message(app, orders):
    orders.send_many([b"x" * 100_000] * 8)
    with orders.consumer() as consumer:
        assert consumer.claim(limit=8)[0].body == b"x" * 100_000


def test_pages_of_delayed_messages_are_in_the_order_of_their_due_times(app, orders):
    orders.send_many([reliq.NewMessage(str(place), delay=60 + place) for place in range(100)])
    found, cursor = [], None
    while True:
        page = orders.delayed.list(limit=7, after=cursor)
        found += [one.body.decode() for one in page]
        cursor = page.next
        if cursor is None:
            break
    assert found == [str(place) for place in range(100)]


@pytest.fixture
def dead(orders: reliq.Queue) -> list[str]:
    ids = orders.send_many([reliq.NewMessage(str(place), headers={"half": str(place % 2)}) for place in range(60)])
    with orders.consumer() as consumer:
        while messages := consumer.claim(limit=10):
            for message in messages:
                consumer.dead(message, "broken")
    return ids


def test_pages_of_dead_letters_have_each_once_latest_first(orders, dead):
    found, cursor = [], None
    while True:
        page = orders.dead.list(limit=11, after=cursor)
        found += page.letters
        cursor = page.next
        if cursor is None:
            break
    assert sorted(one.id for one in found) == sorted(dead)
    assert [one.died_at for one in found] == sorted((one.died_at for one in found), reverse=True)
    assert {one.queue for one in found} == {"orders"}


def test_dead_letters_are_filtered_redriven_and_purged_in_all_partitions(orders, dead):
    assert len(orders.dead.list(limit=100, headers={"half": "1"})) == 30
    assert orders.dead.redrive(limit=10, headers={"half": "1"}).redriven == 10
    assert orders.dead.redrive(headers={"half": "1"}).redriven == 20
    assert orders.dead.purge(headers={"half": "0"}) == 30
    stats = orders.stats()
    assert (stats.ready, stats.dead) == (30, 0)


def test_one_message_is_found_and_cancelled_wherever_it_is(orders, dead):
    waiting = orders.send("body", delay=60, key="k9")
    assert orders.find(waiting).place == "delayed"
    assert orders.cancel(waiting)
    assert orders.find(dead[17]).place == "dead"
    assert orders.dead.get(dead[17]).body == b"17"
    assert orders.cancel("unknown") == "unknown"


def test_of_messages_with_one_id_one_of_each_partition_is_cancelled(app, orders):
    for _ in range(8):
        orders.send("body", id="same")  # in turn, to one partition after the other
    assert [orders.cancel("same") for _ in range(3)] == ["cancelled", "cancelled", "unknown"]
    assert ready_by_partition(app) == dict.fromkeys(NAMES, 0)


def test_the_lowest_rate_holds_for_all_partitions(app, client):
    """A share of it has digits after many zeros."""
    small = app.queue("orders")
    small.configure(rate="1/d", partitions=64)
    small.configure(rate="0.00002/s")
    small.send_many(range(1000))
    with small.consumer() as consumer:
        claimed = [message for _ in range(4) for message in consumer.claim(limit=100)]
    assert len(claimed) <= 64 + 1


def test_a_policy_holds_for_all_partitions(app, orders):
    config = orders.configure(max_length=1000, rate="100/s", concurrency=10, dead_max_count=7, max_deliveries=3)
    assert (config.max_length, config.rate, config.concurrency, config.dead_max_count) == (1000, "100/s", 10, 7)
    parts = [app.queue(name, of_broadcast=True).config() for name in NAMES[1:]]
    assert [one.max_length for one in parts] == [250] * 3
    assert [one.concurrency for one in parts] == [3, 2, 2]
    assert [one.rate for one in parts] == ["25/s"] * 3
    assert [one.max_deliveries for one in parts] == [3] * 3
    assert orders.configure(rate=None).rate is None
    assert app.queue(NAMES[2], of_broadcast=True).config().rate is None


def test_a_concurrency_below_the_number_of_partitions_is_refused(orders):
    with pytest.raises(InvalidSetting, match="concurrency is 3 and partitions is 4"):
        orders.configure(concurrency=3)
    assert orders.config().concurrency is None


def test_pause_and_purge_concern_all_partitions(app, orders):
    orders.send_many(["body"] * 400)
    orders.pause()
    assert all(app.store.run(stats_of(QueueKeys(name))).paused for name in NAMES)
    assert orders.purge() == 400
    orders.resume()
    assert not orders.stats().paused


@pytest.mark.parametrize("count", [0, 257, "many"])
def test_a_number_that_is_none_is_refused(app, count):
    with pytest.raises(InvalidSetting, match="partitions is"):
        app.queue("orders").configure(partitions=count)


def test_a_partition_is_no_queue_for_users(app):
    with pytest.raises(InvalidName, match="use the name of its queue, 'orders'"):
        app.queue(partition_queue("orders", "1"))
    assert QueueKeys("orders@partition.1").logical == "orders"


@pytest.mark.parametrize("key", KEYS_OF_THREE)
def test_errors_name_the_queue_and_no_partition(orders, key):
    handle = orders.prepare("body", key=key)
    handle.commit()
    with pytest.raises(PreparedClosed, match="of queue 'orders' is committed"):
        handle.rollback()
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        consumer.ack(message)
        with pytest.raises(LeaseLost, match="of 'orders' is not held here"):
            message.checkpoint(1)


def test_the_list_of_queues_has_it_once(app, orders):
    orders.send_many(["body"] * 400)
    assert app.queues() == ["orders"]


def test_published_messages_go_to_the_home_of_their_key(app, orders):
    app.subscribe("orders", "order.*")
    for number in range(40):
        app.publish("order.created", "body", key=f"k{number}")
    wanted = Counter(NAMES[home_by_bucket(4)[bucket_of_key(f"k{number}")]] for number in range(40))
    assert ready_by_partition(app) == dict(wanted)


def test_a_prepared_message_goes_to_no_partition_that_was_given_up(app, url, orders):
    late = reliq.Reliq(url)
    late.queue("orders").send("so that it knows four partitions", key="k")
    with orders.consumer() as consumer:
        consumer.ack(*consumer.claim(wait=1))
    orders.configure(partitions=1)
    for number in range(20):
        late.queue("orders").prepare("body", key=f"k{number}").commit()
    assert app.store.run(stats_of(QueueKeys("orders"))).ready == 20
    late.close()


def test_a_call_of_which_one_partition_is_full_and_another_does_not_answer_has_an_unknown_outcome(app, orders):
    answers = iter([QueueFull("full"), OutcomeUnknown("silent", ("b",)), OutcomeUnknown("silent", ("c",))])
    messages = [reliq.NewMessage(name, id=name, key=key) for name, key in zip("abc", KEYS_OF_THREE, strict=True)]
    steps = spread.send(app._queue_steps("orders").homes, messages)
    request = next(steps)
    while not isinstance(request, Together):
        request = steps.send(app.store.call(request))
    with pytest.raises(OutcomeUnknown) as caught:
        steps.send([next(answers) for _ in request.steps])
    assert caught.value.ids == ("b", "c")


def test_a_prepared_message_is_decided_by_its_id_alone(app, orders):
    handles = [orders.prepare("body", key=f"k{number}") for number in range(20)]
    assert orders.stats().prepared == 20
    for handle in handles[:15]:
        orders.prepared(handle.id).commit()
    for handle in handles[15:]:
        orders.prepared(handle.id).rollback()
    stats = orders.stats()
    assert (stats.prepared, stats.ready) == (0, 15)


def test_prepared_messages_without_a_key_spread_by_their_ids(app, orders):
    orders.configure(max_length=100)
    handles = [orders.prepare("body", id=f"m{number}") for number in range(60)]
    for handle in handles:
        orders.prepared(handle.id).commit()
    assert sorted(ready_by_partition(app)) == sorted(NAMES)
    with pytest.raises(InvalidMessage, match="m7 is prepared already"):
        orders.prepare("body", id="m7")
    with pytest.raises(QueueFull, match="of at most 25"):
        [orders.prepare("body", id=f"m{number}") for number in range(60, 200)]


def test_an_id_is_prepared_once_whatever_the_keys(app, orders):
    """Else a commit would decide about one of the two messages only."""
    orders.prepare("body", id="m7", key="k0")
    for number in range(20):
        with pytest.raises(InvalidMessage, match="m7 is prepared already"):
            orders.prepare("body", id="m7", key=f"k{number}")
    orders.prepared("m7").commit()
    assert (orders.stats().prepared, orders.stats().ready) == (0, 1)


def test_a_message_without_a_key_goes_to_a_partition_that_has_room(app, orders):
    orders.configure(max_length=8)
    key = KEYS_OF_THREE[0]
    orders.send_many([reliq.NewMessage("body", key=key)] * 2)
    for _ in range(6):
        orders.send("body")
    with pytest.raises(QueueFull, match=r"^the 4 partitions of queue 'orders' have room for 0 messages; none of"):
        orders.send("body")
    stats = orders.stats()
    assert (stats.ready, stats.counters["rejected"]) == (8, 1)


@pytest.mark.parametrize(("most", "count"), [(8, 7), (8, 8), (1000, 1000)])
def test_a_call_that_fits_into_all_partitions_together_is_taken(orders, most, count):
    orders.configure(max_length=most)
    assert len(set(orders.send_many(["body"] * count))) == count
    assert orders.stats().ready == count


@pytest.mark.parametrize(("most", "count"), [(8, 9), (8, 1000)])
def test_a_call_that_does_not_fit_into_all_partitions_together_is_refused_whole(orders, most, count):
    orders.configure(max_length=most)
    with pytest.raises(QueueFull, match=f"have room for {most} messages; none of the {count} was enqueued") as caught:
        orders.send_many(["body"] * count)
    assert caught.value.sent == ()
    assert orders.stats().counters["rejected"] == count


def test_a_call_goes_where_there_is_room_when_the_partitions_are_full_in_part(app, orders):
    orders.configure(max_length=2000)
    for number, key in enumerate(KEYS_OF_THREE):
        orders.send_many([reliq.NewMessage("keyed", key=key)] * (number + 1) * 100)
    assert len(orders.send_many(["body"] * 1350)) == 1350
    with pytest.raises(QueueFull, match="have room for 50 messages; none of the 51 was enqueued"):
        orders.send_many(["body"] * 51)
    assert len(orders.send_many(["body"] * 50)) == 50


@pytest.mark.parametrize(("partitions", "way"), [(1, "send"), (2, "send"), (1, "publish"), (1, "flow")])
def test_a_producer_whose_partitions_are_full_learns_of_others(app, url, partitions, way):
    """It reads their number once a minute; for that long it would refuse what the others have room for."""
    queue = app.queue("filled")
    queue.configure(max_length=8, partitions=partitions)
    app.subscribe("filled", "order")
    with contextlib.closing(reliq.Reliq(url)) as producer:

        def send():
            if way == "send":
                return producer.queue("filled").send("body")
            if way == "publish":
                return producer.publish("order", "body")
            with producer.flow() as flow:
                return flow.send("filled", "body")

        def is_taken():
            with contextlib.suppress(QueueFull):
                return send()

        eventually(lambda: not is_taken())
        queue.configure(max_length=16, partitions=8)
        eventually(is_taken, timeout=10)


def test_a_message_with_a_key_is_refused_where_its_home_is_full(app, orders):
    orders.configure(max_length=8)
    key = KEYS_OF_THREE[0]
    messages = [*[reliq.NewMessage("keyed", key=key)] * 3, *["body"] * 5]
    with pytest.raises(QueueFull, match="holds 0 of at most 2 messages; none of the 3 was enqueued") as caught:
        orders.send_many(messages)
    assert len(caught.value.sent) == orders.stats().ready


def test_partitions_without_room_for_more_bytes_are_avoided(app, orders):
    orders.configure(max_bytes=4 * 1024 * 1024)
    large = "x" * 300 * 1024
    for _ in range(3):
        orders.send(large, key=KEYS_OF_THREE[0])
    with pytest.raises(QueueFull, match="bytes; none of the 1 was enqueued"):
        orders.send(large, key=KEYS_OF_THREE[0])
    for _ in range(9):
        orders.send(large)
    assert orders.stats().ready == 12


def test_a_queue_whose_other_partitions_are_retired_takes_a_message_with_one_call(app, orders):
    orders.send("body", priority="high")
    orders.configure(partitions=1)
    for _ in range(2):  # the first call may learn of the change
        steps = spread.send(app._queue_steps("orders").homes, [reliq.NewMessage("body", priority="high")])
        requests, answer = 0, None
        try:
            while True:
                request = steps.send(answer)
                requests, answer = requests + 1, app.store.call(request)
        except StopIteration:
            pass
    assert requests == 1
