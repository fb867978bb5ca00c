"""Parked messages and their signals, as commands."""

import json

import pytest

from reliq.model.policy import RunOver


def test_what_waits_is_listed_and_gets_its_signal(say, app):
    queue = app.queue("orders")
    one = queue.send("x")
    assert say("parked", "list", "orders")[2] == "no message waits for a signal\n"
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        with pytest.raises(RunOver):
            message.wait("approval", timeout="1h")
    status, out, _ = say("parked", "list", "orders")
    assert status == 0
    assert out.startswith(f"{one}  signal=approval  since=")
    (parked,) = json.loads(say("parked", "list", "orders", "--json")[1])
    assert (parked["id"], parked["signal"]) == (one, "approval")
    assert say("queue", "stats", "orders")[1].rstrip().endswith("1 parked")
    given = "the signal is given; if there is no such message yet, it is kept for a day\n"
    assert say("message", "signal", "orders", one, "approval", '{"by": "ann"}')[:2] == (0, given)
    assert "before" in say("message", "signal", "orders", one, "approval", "no")[1]
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert message.wait("approval") == {"by": "ann"}
        consumer.ack(message)
    status, _, said = say("message", "signal", "orders", one, "approval")
    assert status == 1
    assert "it has left the queue" in said
