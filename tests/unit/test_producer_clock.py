"""A producer's estimate of the server's clock."""

import pytest

from reliq.protocol.producer import Clock

HOUR = 3_600_000


@pytest.fixture
def machine(monkeypatch):
    """This machine's clock, ms."""
    clock = {"now": 1_700_000_000_000}
    monkeypatch.setattr("reliq.protocol.producer.this_machines_ms", lambda: clock["now"])
    return clock


def call(clock, machine, ahead, there=1, back=1):
    """A call of so many ms to a server whose clock is that much ahead."""
    called_at = machine["now"]
    machine["now"] += there
    server = machine["now"] + ahead
    machine["now"] += back
    clock.note(server, called_at)


@pytest.mark.parametrize("ahead", [0, 17, HOUR, -HOUR])
def test_the_estimate_is_as_good_as_the_call_was_short(machine, ahead):
    clock = Clock()
    assert not clock.known
    call(clock, machine, ahead)
    assert clock.known
    assert abs(clock.now() - machine["now"] - ahead) <= 1


@pytest.mark.parametrize("ahead", [0, HOUR, -HOUR])
@pytest.mark.parametrize("times", [{"back": 6000}, {"there": 6000}])
def test_an_answer_that_was_late_changes_nothing_that_it_does_not_contradict(machine, ahead, times):
    """Found by `make simulate`: a message with a ttl was expired when it was sent, after its producer was suspended."""
    clock = Clock()
    call(clock, machine, ahead)
    call(clock, machine, ahead, **times)
    assert abs(clock.now() - machine["now"] - ahead) <= 1


def test_a_late_first_answer_of_a_server_with_the_same_time(machine):
    clock = Clock()
    call(clock, machine, 0, back=6000)
    assert clock.now() == machine["now"]


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_jump_of_this_machines_clock_is_noticed_at_the_next_answer(machine, jump):
    clock = Clock()
    call(clock, machine, 17)
    machine["now"] += jump
    call(clock, machine, 17 - jump)
    assert abs(clock.now() - machine["now"] - 17 + jump) <= 1
