"""find, cancel and the progress bars of top, as commands."""

import json
import time

import pytest

import reliq
from reliq.cli.top import look


@pytest.fixture
def orders(app):
    return app.queue("orders")


def facts(text):
    return dict(line.split(maxsplit=1) for line in text.splitlines())


def test_find_says_where_a_message_is_and_why(say, app, orders):
    app.queue("others").send("x")
    ready, later = orders.send("x"), orders.send("y", delay="1h", headers={"tenant": "a\x1b[2J"})
    orders.pause()
    status, out, _ = say("find", ready)
    assert (status, facts(out)["queue"], facts(out)["place"]) == (0, "orders", "ready")
    assert facts(out)["why"] == "next to run; none starts now: paused"
    status, out, _ = say("find", later, "--queue", "orders")
    assert (facts(out)["place"], facts(out)["header"]) == ("delayed", "tenant=a\\x1b[2J")
    status, out, _ = say("find", later, "--json")
    found = json.loads(out)
    assert (found["place"], found["due_at"] > time.time() * 1000, found["message"]["size"]) == ("delayed", True, 1)


def test_find_of_nothing_exits_1(say, orders):
    orders.send("x")
    status, out, err = say("find", "nothing")
    assert (status, out) == (1, "")
    assert "message nothing is not in any queue" in err
    assert say("find", "nothing", "--queue", "orders", "--json")[:2] == (1, "null\n")
    assert "did you mean 'orders'?" in say("find", "nothing", "--queue", "order")[2]


def test_find_shows_progress_and_deaths(say, orders):
    one = orders.send("x")
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        message.progress(0.4, "page 12 of 30")
        found = facts(say("find", one)[1])
        assert found["progress"].startswith("[########............]  40%  page 12 of 30")
        assert (found["place"], found["why"]) == ("processing", f"held by consumer {consumer.id}")
        assert found["deaths"].startswith("0 ")
        assert json.loads(say("find", one, "--json")[1])["progress"]["fraction"] == 0.4
        consumer.ack(message)


def test_cancel_by_id_key_and_headers(say, orders):
    one = orders.send("x")
    assert say("cancel", "orders", one)[:2] == (0, "cancelled\n")
    assert say("cancel", "orders", one)[:2] == (
        1,
        f"message {one} is not in queue orders: it was handled, removed, or never sent\n",
    )
    orders.send_many(["a", "b"], key="k")
    orders.send_many(["c", "d", "e"], headers={"tenant": "acme", "kind": "x"})
    many = ("cancel", "orders", "--header", "tenant=acme", "--header", "kind=x")
    assert say(*many, "--dry-run")[1] == "3 messages would be cancelled, consumers of 0 would be told\n"
    assert json.loads(say(*many, "--json")[1]) == {"cancelled": 3, "told": 0, "dry_run": False}
    assert say("cancel", "orders", "--key", "k")[1] == "2 messages cancelled, consumers of 0 told\n"
    assert orders.stats().ready == 0


def test_cancel_with_an_id_alone_says_that_the_queue_is_missing(say, orders):
    identity = orders.send("x")
    status, _, told = say("cancel", identity)
    assert status == 2
    assert f"only '{identity}' is given: write `reliq message cancel QUEUE ID`" in told
    assert orders.find(identity)


@pytest.mark.parametrize(
    "arguments",
    [(), ("1", "--key", "k"), ("--key", "k", "--header", "a=b"), ("1", "--dry-run"), ("1", "--header", "a=b")],
)
def test_cancel_needs_one_way_to_say_what(say, orders, arguments):
    one = orders.send("x", id="1")
    assert say("cancel", "orders", *arguments)[0] == 2
    assert orders.find(one)


def test_top_shows_the_progress_of_messages_in_processing(say, app, orders):
    first, second = orders.send_many(["x", "y"])
    with orders.consumer() as consumer:
        one, two = consumer.claim(limit=2)
        one.progress(0.25, "row 1\x1b of 4")
        (reported,) = look(app.store).running
        assert (reported.message.id, reported.consumer, reported.fraction) == (first, consumer.id, 0.25)
        named, last = say("top", "--once", "--interval", "0.1")[1].splitlines()[-2:]
        assert (named.split(), last) == (["orders", first], "  [#####...............]  25%  row 1  of 4")
        two.progress(0.75)
        consumer.release(one)
        (message,) = consumer.claim()
        assert message.id == first
        assert [one.message.id for one in look(app.store).running] == [second]  # not of an earlier delivery
        consumer.ack(message, two)


def test_the_application_finds_a_message_in_any_queue(face):
    app = face()
    app.queue("b").send("x", id="same")
    app.queue("a").send("x", id="same")
    one = app.queue("c").send("x", delay=60)
    assert app.find(one).queue == "c"
    assert app.find("same").queue == "a"
    assert app.find("unknown") is None
    with pytest.raises(reliq.InvalidName):
        app.find("a b")


def test_search_prints_where_the_text_is_and_how_much_was_looked_at(say, orders):
    orders.send_many(["x"] * 5)
    one = orders.send({"customer": "Grace"}, delay="1h")
    status, out, err = say("message", "search", "orders", "Grace")
    head, line = out.splitlines()
    assert (status, head.split()[:3]) == (0, ["place", "id", "sent"])
    assert line.startswith(f"delayed    {one}")
    assert line.endswith('body: {"customer":"Grace"}')
    assert err == "reliq: looked through 6 of 6 messages\n"
    status, out, err = say("message", "search", "orders", "Grace", "--in", "ready", "--most", "2")
    assert (status, out) == (1, "no message contains it\n")
    assert err == "reliq: looked through 2 of 5 messages, the newest of each place\n"
    found = json.loads(say("message", "search", "orders", "Grace", "--json")[1])
    assert ([hit["id"] for hit in found["messages"]], found["looked"]) == ([one], 6)
    assert say("message", "search", "none", "x")[0] == 1
