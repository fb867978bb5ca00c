"""Receiving messages one by one; every test runs for the sync and for the asyncio face."""

import asyncio
import random
import threading
import time
from collections import defaultdict

import pytest

import reliq
from reliq import InvalidName, InvalidSetting, NewMessage, RedisUnavailable, TooManyInFlight
from reliq.aio import Reliq as AioReliq
from reliq.features.receipts.model import Receipt
from reliq.model.keys import QueueKeys
from reliq.model.partitions import bucket_of
from reliq.protocol import spread
from tests.support.turns import Monitor

KEYS = QueueKeys("q")
MINUTE = 60


def texts(received):
    return [one.message.body.decode() for one in received]


def receipts(received):
    return [one.receipt for one in received]


def let_time_pass(store, received):
    """What time does: the messages are not invisible any more."""
    for one in received:
        store.call(reliq.ops.command("ZADD", KEYS.received, 1, one.message.id))


def left_in_redis(store):
    """The keys of the queue that hold messages, or say something about them; without answers to calls, which expire."""
    consumers = store.call(reliq.ops.members(KEYS.consumers))
    ignored = {KEYS.counters, KEYS.producers, KEYS.consumers, KEYS.workers, KEYS.config, *map(KEYS.lease, consumers)}
    found = store.call(reliq.ops.command("KEYS", "reliq:{q}:*"))
    return {key for one in found if not (key := one.decode()).startswith(KEYS.call(""))} - ignored


def test_each_message_has_a_time_and_a_receipt_of_its_own(queue, store):
    queue.send_many(["a", "b", "c"])
    a, b = queue.receive(limit=2, visibility=MINUTE)
    assert texts([a, b]) == ["a", "b"]
    assert (a.receives, a.message.deliveries) == (1, 1)
    assert queue.stats().processing == 2
    assert queue.delete_received([a.receipt]) == ["deleted"]
    let_time_pass(store, [b])
    (again, _) = sorted(queue.receive(limit=5), key=lambda one: one.message.body)
    assert (again.message.id, again.receives) == (b.message.id, 2)
    assert again.first_received_at == b.first_received_at
    assert again.received_at >= b.received_at
    assert again.receipt != b.receipt


def test_what_is_deleted_leaves_nothing(queue, store):
    queue.send_many([b"small", b"large" * 1000, NewMessage("keyed", key="k"), NewMessage("behind", key="k")])
    received = queue.receive(limit=10, runs=True)
    assert texts(received)[-2:] == ["keyed", "behind"]
    assert received[1].message.body == b"large" * 1000
    assert queue.delete_received(receipts(received)) == ["deleted"] * 4
    assert left_in_redis(store) == set()
    assert queue.stats().counters["acked"] == 4


def test_a_receipt_says_what_became_of_it(queue, store):
    queue.send_many(["a", "b"])
    a, b = queue.receive(limit=2, visibility=MINUTE)
    assert queue.change_visibility([(a.receipt, "5m"), (b.receipt, 0)]) == ["changed", "changed"]
    assert queue.change_visibility([(b.receipt, 5)]) == ["expired"]
    let_time_pass(store, [a])
    assert queue.change_visibility([(a.receipt, 5)]) == ["expired"]
    assert queue.delete_received([a.receipt]) == ["expired"]
    assert queue.delete_received([a.receipt, b.receipt], late=True) == ["deleted", "deleted"]
    nonsense = ["", "x", "\xff", "b3RoZXIgeA", str(Receipt.of("other", a.message))]
    assert queue.delete_received(nonsense) == ["unknown"] * len(nonsense)


def test_what_another_consumer_holds_is_not_deleted_late(queue, store):
    queue.send("a")
    (mine,) = queue.receive(visibility=MINUTE)
    let_time_pass(store, [mine])
    (yours,) = queue.receive(visibility=MINUTE)
    assert queue.delete_received([mine.receipt], late=True) == ["unknown"]
    assert queue.delete_received([mine.receipt]) == ["expired"]
    assert queue.change_visibility([(mine.receipt, MINUTE)], late=True) == ["changed"]
    let_time_pass(store, [yours])
    with queue.consumer() as consumer:
        queue.return_due()
        (held,) = consumer.claim()
        assert queue.delete_received([yours.receipt], late=True) == ["unknown"]
        consumer.ack(held)


def test_a_receive_waits_for_a_message(queue, url):
    assert queue.receive(wait=0.05) == []
    sender = threading.Timer(0.2, lambda: reliq.Reliq(url).queue("q").send("late"))
    sender.start()
    began = time.monotonic()
    assert texts(queue.receive(wait=20)) == ["late"]
    assert time.monotonic() - began < 15
    sender.join()


@pytest.mark.parametrize("partitions", [1, 2])
def test_what_a_waiting_receive_gets_is_counted_as_claimed_once(queue, url, partitions):
    queue.configure(partitions=partitions)
    with reliq.Reliq(url) as other:
        sender = threading.Timer(0.2, other.queue("q").send, ["m"])
        sender.start()
        (received,) = queue.receive(wait=20)
        sender.join()
    queue.delete_received([received.receipt])
    counters = queue.stats().counters
    assert (counters["claimed"], counters["acked"]) == (1, 1)


def test_a_receive_that_waits_gets_what_becomes_visible(queue):
    queue.send("a")
    queue.receive(visibility=0.3)
    (again,) = queue.receive(wait=20)
    assert again.receives == 2


def test_a_receive_that_waits_looks_once_a_second(queue, client):
    def calls():
        stats = client.info("commandstats")
        return sum(stats[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_blmove") if name in stats)

    queue.receive()
    before = calls()
    assert queue.receive(wait=2) == []
    assert calls() - before <= 12, "a look is two scripts and a BLMOVE; before it waits, it registers and looks"


def test_a_monitor_makes_due_messages_ready(queue, store):
    queue.send("a")
    received = queue.receive(visibility=MINUTE)
    let_time_pass(store, received)
    assert Monitor(store).return_due() == 1
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert message.body == b"a"


def test_a_monitor_sends_dead_letters_on(app, queue, store):
    queue.configure(dead_to="gone")
    queue.send_many([NewMessage("failed", key="k"), NewMessage("large" * 1000), NewMessage("old", ttl=0.001)])
    with queue.consumer() as consumer:
        time.sleep(0.01)
        for message in consumer.claim(limit=10):
            consumer.dead(message, "no")
    assert Monitor(store).forward() == 2
    assert Monitor(store).forward() == 0
    assert [letter.reason for letter in queue.dead.list()] == ["expired"]
    assert queue.stats().counters["forwarded"] == 2
    received = app.queue("gone").receive(limit=10)
    assert sorted(texts(received)) == ["failed", "large" * 1000]
    assert {one.message.headers["reliq-dead-from"] for one in received} == {"q"}


@pytest.mark.parametrize("name", ["q", "a" * 128])
def test_copies_of_one_published_message_meet_under_ids_of_their_own(app, store, name):
    published = []
    for queue in (app.queue(name), app.queue("other")):
        queue.configure(dead_to="gone")
        app.subscribe(queue.name, "x.#")
    sent = app.publish("x.y", "body", id="one")
    for queue in (app.queue(name), app.queue("other")):
        with queue.consumer() as consumer:
            (message,) = consumer.claim()
            assert message.step("ask", lambda queue=queue: queue.name) == queue.name
            consumer.dead(message, "no")
        Monitor(store).forward()
    assert set(sent.values()) == {"one"}
    with app.queue("gone").consumer() as consumer:
        for message in consumer.claim(limit=2):
            published.append(message.id)
            assert message.step("ask", lambda: "again") == message.headers["reliq-dead-from"]
            consumer.ack(message)
    assert published[1] == "one:other"
    assert published[0] == "one:q" if name == "q" else published[0].startswith("one:")
    assert max(map(len, published)) <= 128


def test_what_is_sent_on_keeps_its_cost_and_its_history_ends(app, queue, store):
    queue.configure(dead_to="gone", history="1h")
    queue.send("dear", cost=7, limit_key="k", id="dear")
    with queue.consumer() as consumer:
        consumer.dead(*consumer.claim(), "no")
    assert Monitor(store).forward() == 1
    (received,) = app.queue("gone").receive()
    assert received.message.cost == 7
    found = queue.find("dear")
    assert (found.place, [event.name for event in found.history][-2:]) == ("done", ["dead:rejected", "forwarded"])


def test_a_monitor_sends_as_many_dead_letters_on_as_the_other_queue_has_room_for(app, queue, store):
    queue.configure(dead_to="gone")
    gone, monitor = app.queue("gone"), Monitor(store)
    gone.configure(max_length=3)
    queue.send_many([str(number) for number in range(7)])
    with queue.consumer() as consumer:
        for message in consumer.claim(limit=10):
            consumer.dead(message, "no")
    assert [monitor.forward(), Monitor(store).forward()] == [3, 0]
    there = [letter.body.decode() for letter in queue.dead.list()]
    assert gone.stats().counters.get("rejected", 0) == 0
    assert sorted([*there, *texts(gone.receive(limit=10))]) == list("0123456")
    gone.configure(max_length=100)
    assert Monitor(store).forward() == 4


def bury_all(queue):
    with queue.consumer() as consumer:
        for message in consumer.claim(limit=20):
            consumer.dead(message, "no")


def test_a_partition_without_room_stops_only_the_dead_letters_of_its_keys(app, queue, store):
    gone = app.queue("gone")
    gone.configure(partitions=2, max_length=20)
    layout = app.store.call(reliq.ops.layout(QueueKeys("gone")))
    homes = {layout.homes("gone", bucket_of(NewMessage(0, key=key)) or 0)[0]: key for key in "abcdefgh"}
    full, free = homes.values()
    gone.send_many([NewMessage("filler", key=full) for _ in range(10)])
    queue.configure(dead_to="gone")
    keys = [full, free, full, free, free]
    queue.send_many([NewMessage(f"{key}{number}", key=key) for number, key in enumerate(keys)])
    while queue.stats().ready:
        bury_all(queue)
    assert [Monitor(store).forward(), Monitor(store).forward()] == [3, 0]
    assert {letter.key for letter in queue.dead.list()} == {full}
    assert queue.stats().counters["forwarded"] == 3
    with gone.consumer() as consumer:
        while claimed := consumer.claim(limit=20):
            consumer.ack(*claimed)
    assert [Monitor(store).forward(), queue.stats().dead] == [2, 0]


def test_a_part_of_the_other_queue_that_is_away_has_none_of_its_letters_sent_twice(app, queue, store, monkeypatch):
    """What the partitions that answered have is deleted here, although the turn fails."""
    queue.configure(dead_to="gone")
    queue.send_many(["a", "b", "c"])
    bury_all(queue)

    def half_away(target, messages, before=None):
        ids = yield from send(target, messages[:2], before=before)
        error = RedisUnavailable("a node is away")
        error.enqueued = dict(enumerate(ids))
        raise error

    send = spread.send
    monkeypatch.setattr(spread, "send", half_away)
    with pytest.raises(RedisUnavailable):
        Monitor(store).forward()
    monkeypatch.undo()
    assert (queue.stats().dead, app.queue("gone").stats().ready) == (1, 2)
    assert Monitor(store).forward() == 1


def test_a_dead_letter_that_no_send_takes_stays_and_stops_no_others(app, queue, store, caplog):
    queue.configure(dead_to="gone")
    wrong, long = NewMessage("wrong"), NewMessage("long", headers={"trace": "x" * (16 * 1024 - 5)})
    wrong.headers[""] = "as another program wrote it"
    queue.send_many([wrong, long, *"abc"])
    bury_all(queue)
    assert [Monitor(store).forward(), Monitor(store).forward()] == [4, 0]
    assert [letter.body for letter in queue.dead.list()] == [b"wrong"]
    assert sorted(texts(app.queue("gone").receive(limit=10))) == ["a", "b", "c", "long"]
    assert f"not_forwarded queue=q id={wrong.id}" in caplog.text


def test_a_full_queue_of_dead_letters_does_not_disturb_a_receive(app, queue, store):
    queue.configure(dead_to="gone")
    gone = app.queue("gone")
    gone.configure(max_length=1)
    gone.send("filler")
    queue.send("poison")
    let_time_pass(store, queue.receive(most_receives=1))
    Monitor(store).return_due()
    queue.send_many(["x", "y"])
    assert sorted(texts(queue.receive(limit=10, most_receives=1))) == ["x", "y"]
    assert [letter.body for letter in queue.dead.list()] == [b"poison"]


def test_one_that_was_received_too_often_dies_and_goes_to_the_queue_of_dead_letters(app, queue, store):
    queue.configure(dead_to="gone")
    queue.send("poison", headers={"tenant": "a"})
    sent_at = None
    for _ in range(2):
        (one,) = queue.receive(most_receives=2)
        sent_at = one.message.enqueued_at
        let_time_pass(store, [one])
    queue.send("healthy")
    assert texts(queue.receive(limit=2, most_receives=2)) == ["healthy"]
    (dead,) = app.queue("gone").receive()
    assert (dead.message.body, dead.message.id, dead.message.enqueued_at) == (b"poison", one.message.id, sent_at)
    assert dead.message.headers == {"tenant": "a", "reliq-dead-from": "q", "reliq-receives": "2"}
    assert (dead.receives, queue.stats().dead) == (3, 0)


def test_an_attempt_returns_the_same_messages_and_receipts(queue):
    queue.send_many(["a", "b", "c"])
    first = queue.receive(limit=2, attempt="one")
    assert receipts(queue.receive(limit=2, attempt="one")) == receipts(first)
    assert texts(queue.receive(limit=2, attempt="two")) == ["c"]
    queue.delete_received(receipts(first)[:1])
    assert queue.receive(limit=2, attempt="one") == []


def test_a_receive_stops_at_the_limit_of_messages_in_flight(queue):
    queue.send_many(range(5))
    assert len(queue.receive(limit=3, most_in_flight=3)) == 3
    with pytest.raises(TooManyInFlight, match="3 messages of queue 'q' are in flight, and at most 3 may be"):
        queue.receive(limit=1, most_in_flight=3)


def test_an_expired_message_becomes_a_dead_letter(queue):
    queue.send("old", ttl=0.001)
    queue.send("new")
    time.sleep(0.01)
    assert texts(queue.receive(limit=5)) == ["new"]
    assert [letter.reason for letter in queue.dead.list()] == ["expired"]


def test_headers_that_look_like_reliqs_own_do_no_harm(queue):
    queue.send("a", headers={"reliq-first-received": "x", "reliq-receives": "-1"})
    (one,) = queue.receive()
    assert (one.receives, one.first_received_at) == (1, 0)
    assert one.received_at > 0


def test_a_changed_delay_is_that_of_what_was_sent_and_not_of_what_failed(queue):
    queue.send("failed")
    with queue.consumer() as consumer:
        consumer.retry(consumer.claim()[0], delay=MINUTE, error="x")
    queue.send_many(["a", "b"], delay=MINUTE)
    assert queue.change_delay(2 * MINUTE) == 2
    first, *others = queue.delayed.list()
    assert [one.due_at - one.enqueued_at for one in others] == [pytest.approx(2 * MINUTE * 1000, abs=1)] * 2
    assert queue.change_delay(0) == 2
    assert texts(queue.receive(limit=5)) == ["a", "b"]
    assert [one.due_at for one in queue.delayed.list()] == [first.due_at]


def test_a_purge_of_what_is_in_flight(queue, store):
    queue.send_many([NewMessage("a", key="k"), NewMessage("b", key="k"), "c"])
    queue.receive(limit=10, runs=True)
    assert queue.purge_received() == 3
    assert left_in_redis(store) == set()


def test_a_message_in_flight_is_found_and_cancelled(queue, store):
    queue.send("a", id="one")
    queue.receive(visibility=MINUTE)
    assert queue.find("one").place == reliq.Place.PROCESSING
    assert queue.cancel("one") == reliq.Cancellation.CANCELLED
    assert left_in_redis(store) == set()


@pytest.mark.parametrize("key", [None, "k"])
def test_a_message_that_was_cancelled_before_its_worker_died_is_not_received(queue, store, key):
    queue.send_many([NewMessage("a", id="one", key=key), NewMessage("b", key=key)])
    with queue.consumer() as consumer:
        consumer.claim(limit=2)
        assert queue.cancel("one") == reliq.Cancellation.TOLD
        for name in store.call(reliq.ops.members(KEYS.consumers)):
            store.call(reliq.ops.command("DEL", KEYS.lease(name)))  # it has died
        Monitor(store).scan()
        (received,) = queue.receive(limit=2, visibility=MINUTE)
    assert texts([received]) == ["b"]
    queue.delete_received([received.receipt])
    assert queue.stats().counters["cancelled"] == 1
    assert left_in_redis(store) == set()


def test_as_many_messages_of_one_key_as_there_are_come_first(queue):
    queue.send_many([NewMessage(text, key=text[0]) for text in ("g1", "h1", "g2", "g3", "i1", "h2")])
    assert texts(queue.receive(limit=2, runs=True)) == ["g1", "g2"]
    assert texts(queue.receive(limit=10, runs=True)) == ["h1", "h2", "i1"]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("options", [{}, {"attempt": "one"}, {"wait": 2}])
def test_what_is_visible_before_messages_in_flight_is_received(queue, partitions, options):
    if partitions > 1:
        queue.configure(partitions=partitions)
    queue.send_many([NewMessage(text, key="g") for text in ("g1", "g2", "g3")])
    first, *_ = queue.receive(limit=10, runs=True)
    queue.change_visibility([(first.receipt, 0)])
    assert texts(queue.receive(limit=10, runs=True, **options)) == ["g1"]
    assert queue.receive(limit=10, runs=True) == []


def test_a_queue_with_limits_gives_one_message_of_each_key(queue):
    """Those behind it would not be counted for the rate."""
    queue.configure(rate="100/s")
    queue.send_many([NewMessage(text, key=text[0]) for text in ("g1", "h1", "g2", "h2")])
    assert texts(queue.receive(limit=10, runs=True)) == ["g1", "h1"]


def test_deduplication_can_be_forgotten(queue):
    first = queue.send("a", dedup_key="one")
    assert queue.send("a", dedup_key="one") == first
    queue.forget_deduplication()
    assert queue.send("a", dedup_key="one") != first


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda queue: queue.receive(limit=0), InvalidSetting),
        (lambda queue: queue.receive(visibility="13h"), InvalidSetting),
        (lambda queue: queue.receive(most_receives=0), InvalidSetting),
        (lambda queue: queue.receive(attempt=""), InvalidSetting),
        (lambda queue: queue.change_visibility([("x", -1)]), InvalidSetting),
        (lambda queue: queue.configure(dead_to="q"), InvalidSetting),
        (lambda queue: queue.configure(dead_to="no name!"), InvalidName),
    ],
)
def test_wrong_arguments_are_refused(queue, call, error):
    with pytest.raises(error):
        call(queue)


@pytest.mark.parametrize("seed", range(6))
def test_messages_of_a_key_are_received_in_order_whatever_happens(queue, store, seed):
    """Random receives, deletions, returns and claims by a consumer, compared with a list a key."""
    chance = random.Random(seed)
    sent: dict[str, list[str]] = defaultdict(list)  # what is left of each key, in order
    flying: dict[str, tuple[str, str, object]] = {}  # receipt: key, text, what was received
    names = iter(range(10_000))
    consumer = queue.consumer()
    with consumer:
        for _ in range(120):
            act = chance.choice(["send", "send", "receive", "receive", "delete", "return", "time", "claim"])
            if act == "send":
                key = chance.choice("xyz")
                some = [f"{key}{next(names)}" for _ in range(chance.randint(1, 4))]
                queue.send_many([NewMessage(one, key=key) for one in some])
                sent[key] += some
            elif act == "receive":
                runs = chance.random() < 0.7
                received = queue.receive(limit=chance.randint(1, 5), visibility=MINUTE, runs=runs)
                by_key = defaultdict(list)
                for one in received:
                    by_key[one.message.key].append(one)
                for key, ones in by_key.items():
                    assert runs or not any(there == key for there, _, _ in flying.values()), "the key is in flight"
                    assert texts(ones) == sent[key][: len(ones)], "the first ones, so none in flight is before them"
                    flying |= {one.receipt: (key, one.message.body.decode(), one) for one in ones}
            elif act == "claim":
                for message in consumer.claim(limit=2):
                    assert not any(there == message.key for there, _, _ in flying.values())
                    assert message.body.decode() == sent[message.key].pop(0)
                    consumer.ack(message)
            elif flying:
                receipt = chance.choice(sorted(flying))
                key, text, one = flying.pop(receipt)
                if act == "delete":
                    assert queue.delete_received([receipt]) == ["deleted"]
                    sent[key].remove(text)
                elif act == "return":
                    assert queue.change_visibility([(receipt, 0)]) == ["changed"]
                else:
                    let_time_pass(store, [one])
                    queue.return_due()
            stats = queue.stats()
            assert stats.ready + stats.processing == sum(map(len, sent.values()))
            assert stats.processing == len(flying)
        queue.change_visibility([(receipt, 0) for receipt in flying])
        while received := queue.receive(limit=10, runs=True):
            for one in received:
                assert one.message.body.decode() == sent[one.message.key].pop(0)
            queue.delete_received(receipts(received))
        assert not any(sent.values())
    assert left_in_redis(store) == set()


def test_thousands_are_deleted_in_one_call(queue, store):
    queue.send_many([str(at) for at in range(5000)])
    held = [one.receipt for _ in range(5) for one in queue.receive(limit=1000, visibility=MINUTE)]
    assert queue.delete_received(held) == ["deleted"] * 5000
    assert left_in_redis(store) == set()


def test_a_cancelled_receive_ends_with_its_next_look(url):
    async def cancelled() -> int:
        async with AioReliq(url) as app:
            queue = app.queue("q")
            others = asyncio.all_tasks()
            waiting = asyncio.ensure_future(queue.receive(wait=600))
            await asyncio.wait([waiting], timeout=0.5)
            waiting.cancel()
            await asyncio.wait(asyncio.all_tasks() - others - {asyncio.current_task()}, timeout=60)
            return queue._receiver._waiters

    assert asyncio.run(cancelled()) == 0
