"""A back-off that raises or answers nonsense: the default one decides in its place, with its limit."""

import math
import re
from types import SimpleNamespace
from typing import Any

import pytest

import reliq
from reliq.model.message import Message
from reliq.model.policy import Policy
from reliq.ops import Destination
from reliq.worker.outcome import after_error


def exits(failures, error):
    raise SystemExit


def answering(answer):
    return lambda failures, error: answer


BROKEN = [*map(answering, (math.nan, -5, "x", math.inf, True, [])), exits, lambda failures, error: 1 / 0]


@pytest.mark.parametrize("backoff", BROKEN)
def test_the_default_back_off_decides_and_its_limit_ends_the_tries(app, backoff):
    app.queue("q").send("x")
    handler: Any = SimpleNamespace(policy=Policy(backoff))
    with app.queue("q").consumer() as consumer:
        (message,) = consumer.claim()
        for failures, to in ((0, Destination.DELAYED), (9, Destination.DELAYED), (10, Destination.DEAD)):
            later = Message.decode("q", message.again(failures=failures))
            move = after_error(handler, later, ValueError("no"), "a worker")
            assert move.destination == to
            if not failures:
                assert 4 <= move.delay <= 6


@pytest.mark.parametrize(("failures", "says"), [(0, r"is tried again after [456]\.\d s"), (10, "is a dead letter")])
def test_the_log_says_what_becomes_of_the_message(app, failures, says, caplog):
    queue = app.queue(f"logged-{failures}")  # the lines of each queue are counted
    queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        handler: Any = SimpleNamespace(policy=Policy(answering("x")))
        after_error(handler, Message.decode(queue.name, message.again(failures=failures)), ValueError("no"), "w")
    assert re.search(f"back_off_failed .* by the default back-off the message {says}", caplog.text)


def test_a_delay_that_a_handler_asks_for_counts_also_then(app):
    app.queue("q").send("x")
    handler: Any = SimpleNamespace(policy=Policy(exits))
    with app.queue("q").consumer() as consumer:
        (message,) = consumer.claim()
        assert after_error(handler, message, reliq.Retry(delay="1h"), "a worker").delay == 3600
