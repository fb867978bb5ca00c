"""How many redelivered messages run at the same time in a process."""

from types import SimpleNamespace

import pytest

from reliq.model.message import Message
from reliq.worker import trials
from reliq.worker.trials import ALONE, Trials
from tests.support.state import element


class Clock(SimpleNamespace):
    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(trials, "time", clock)
    return clock


def message(name, deliveries=0, together=0):
    first = Message.decode("q", element(name, redelivered=True, deliveries=deliveries))
    return Message.decode("q", first.returned(deliveries, together))


def begun(trials, messages):
    """How many of them may run together, as each one begins that may."""
    return [count for one in messages if (count := trials.begin(one))]


def without_harm(clock, trials, seconds=6.0):
    """One runs alone for so long."""
    first = message("first")
    assert trials.begin(first) == ALONE
    clock.now += seconds
    trials.end(first.element)


def test_redelivered_messages_run_one_at_a_time(clock):
    trials, first, second = Trials(), message("a"), message("b")
    assert begun(trials, [first, second]) == [ALONE]
    trials.end(first.element)
    assert begun(trials, [second, first]) == [ALONE]
    assert trials.running


def test_after_some_seconds_each_end_lets_one_more_run(clock):
    trials, many = Trials(), [message(f"m{number}") for number in range(20)]
    without_harm(clock, trials)
    assert begun(trials, many) == [2, 2]
    trials.end(many[0].element)
    trials.end(many[1].element)
    assert begun(trials, many[2:]) == [2, 2, 4, 4]
    for one in many[2:6]:
        trials.end(one.element)
    assert begun(trials, many[6:]) == [2, 2, 4, 4, 8, 8, 8, 8]


def test_after_some_seconds_without_any_they_begin_anew(clock):
    trials, many = Trials(), [message(f"m{number}") for number in range(3)]
    without_harm(clock, trials)
    clock.now += 6
    assert begun(trials, many) == [ALONE]


def test_a_message_that_was_charged_runs_alone(clock):
    trials, others, suspect = Trials(), [message("a"), message("b")], message("s", deliveries=1)
    without_harm(clock, trials)
    assert begun(trials, [others[0], suspect, others[1]]) == [2], "nothing begins beside those that it waits for"
    trials.end(others[0].element)
    assert begun(trials, [suspect, *others]) == [ALONE]


def test_no_more_run_with_one_than_it_may(clock):
    trials, many, wary = Trials(), [message(f"m{number}") for number in range(9)], message("w", together=2)
    without_harm(clock, trials)
    for one in many[:2]:
        trials.begin(one)
    for one in many[:2]:
        trials.end(one.element)
    assert begun(trials, [many[2], wary, many[3]]) == [2, 2]


@pytest.mark.parametrize(("before", "told", "after"), [(0, 0, 0), (0, 8, 8), (4, 8, 4), (8, 2, 2), (4, 0, 4)])
def test_a_message_that_goes_back_keeps_the_smaller_number(before, told, after):
    again = Message.decode("q", message("a", together=before).returned(0, told))
    assert (again.together, again.redelivered, again.deliveries) == (after, True, 0)


def test_one_that_was_not_redelivered_gets_no_number():
    assert Message.decode("q", Message.decode("q", element("a")).returned(0, 8)).together == 0


def test_a_message_that_starts_anew_has_none():
    again = Message.decode("q", message("a", together=4).again(redelivered=False, deliveries=0))
    assert again.together == 0
