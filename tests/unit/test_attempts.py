"""What a monitor remembers of duties that fail."""

import logging

import pytest

from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys
from reliq_monitor.attempts import Attempts, Part

BAD = QueueKeys("bad")


def fails():
    raise ReliqError("a foreign key")
    yield


def works():
    return 1
    yield


def attempt(attempts, steps):
    """Perform a duty of the queue whose pause is over; it sends no command."""
    for failure in attempts._failing.values():
        failure.next_at = 0.0
    with pytest.raises(StopIteration):
        next(attempts.of_queue("promote", BAD, steps, None))


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.WARNING, "reliq.monitor")
    return lambda: [record.getMessage().partition(" after ")[0] for record in caplog.records]


def test_a_monitor_that_leads_a_queue_again_does_not_tell_its_failures_anew(said):
    """Under load a monitor misses a beat, and another one leads its queues for a moment."""
    attempts = Attempts(lambda _: "", sharded=True)
    attempt(attempts, fails())
    attempts.keep(set())
    assert attempts.failing == set(), "another monitor tells of it now"
    attempts.keep({"bad"})
    assert attempts.failing == {("promote", "bad")}
    attempt(attempts, fails())
    assert said() == ["duty=promote queue=bad: a foreign key"]


def test_what_was_mended_while_another_monitor_led_the_queue_is_told(said):
    attempts = Attempts(lambda _: "", sharded=True)
    attempt(attempts, fails())
    attempts.keep(set())
    attempts.keep({"bad"})
    attempt(attempts, works())
    assert attempts.failing == set()
    assert said() == ["duty=promote queue=bad: a foreign key", "duty=promote queue=bad: works again"]


def test_failures_of_queues_that_do_not_come_back_are_forgotten():
    attempts = Attempts(lambda _: "", sharded=True)
    attempt(attempts, fails())
    attempts._failing[Part("promote", "bad")].next_at = 0.0
    attempts.keep(set())
    attempts.prune()
    attempts.keep({"bad"})
    assert attempts.failing == set()
