"""A producer's estimate of the server's clock."""

import pytest

from reliq.protocol.clock import Clock

HOUR = 3_600_000


class Machine:
    """A machine's two clocks, ms: the time of day, and that since it started, which never jumps."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        self.since_boot = 5_000

    def pass_by(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.since_boot += milliseconds


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr("reliq.protocol.clock.this_machines_ms", lambda: machine.now)
    monkeypatch.setattr("reliq.protocol.clock.boot_ms", lambda: machine.since_boot)
    return machine


def call(clock, machine, ahead, there=1, back=1):
    """A call of so many ms to a server whose clock is that much ahead."""
    called_at = machine.since_boot
    machine.pass_by(there)
    server = machine.now + ahead
    machine.pass_by(back)
    clock.note(server, called_at)


@pytest.mark.parametrize("ahead", [0, 17, HOUR, -HOUR])
def test_the_estimate_is_as_good_as_the_call_was_short(machine, ahead):
    clock = Clock()
    assert not clock.known
    call(clock, machine, ahead)
    assert clock.known
    assert abs(clock.now() - machine.now - ahead) <= 1


@pytest.mark.parametrize("ahead", [0, HOUR, -HOUR])
@pytest.mark.parametrize("times", [{"back": 6000}, {"there": 6000}])
def test_an_answer_that_was_late_changes_nothing_that_it_does_not_contradict(machine, ahead, times):
    """Found by `make simulate`: a message with a ttl was expired when it was sent, after its producer was suspended."""
    clock = Clock()
    call(clock, machine, ahead)
    call(clock, machine, ahead, **times)
    assert abs(clock.now() - machine.now - ahead) <= 1


def test_a_late_first_answer_of_a_server_with_the_same_time(machine):
    clock = Clock()
    call(clock, machine, 0, back=6000)
    assert clock.now() == machine.now


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_jump_of_this_machines_clock_changes_nothing(machine, jump):
    clock = Clock()
    call(clock, machine, 17)
    there = machine.now + 17
    machine.now += jump
    machine.pass_by(5000)
    assert abs(clock.now() - there - 5000) <= 1


def test_until_a_time_of_the_server_is_known_that_of_this_machine_stands_for_it(machine):
    clock = Clock()
    machine.now += HOUR
    assert clock.now() == machine.now
