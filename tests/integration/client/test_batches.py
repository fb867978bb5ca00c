"""Batches: counted with their messages, and followed by one message when all of them have ended; by both faces."""

import asyncio
import time
from contextlib import closing

import pytest

import reliq
from reliq import aio
from reliq.errors import InvalidMessage, InvalidName, InvalidSetting
from reliq.features.batches.steps import BatchSteps, close_with, end
from reliq.features.staging import steps as staging
from reliq.model.keys import BATCHES, QueueKeys, batch_record
from reliq.protocol.deletion import delete
from reliq.transport.store import Store
from tests.support.tasks import cancelled
from tests.support.turns import Monitor


@pytest.fixture
def monitor(store):
    return Monitor(store)


@pytest.fixture
def app(face):
    return face()


def take(queue, limit=100):
    with queue.consumer() as consumer:
        messages = consumer.claim(limit=limit)
        consumer.ack(*messages)
        return messages


def reports(app):
    return [(message.body.decode(), counts(message)) for message in take(app.queue("reports"))]


def counts(message):
    return {name: int(value) for name, value in message.headers.items() if name.startswith("batch-")}


def handled(number, dead=0, cancelled=0):
    return {"batch-handled": number, "batch-dead": dead, "batch-cancelled": cancelled}


def test_one_message_follows_the_last_one_of_a_batch(app, monitor, client):
    with app.batch(on_done=("reports", {"month": 11})) as batch:
        batch.send("orders", 1)
        batch.send_many("orders", [2, 3])
        batch.send("mails", 4, key="k", priority="high")
        assert monitor.end_batches() == 0
        progress = batch.progress()
        assert (progress.state, progress.sent, progress.open) == ("open", 4, 4)
    assert [one.id for one in app.batches()] == [batch.id]
    take(app.queue("orders"))
    assert monitor.end_batches() == 0
    progress = app.batch_progress(batch.id)
    assert (progress.state, progress.sent, progress.handled, progress.open) == ("closed", 4, 3, 1)
    take(app.queue("mails"))
    assert monitor.end_batches() == 1
    assert monitor.end_batches() == 0
    assert reports(app) == [('{"month":11}', handled(4))]
    assert batch.progress() is None
    left = [key.decode() for key in client.keys("*") if b"@batches" in key or b"followed" in key]
    assert left == []
    assert client.hget(QueueKeys("orders").config, "batched") is None


@pytest.mark.parametrize("hours", [-5, 5])
def test_the_message_at_the_end_has_the_time_of_redis(app, monitor, client, monkeypatch, hours):
    """The clock of the monitor's machine is hours behind, or ahead."""
    with app.batch(on_done=("reports", "done")) as batch:
        batch.send("orders", 1)
    take(app.queue("orders"))
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + hours * 3600 * 10**9)
    assert monitor.end_batches() == 1
    with app.queue("reports").consumer() as consumer:
        (report,) = consumer.claim()
        assert abs(report.enqueued_at / 1000 - client.time()[0]) < 60


def test_messages_of_other_batches_and_of_none_do_not_count(app, monitor):
    with app.batch(on_done=("reports", "a")) as first, app.batch(on_done=("reports", "b")) as second:
        first.send("orders", 1)
        app.queue("orders").send(2)
        second.send("orders", 3)
    take(app.queue("orders"), limit=2)
    assert monitor.end_batches() == 1
    assert [body for body, _ in reports(app)] == ["a"]


def test_dead_and_cancelled_messages_end_and_on_dead_is_sent_in_the_place_of_on_done(app, monitor):
    with app.batch(on_done=("reports", "done"), on_dead=("reports", "dead")) as batch:
        ids = batch.send_many("orders", range(4))
    with app.queue("orders").consumer() as consumer:
        first, second = consumer.claim(limit=2)
        consumer.dead(first, "no")
        consumer.retry(second)
    assert app.queue("orders").cancel(ids[3])
    take(app.queue("orders"))
    assert monitor.end_batches() == 1
    assert reports(app) == [("dead", handled(2, dead=1, cancelled=1))]


def test_without_on_dead_the_end_is_told_all_the_same(app, monitor):
    with app.batch(on_done=("reports", "done")) as batch:
        batch.send("orders", 1)
    with app.queue("orders").consumer() as consumer:
        consumer.dead(*consumer.claim(), "no")
    assert monitor.end_batches() == 1
    assert reports(app) == [("done", handled(0, dead=1))]


def test_a_redriven_message_of_a_batch_that_has_not_ended_is_open_again(app, monitor):
    with app.batch(on_done=("reports", "done")) as batch:
        batch.send_many("orders", [1, 2])
    with app.queue("orders").consumer() as consumer:
        consumer.dead(*consumer.claim(), "no")
    app.queue("orders").dead.redrive()
    take(app.queue("orders"), limit=1)
    assert monitor.end_batches() == 0
    take(app.queue("orders"))
    assert monitor.end_batches() == 1
    assert reports(app) == [("done", handled(2))]


@pytest.mark.parametrize(("most", "looks", "incomplete"), [(3, 1000, 20), (20_000, 2, 1)])
def test_batches_that_wait_do_not_keep_later_ones_from_ending(app, monitor, monkeypatch, most, looks, incomplete):
    for name, number in (("MOST", most), ("_PIECE", min(most, 1000)), ("LOOKS", looks), ("_INCOMPLETE", incomplete)):
        monkeypatch.setattr(f"reliq.features.batches.duty.{name}", number)
    waiting = [app.batch(on_done=("reports", "never")) for _ in range(7)]
    for batch in waiting:
        batch.__enter__()
    for name in ("first", "second"):
        with app.batch(on_done=("reports", name)):
            pass
    assert sum(monitor.end_batches() for _ in range(3)) == 2  # nine batches, three a turn: those of one ms in any order
    assert sorted(reports(app)) == [("first", handled(0)), ("second", handled(0))]
    waiting[0].__exit__(None, None, None)
    waiting[6].__exit__(None, None, None)
    assert sum(monitor.end_batches() for _ in range(4)) == 2


def test_a_batch_waits_for_the_batches_in_it(app, monitor):
    with app.batch(on_done=("reports", "outer"), on_dead=("reports", "outer dead")) as outer:
        outer.send("orders", 1)
        with outer.batch(on_done=("reports", "inner")) as inner:
            inner.send("orders", 2)
    with app.queue("orders").consumer() as consumer:
        first, second = consumer.claim(limit=2)
        consumer.ack(first)
        assert monitor.end_batches() == 0
        assert outer.progress().batches == 1
        consumer.dead(second, "no")
    assert monitor.end_batches() + monitor.end_batches() == 2
    assert reports(app) == [("inner", handled(0, dead=1)), ("outer dead", handled(1, dead=1))]


def test_the_end_of_a_batch_counts_the_messages_of_the_batches_in_it(app, monitor):
    with app.batch(on_dead=("reports", "outer")) as outer:
        outer.send("orders", 0)
        with outer.batch() as middle, middle.batch() as inner:
            middle.send("orders", 1)
            ids = inner.send_many("orders", range(2, 6))
        with outer.batch() as other:
            other.send("orders", 6)
    assert app.queue("orders").cancel(ids[3])
    with app.queue("orders").consumer() as consumer:
        first, *rest = consumer.claim(limit=10)
        consumer.ack(*rest)
        consumer.dead(first, "no")
    assert sum(monitor.end_batches() for _ in range(4)) == 4
    assert reports(app) == [("outer", handled(5, dead=1, cancelled=1))]


def test_an_inner_batch_that_an_earlier_version_has_ended_makes_no_count_negative(app, monitor, client):
    with app.batch(on_dead=("reports", "outer")) as outer:
        client.hset(batch_record(outer.id), "children_dead", 2)
    assert monitor.end_batches() == 1
    assert reports(app) == [("outer", handled(0, dead=2))]


def delete_orders(url):
    with closing(Store(url)) as store:
        return store.run(delete("orders", force=True))


@pytest.mark.parametrize("partitions", [1, 4])
def test_messages_of_a_deleted_queue_were_cancelled(url, app, monitor, client, partitions):
    orders = app.queue("orders")
    orders.configure(partitions=partitions)
    with app.batch(on_dead=("reports", "end")) as batch:
        batch.send_many("orders", range(20))
        batch.send("orders", "later", delay=60)
        batch.send("mails", "x")
    with orders.consumer() as consumer:
        first, *others, _, _ = consumer.claim(limit=8)
        consumer.dead(first, "no")
        consumer.ack(*others)
        delete_orders(url)
        assert monitor.end_batches() == 0
        progress = batch.progress()
        assert (progress.sent, progress.handled, progress.dead, progress.cancelled) == (22, 5, 1, 15)
    take(app.queue("mails"))
    assert monitor.end_batches() == 1
    assert reports(app) == [("end", handled(6, dead=1, cancelled=15))]
    assert [key for key in client.keys("*") if b"{orders" in key] == []


def test_a_queue_that_was_deleted_takes_further_messages_of_the_batch(url, app, monitor):
    with app.batch(on_done=("reports", "end")) as batch:
        batch.send_many("orders", range(3))
        delete_orders(url)
        batch.send_many("orders", range(2))
    assert monitor.end_batches() == 0
    take(app.queue("orders"))
    assert monitor.end_batches() == 1
    assert reports(app) == [("end", handled(2, cancelled=3))]


def test_a_deletion_keeps_no_counts_of_a_batch_that_has_no_record(url, app, client):
    with app.batch() as batch:
        batch.send("orders", 1)
    client.delete(batch_record(batch.id))
    delete_orders(url)
    assert [key for key in client.keys("*") if b"{orders}" in key] == []


def test_a_block_that_raises_sends_nothing_at_the_end(app, monitor):
    def fail():
        with app.batch(on_done=("reports", "done")) as batch:
            batch.send("orders", 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(take(app.queue("orders"))) == 1
    assert monitor.end_batches() == 1
    assert reports(app) == []


def test_an_empty_batch_is_done_at_once(app, monitor):
    with app.batch(on_done=("reports", "none")):
        pass
    assert monitor.end_batches() == 1
    assert reports(app) == [("none", handled(0))]


@pytest.mark.parametrize(("commits", "told"), [(True, [("none", handled(0))]), (False, [])])
def test_the_batch_of_a_staged_job_without_messages_is_done_if_the_job_was_committed(url, app, monitor, commits, told):
    job = staging.Job(QueueKeys("orders"))
    batch = BatchSteps(("reports", "none"), None, {})
    with closing(Store(url)) as store:
        for steps in (batch.open(), staging.open_job(job), close_with(batch.id, job.home, job.name, job.run, ())):
            store.run(steps)
        assert monitor.end_batches() == 0
        if commits:
            store.run(staging.commit(job, []))
            assert monitor.end_batches() == 0
            store.run(staging.roll_forward(job))
        else:
            store.run(staging.abort(job))
    assert monitor.end_batches() == 1
    assert reports(app) == told
    assert app.batches() == []


def test_two_monitors_and_a_crash_between_the_steps_send_one_message(app, url):
    """The steps are cut off after each of their requests, and done again by another monitor."""
    with app.batch(on_done=("reports", "done"), on_dead=("reports", "dead")) as batch:
        batch.send("orders", 1)
    with app.queue("orders").consumer() as consumer:
        consumer.dead(*consumer.claim(), "no")
    store = Store(url)
    requests = 0
    while True:
        steps, answer, cut = end(batch.id), None, False
        try:
            for number in range(100):
                if number > requests:
                    cut = True
                    break
                answer = store.call(steps.send(answer))
        except StopIteration:
            pass
        if not cut:
            break
        requests += 1
    store.close()
    assert requests >= 4
    assert [body for body, _ in reports(app)] == ["dead"]


def test_messages_of_many_kinds_are_counted_once(app, monitor, client):
    with app.batch(on_done=("reports", "done")) as batch:
        batch.send("orders", "x" * 100_000)  # its body is apart
        batch.send("orders", 2, delay="1h")
        batch.send("orders", 3, dedup_key="d")
        batch.send("orders", 3, dedup_key="d")
        batch.send("orders", reliq.NewMessage(4, limit_key="t", headers={"a": "b"}))
        batch.send("orders", 5, dedup_key="latest", replace=True)
        batch.send("orders", 6, dedup_key="latest", replace=True)
    assert batch.progress().sent == 6
    take(app.queue("orders"))
    app.queue("orders").purge()
    take(app.queue("orders"))
    assert monitor.end_batches() == 1
    assert sum(reports(app)[0][1].values()) == 6


def test_a_full_queue_of_the_end_is_tried_again(app, monitor):
    app.queue("reports").configure(max_length=1)
    app.queue("reports").send("in the way")
    with app.batch(on_done=("reports", "done")) as batch:
        batch.send("orders", 1)
    take(app.queue("orders"))
    assert monitor.end_batches() == 0
    assert monitor.state().failures["batches"] == 1
    take(app.queue("reports"))
    for failing in list(monitor._whole._attempts._failing.values()):
        failing.next_at = 0.0
    assert monitor.end_batches() == 1
    assert reports(app) == [("done", handled(1))]


def test_what_a_batch_needs_is_checked_before_anything_is_sent(app):
    for target in ("reports", ("reports",), ("reports", 1, 2)):
        with pytest.raises(InvalidSetting, match="give a queue and a body"):
            app.batch(on_done=target)
    with pytest.raises(InvalidName):
        app.batch(on_done=("no queue", 1))
    with pytest.raises(InvalidMessage, match="the limit is 65,536"):
        app.batch(on_dead=("reports", "x" * 65_537))
    with pytest.raises(InvalidName, match="message id"):
        app.batch_progress("\ud800")
    with pytest.raises(InvalidMessage, match="options of a send"):
        app.batch(on_done=("reports", reliq.NewMessage(1, delay=1)))
    batch = app.batch(on_done=("reports", 1))
    with pytest.raises(InvalidSetting, match="is not open"):
        batch.send("orders", 1)
    with batch:
        pass
    with pytest.raises(InvalidSetting, match="is not open"):
        batch.send("orders", 1)
    with pytest.raises(InvalidSetting, match="is closed"), batch.batch():
        pass


def test_a_batch_that_redis_has_lost_says_so(app, client):
    with app.batch(on_done=("reports", 1)) as batch:
        client.flushdb()
        with pytest.raises(InvalidSetting, match=r"Redis does not know batch .* send the messages in a new batch"):
            batch.send("orders", 1)


def test_a_batch_has_one_block(app, monitor):
    """A second one would send no message at its end: that has the id of the first."""
    batch = app.batch(on_done=("reports", 1))
    with batch:
        with pytest.raises(InvalidSetting, match="make a new one"):
            batch.__enter__()
        batch.send("orders", 1)
    with pytest.raises(InvalidSetting, match="make a new one"), batch:
        pass
    take(app.queue("orders"))
    assert monitor.end_batches() == 1
    assert reports(app) == [("1", handled(1))]


@pytest.mark.parametrize("at", ["begin", "end"])
@pytest.mark.parametrize("turns", [1, 2, 3, 5, 8, 13, 21, 34])
def test_a_batch_whose_task_is_cancelled_while_its_block_begins_or_ends_does_not_stay_open(url, monitor, turns, at):
    async def scenario():
        app = aio.Reliq(url)
        await app.batches()  # connected
        ending = asyncio.Event()

        async def work():
            if at == "begin":
                ending.set()
            async with app.batch(on_done=("reports", 1)):
                ending.set()

        await cancelled(work(), ending, turns)
        assert [one.state for one in await app.batches() if one.state == "open"] == []
        await app.close()

    asyncio.run(scenario())
    monitor.end_batches()
    with reliq.Reliq(url) as app:
        assert app.batches() == []


def test_a_batch_whose_record_is_lost_is_forgotten(app, monitor, client):
    with app.batch(on_done=("reports", 1)) as batch:
        batch.send("orders", 1)
    client.delete(f"reliq:{{@batches}}:batch:{batch.id}")
    assert monitor.end_batches() == 0
    assert client.exists(BATCHES) == 0
    take(app.queue("orders"))


def test_a_batch_that_its_producer_never_closes_is_abandoned_after_a_week_of_the_server(
    app, monitor, client, monkeypatch
):
    outer = app.batch(on_done=("reports", "outer"))
    with outer:
        inner = outer.batch(on_done=("reports", "inner"))
        inner.__enter__()
        inner.send("orders", 1)  # and then its producer is killed
    take(app.queue("orders"))
    wrong = time.time() + 8 * 86_400
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: wrong)
        assert monitor.end_batches() == 0
    assert inner.progress().state == "open"
    client.hincrby(f"reliq:{{@batches}}:batch:{inner.id}", "opened", -8 * 86_400_000)
    assert monitor.end_batches() == 0
    assert inner.progress().state == "abandoned"
    assert monitor.end_batches() + monitor.end_batches() == 2
    assert [body for body, _ in reports(app)] == ["outer"]
    assert client.hget(QueueKeys("orders").config, "batched") is None
