"""`reliq queue delete`: a queue goes with everything that belongs to it, and never with messages by mistake."""

import dataclasses
import json
import re

import pytest

import reliq
from reliq.cli import main
from reliq.model.keys import QueueKeys
from reliq.protocol import deletion
from reliq.protocol.features import NOTES
from tests.support.workers import eventually, working


def delete(app, *arguments):
    return main.main(["queue", "delete", "orders", "--yes", "--url", app.url, *arguments])


@pytest.fixture
def orders(app, client):
    """A queue that was used, and is empty now."""
    queue = app.queue("orders")
    queue.send("x")
    with queue.consumer() as consumer:
        consumer.ack(*consumer.claim())
    queue.configure(max_length=5)
    client.delete(QueueKeys("orders").producers)  # as the monitor does, some time after the last send
    return queue


def test_a_used_queue_leaves_nothing_behind(app, orders, client, capsys, caplog):
    app.subscribe("orders", "order.#")
    app.schedules.add("daily", "1d", "orders", "x")
    app.topics.set_alternate("orders")
    app.queue("mails").send("stays")
    assert delete(app, "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["had"]["bindings"] == 1
    assert re.search(r"deleted queue=orders redis=\S+ by=\S+@\S+ had=1 schedules, 1 bindings", caplog.text)
    assert [key for key in client.keys("*") if b"{orders}" in key] == []
    assert (app.queues(), app.topics.list(), app.schedules.list()) == (["mails"], [], [])
    assert app.topics.stats().alternate is None
    assert app.queue("mails").stats().ready == 1


@pytest.mark.parametrize("state", ["ready", "delayed", "dead", "processing", "prepared", "waiting"])
def test_a_queue_with_a_message_in_any_state_is_refused_unless_forced(app, orders, client, capsys, state):
    consumer = None
    if state == "delayed":
        orders.send("x", delay="1h")
    elif state == "prepared":
        orders.prepare("x")
    elif state == "waiting":
        orders.send_many(["x", "y"], key="k")
    else:
        orders.send("x")
    if state in ("dead", "processing"):
        consumer = orders.consumer()
        (message,) = consumer.claim()
        if state == "dead":
            consumer.dead(message, "no")
    assert delete(app) == 1
    told = capsys.readouterr().err
    assert "reliq: queue 'orders' has messages (" in told
    assert state != "waiting" or "(2 ready" in told
    assert app.queues() == ["orders"]
    assert delete(app, "--force") == 0
    assert [key for key in client.keys("*") if b"{orders}" in key] == []
    assert app.queues() == []


def test_a_queue_with_a_consumer_is_refused(app, orders, capsys):
    with orders.consumer() as consumer:
        consumer.claim()
        assert delete(app) == 1
    assert "is in use (1 consumers): stop its workers, or use --force" in capsys.readouterr().err


def test_a_message_that_is_sent_meanwhile_is_not_lost(app, orders, capsys, monkeypatch):
    look = deletion._watch_and_count

    def send_after(keys, *arguments):
        there = yield from look(keys, *arguments)
        monkeypatch.setattr(deletion, "_watch_and_count", look)
        orders.send("late")
        return there

    monkeypatch.setattr(deletion, "_watch_and_count", send_after)
    monkeypatch.setattr(deletion, "ANNOUNCE_EVERY", -1)  # only the watch protects the message
    assert delete(app) == 1
    assert "has messages (1 ready)" in capsys.readouterr().err
    assert orders.stats().ready == 1


def test_a_queue_whose_producer_would_not_announce_it_again_is_refused(app, orders, client, capsys):
    with orders.consumer() as consumer:
        orders.send("x")
        consumer.ack(*consumer.claim())
    assert delete(app) == 1
    says = r"a producer has sent to queue 'orders' \d+ s ago: wait until none has for 60 s"
    assert re.search(says, capsys.readouterr().err)

    producers = QueueKeys("orders").producers
    for producer, entry in client.hgetall(producers).items():
        sequence, sent_at = entry.split()
        client.hset(producers, producer, b"%s %d" % (sequence, int(sent_at) - 61_000))
    assert delete(app) == 0

    orders._steps.homes.first._announced_at -= 61  # what the minute would have done
    orders.send("again")
    assert (app.queues(), orders.stats().ready) == (["orders"], 1)


def test_a_queue_to_which_somebody_publishes_is_refused_whichever_it_is_of_those_bound(app, client, capsys):
    for name in ("before", "orders"):
        app.subscribe(name, "order.#")
    app.publish("order.created", "x")
    with app.queue("orders").consumer() as consumer:
        consumer.ack(*consumer.claim())
    assert delete(app) == 1
    assert "a producer has sent to queue 'orders'" in capsys.readouterr().err


def test_what_another_queue_has_got_meanwhile_stays_with_it(app, orders, monkeypatch):
    forget = deletion._forget_lasting
    app.topics.set_alternate("orders")
    app.schedules.add("daily", "1d", "orders", "x")

    def give_after(keys):
        yield from forget(keys)
        app.topics.set_alternate("other")
        app.schedules.add("daily", "1d", "other", "x")

    monkeypatch.setattr(deletion, "_forget_lasting", give_after)
    assert delete(app, "--force") == 0
    assert app.topics.stats().alternate == "other"
    assert [one.queue for one in app.schedules.list()] == ["other"]


def test_many_names_are_forgotten_in_several_calls(app, orders, monkeypatch):
    """One call for 10,000 schedules would keep Redis busy for 14 ms."""
    sizes: list[int] = []
    (noted,) = (one for one in NOTES if one.name == "schedules")

    def forget(queue, names):
        sizes.append(len(names))
        return noted.forget(queue, names)

    notes = [dataclasses.replace(one, forget=forget) if one is noted else one for one in NOTES]
    monkeypatch.setattr(deletion, "NOTES", notes)
    for number in range(501):
        app.schedules.add(f"s-{number}", "1d", "orders", "x")
    assert delete(app, "--force") == 0
    assert sum(sizes) == 501
    assert max(sizes) <= 250
    assert app.schedules.list() == []


def test_without_yes_nothing_is_deleted_from_a_script(app, orders, capsys):
    assert main.main(["queue", "delete", "orders", "--url", app.url]) == 2
    assert "this would delete the queue orders for good: confirm with --yes" in capsys.readouterr().err
    assert app.queues() == ["orders"]


def keys_of(client, queue):
    return [key for key in client.keys("*") if f"{{{queue}}}".encode() in key]


def test_a_send_after_a_deletion_answers_no_id_that_is_gone(app, orders, client):
    first = orders.send("x", dedup_key="d")
    waits = orders.send("x", dedup_key="e", replace=True, debounce="1h")
    assert delete(app, "--force") == 0
    assert keys_of(client, "orders") == []
    assert orders.send("x", dedup_key="d") != first
    assert orders.send("x", dedup_key="e", replace=True, debounce="1h") != waits
    assert orders.stats().counters == {"enqueued": 2}


@pytest.mark.parametrize("size", [1, 5000])
def test_a_prepared_message_goes_with_its_queue_and_cannot_be_committed(app, orders, client, size):
    prepared = orders.prepare("x" * size)
    other = app.queue("orders2").prepare("y")
    assert delete(app, "--force") == 0
    assert keys_of(client, "orders") == []
    with pytest.raises(reliq.PreparedClosed, match="deleted with its queue"):
        prepared.commit()
    assert orders.stats().ready == 0
    other.commit()


def test_a_message_with_the_id_of_one_that_was_deleted_is_handled(app, orders, client):
    ran: list[str] = []

    @app.handler("orders", once=True)
    def note(message: reliq.Message) -> None:
        ran.append(message.id)

    for times in (1, 2):
        orders.send("x", id="same")
        with working(app):
            eventually(lambda: len(ran) == times)  # noqa: B023
        assert delete(app, "--force") == 0
        assert keys_of(client, "orders") == []
    assert ran == ["same", "same"]


def test_a_window_that_begins_during_a_deletion_is_deleted_too(app, orders, client, monkeypatch):
    forget = deletion._forget_lasting
    sent: list[str] = []

    def send_after(keys):
        yield from forget(keys)
        if not sent:
            sent.append(orders.send("x", dedup_key="d"))

    monkeypatch.setattr(deletion, "_forget_lasting", send_after)
    assert delete(app, "--force") == 0
    assert keys_of(client, "orders") == []
