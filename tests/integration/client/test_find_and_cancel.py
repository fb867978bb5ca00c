"""find and cancel, wherever the message is; by both faces."""

import time

import pytest

import reliq
from reliq.errors import InvalidMessage, InvalidName, InvalidSetting
from reliq.features.tracking.model import Cancellation
from reliq.model.found import CancelledMany, Place
from reliq.model.keys import QueueKeys
from reliq.model.policy import RunOver
from reliq.testing import work_off
from reliq_monitor.reclaim import take_back
from tests.support.sync_adapter import Blocking
from tests.support.turns import Monitor
from tests.support.workers import eventually


def where(queue, identity):
    found = queue.find(identity)
    return found and found.place


def test_the_latest_of_a_dedup_key_says_what_it_waits_for(queue):
    queue.send("x", dedup_key="k", replace=True)
    latest = queue.find(queue.send("y", dedup_key="k", replace=True))
    assert (latest.place, latest.why) == (Place.WAITING, "an earlier message of its dedup_key is before it")


def test_a_message_is_found_in_each_of_its_places(queue):
    ready = queue.send("x", headers={"tenant": "a"})
    first, waiting = queue.send("x", key="k"), queue.send("x", key="k", priority="high")
    high = queue.send("x", priority="high")
    delayed = queue.send("x", delay="1h")
    prepared = queue.prepare("x")
    assert where(queue, ready) is Place.READY
    assert queue.find(ready).position == 0
    assert queue.find(ready).message.headers == {"tenant": "a"}
    assert where(queue, first) is Place.READY
    assert queue.find(first).position == 1
    assert where(queue, high) is Place.READY
    assert (where(queue, waiting), queue.find(waiting).waiting_for) == (Place.WAITING, "k")
    assert (where(queue, delayed), queue.find(delayed).due_at > queue.find(delayed).message.enqueued_at) == (
        Place.DELAYED, True,
    )  # fmt: skip
    assert where(queue, prepared.id) is Place.PREPARED
    assert where(queue, "unknown") is None
    with queue.consumer() as consumer:
        (message,) = [one for one in consumer.claim(limit=10) if one.id == ready]
        found = queue.find(ready)
        assert (found.place, found.consumer) == (Place.PROCESSING, consumer.id)
        consumer.dead(message, "no use")
    found = queue.find(ready)
    assert (found.place, found.reason) == (Place.DEAD, "rejected")
    assert found.died_at > 0
    with pytest.raises(InvalidName):
        queue.find("a b")


def test_what_keeps_a_ready_message_from_its_workers_is_named(queue):
    one = queue.send("x")
    queue.pause()
    assert queue.find(one).limited_by == "paused"
    queue.resume()
    queue.configure(rate="1/h", burst=1)
    assert queue.find(one).limited_by == ""
    with queue.consumer() as consumer:
        consumer.claim()
        assert queue.find(queue.send("y")).limited_by == "rate"


def test_the_answer_to_a_cancellation_is_exact(queue):
    ready, other = queue.send_many(["x", "y"])
    delayed, prepared = queue.send("x", delay="1h"), queue.prepare("x")
    for one in (ready, delayed, prepared.id):
        assert queue.cancel(one) == Cancellation.CANCELLED
        assert not queue.cancel(one)
        assert where(queue, one) is None
    assert queue.cancel("unknown") == Cancellation.UNKNOWN
    with queue.consumer() as consumer:
        (message,) = consumer.claim(limit=10)
        assert message.id == other
        assert not message.cancelled
        assert queue.cancel(other) == Cancellation.TOLD
        consumer.heartbeat()
        assert message.cancelled
        consumer.dead(message, "no use")
    assert queue.cancel(other) == Cancellation.DONE
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.delayed, stats.dead, stats.prepared) == (0, 0, 0, 1, 0)


def test_a_cancelled_message_gives_its_key_to_the_next_one(queue):
    first, second, third = (queue.send("x", key="k") for _ in range(3))
    assert queue.cancel(second)
    assert queue.cancel(first)
    with queue.consumer() as consumer:
        assert [message.id for message in consumer.claim(limit=10)] == [third]


def test_a_message_that_is_sent_again_under_a_cancelled_id_is_another_one(queue, client):
    queue.send("x", id="a")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert queue.cancel("a") == Cancellation.TOLD
        consumer.ack(message)  # before it was told
        client.hset(QueueKeys("q").told, "a", message.enqueued_at - 1)
        queue.send("x", id="a")
        (message,) = consumer.claim()
        consumer.heartbeat()
        assert not message.cancelled


def test_what_is_known_of_a_cancellation_goes_with_the_message(queue, client):
    queue.send("x", id="a")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        queue.cancel("a")
        consumer.heartbeat()
        consumer.ack(message)
    assert client.keys("*told*") == []


@pytest.mark.parametrize("partitions", [1, 4])
def test_messages_that_no_consumer_sees_are_cancelled_with_the_others(app, partitions):
    queue = app.queue("q")
    queue.configure(partitions=partitions)
    parked: list[str] = []
    for tenant in "ab":
        parked.append(queue.send("parked", headers={"tenant": tenant}, key=f"k{tenant}"))
        queue.send("behind", headers={"tenant": tenant}, key=f"k{tenant}")
    with queue.consumer() as consumer:
        for _ in "ab":
            (message,) = eventually(consumer.claim)
            with pytest.raises(RunOver):
                message.wait("go")
        queue.send_many([reliq.NewMessage("in flight", headers={"tenant": tenant}) for tenant in "ab"])
        received = [eventually(queue.receive) for _ in "ab"]
        assert [one.message.body for (one,) in received] == [b"in flight"] * 2
    assert queue.cancel_many(headers={"tenant": "a"}, dry_run=True) == CancelledMany(3, 0)
    assert queue.cancel_many(headers={"tenant": "a"}) == CancelledMany(3, 0)
    assert queue.cancel_many(key="kb") == CancelledMany(2, 0)
    stats = queue.stats()
    assert (stats.parked, stats.ready, stats.waiting, stats.processing) == (0, 0, 0, 1)
    for identity in parked:
        with pytest.raises(reliq.SignalRefused, match="left the queue"):
            queue.signal(identity, "go", 1)


def test_the_end_of_a_flow_reaches_members_that_wait_for_a_signal(app):
    with app.flow() as flow:
        first = flow.send("q", "x")
        flow.send("q", "y", after=[first])
    with app.queue("q").consumer() as consumer:
        (message,) = eventually(consumer.claim)
        with pytest.raises(RunOver):
            message.wait("go")
    assert app.cancel_flow(flow.id)
    stats = app.queue("q").stats()
    assert (stats.parked, stats.waiting, stats.counters["cancelled"]) == (0, 0, 2)


def test_messages_are_cancelled_by_key_and_by_headers(queue):
    queue.send_many([reliq.NewMessage("x", headers={"tenant": "a" if n % 4 else "b"}) for n in range(600)])
    queue.send("x", headers={"tenant": "a"}, delay="1h")
    queue.send("x", headers={"tenant": "b"}, delay="1h")
    for _ in range(3):
        queue.send("x", key="k")
    seen: list[int] = []
    assert queue.cancel_many(headers={"tenant": "a"}, dry_run=True) == CancelledMany(451, 0)
    assert queue.stats().ready == 603
    assert queue.cancel_many(headers={"tenant": "a"}, progress=seen.append) == CancelledMany(451, 0)
    assert seen == sorted(seen)
    assert seen[-1] == 451
    assert queue.cancel_many(key="k") == CancelledMany(3, 0)
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.counters["cancelled"]) == (150, 1, 454)
    with queue.consumer() as consumer:
        messages = consumer.claim(limit=1000)
        assert len(messages) == 150
        assert {message.headers["tenant"] for message in messages} == {"b"}
        assert queue.cancel_many(headers={"tenant": "b"}) == CancelledMany(1, 150)
        consumer.heartbeat()
        assert all(message.cancelled for message in messages)


@pytest.mark.parametrize("filters", [{}, {"key": "k", "headers": {"a": "b"}}, {"headers": {}}])
def test_a_filter_must_say_what_to_cancel(queue, filters):
    with pytest.raises(InvalidSetting):
        queue.cancel_many(**filters)


def test_a_filter_is_checked(queue):
    with pytest.raises(InvalidMessage, match="key is ''"):
        queue.cancel_many(key="")
    with pytest.raises(InvalidMessage, match="headers must map texts to texts"):
        queue.cancel_many(headers={"a": 1})


def test_a_consumer_that_waits_passes_over_what_is_cancelled_before_it_arrives(queue, client):
    with queue.consumer() as consumer:
        keys = QueueKeys("q")
        consumer.claim()
        client.lpush(keys.messages, b"\xc1cancelled")
        client.hincrby(keys.counters, "blanks", 1)
        assert consumer.claim(wait=0.2) == []
        assert client.exists(keys.messages, keys.processing(consumer.id)) == 0
        assert queue.stats().counters["blanks_passed"] == 1
        assert queue.stats().dead == 0


def test_progress_and_checkpoint_of_a_message_that_is_held_by_hand(queue):
    queue.send("x", id="a")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert message.state is None
        wait(queue, message.checkpoint({"page": 12, "raw": b"\x00"}))
        wait(queue, message.progress(0.4, "page 12 of 30"))
        found = queue.find("a")
        assert (found.progress.fraction, found.progress.text) == (0.4, "page 12 of 30")
        assert message.state == {"page": 12, "raw": b"\x00"}
        consumer.retry(message)
        (message,) = consumer.claim()
        assert message.state == {"page": 12, "raw": b"\x00"}
        consumer.ack(message)
    assert queue.find("a") is None


def test_a_later_message_with_the_id_of_a_purged_one_has_no_state(queue):
    queue.send("first", id="a")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        wait(queue, message.checkpoint({"row": 5000}))
        consumer.retry(message, delay=60)
        assert queue.purge() == 1
        eventually(lambda: time.time_ns() // 1_000_000 > message.enqueued_at)
        queue.send("second", id="a")
        assert queue.find("a").progress is None
        (message,) = consumer.claim()
        consumer.retry(message)
        (message,) = consumer.claim()
        wait(queue, message.progress(0.1))
        consumer.retry(message)
        (message,) = consumer.claim()
        assert (message.state, queue.find("a").progress.fraction) == (None, 0.1)
        consumer.ack(message)


def wait(queue, report):
    """Await the report with asyncio; with the synchronous face it is stored already."""
    if isinstance(queue, Blocking):
        queue._runner.run(report)


@pytest.mark.parametrize("settle", ["ack", "retry", "release"])
def test_a_consumer_by_hand_cannot_report_about_what_it_has_settled(queue, client, settle):
    queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        getattr(consumer, settle)(message)
        with pytest.raises(reliq.LeaseLost, match="is not held here any more"):
            wait(queue, message.checkpoint("late"))
    assert client.keys("*report*") == []


@pytest.mark.parametrize("delay", [0, 60], ids=["ready", "delayed"])
@pytest.mark.parametrize("many", [False, True], ids=["cancel", "cancel_many"])
def test_what_was_reported_about_a_cancelled_message_goes_with_it(queue, client, many, delay):
    one = queue.send("x", headers={"tenant": "a"})
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        wait(queue, message.checkpoint({"step": 1}))
        consumer.retry(message, delay=delay)
    assert client.keys("*:report:*")
    if many:
        assert queue.cancel_many(headers={"tenant": "a"}) == CancelledMany(1, 0)
    else:
        assert queue.cancel(one) is Cancellation.CANCELLED
    assert client.keys("*:report:*") == []


@pytest.mark.parametrize("policy", [{"dead_to": "r"}, {"dead_max_count": 1}], ids=["sent on", "trimmed"])
def test_what_was_reported_about_a_dead_letter_that_leaves_goes_with_it(queue, client, store, policy):
    queue.send_many(["x", "y"])
    with queue.consumer() as consumer:
        first, second = consumer.claim(limit=2)
        wait(queue, first.checkpoint({"step": 1}))
        consumer.dead(first, "no")
        consumer.dead(second, "no")
    queue.configure(**policy)
    monitor = Monitor(store)
    eventually(lambda: (monitor.forward(), monitor.tidy()) and queue.stats().dead < 2)
    assert client.keys("*:report:*") == []


@pytest.mark.parametrize("fraction", [-0.1, 1.1, "0.4", True, None, float("nan")])
def test_progress_is_from_0_to_1(queue, fraction):
    queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        with pytest.raises(InvalidMessage, match="give a number from 0 to 1"):
            message.progress(fraction)
        with pytest.raises(InvalidMessage, match="cannot be stored"):
            message.checkpoint(object())
        with pytest.raises(InvalidMessage, match="the limit is 1,048,576"):
            message.checkpoint(b"x" * 1_048_577)


def test_a_message_that_no_consumer_holds_has_no_progress(queue):
    queue.send("x", delay="1h")
    (message,) = queue.delayed.list()
    with pytest.raises(reliq.ReliqError, match="only its consumer can report about it"):
        message.progress(0.5)
    assert not message.cancelled
    assert message.state is None


@pytest.mark.parametrize(
    "put_back",
    [
        lambda consumer, message: consumer.retry(message),
        lambda consumer, message: consumer.retry(message, delay=60),
        lambda consumer, message: consumer.release(message),
        lambda consumer, message: None,  # it leaves
    ],
    ids=["retry", "retry later", "release", "leave"],
)
def test_a_cancelled_message_that_its_consumer_puts_back_is_gone(queue, client, put_back):
    identity = queue.send("a")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert queue.cancel(identity) is Cancellation.TOLD
        assert consumer.heartbeat()
        assert message.cancelled
        put_back(consumer, message)
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.processing, stats.counters.get("cancelled")) == (0, 0, 0, 1)
    assert not client.exists(QueueKeys("q").told)


@pytest.mark.parametrize("back", ["retry", "release"])
def test_a_message_that_was_cancelled_since_the_latest_heartbeat_does_not_come_back(queue, client, back):
    identity, other = queue.send("x"), queue.send("y")
    with queue.consumer(lease=3600) as consumer:
        messages = consumer.claim(2)
        assert queue.cancel(identity) is Cancellation.TOLD
        for message in messages:
            consumer.retry(message, delay=60) if back == "retry" else consumer.release(message)
    assert where(queue, identity) is None
    assert where(queue, other) is (Place.DELAYED if back == "retry" else Place.READY)
    assert queue.stats().counters["cancelled"] == 1
    assert not client.exists(QueueKeys("q").told)


@pytest.mark.parametrize("limits", [{}, {"rate": "1/h", "burst": 3}], ids=["none", "rate"])
def test_a_message_that_was_cancelled_before_its_consumer_died_does_not_come_back(queue, client, store, limits):
    queue.configure(**limits)
    cancelled, other = queue.send("cancelled"), queue.send("other")
    with queue.consumer() as consumer:
        wait(queue, consumer.claim(limit=2)[0].progress(0.5))
        assert queue.cancel(cancelled) == "told"
        store.run(take_back(QueueKeys("q"), consumer.id, known_dead=True))
        with queue.consumer() as second:
            assert [one.id for one in second.claim(limit=2)] == [other]
    assert queue.stats().counters["cancelled"] == 1
    assert client.keys("*told*") == client.keys("*report*") == []


def test_a_message_that_dies_before_its_consumer_knows_that_it_was_cancelled_is_a_dead_letter(app, queue):
    @app.handler("q")
    def handle(message: reliq.Message) -> None:
        assert app.queue("q").cancel(message.id) is Cancellation.TOLD
        raise reliq.Dead("no")

    identity = queue.send("x")
    work_off(app)
    assert where(queue, identity) is Place.DEAD
    assert queue.cancel(identity) is Cancellation.DONE


@pytest.mark.parametrize("ahead", [-7_200_000, 7_200_000])
def test_a_message_of_a_producer_whose_clock_is_wrong_is_cancelled_too(queue, client, monkeypatch, ahead):
    monkeypatch.setattr("reliq.protocol.clock.Clock.now", lambda _: time.time_ns() // 1_000_000 + ahead)
    identity = queue.send("x")
    with queue.consumer(lease=3600) as consumer:
        (message,) = consumer.claim()
        assert queue.cancel(identity) is Cancellation.TOLD
        consumer.retry(message, delay=60)
    assert where(queue, identity) is None
