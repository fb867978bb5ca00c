"""Whole systems on one virtual clock: some seeds, and the simulation itself. `make simulate` runs 10,000."""

from collections.abc import Iterator

import pytest

from reliq.contract import options, settings
from tests.simulation import __main__ as command
from tests.simulation import unknown
from tests.simulation.choices import Action, Setting
from tests.simulation.found import FOUND, LONG
from tests.simulation.kernel import Kernel
from tests.simulation.mutants import MUTANTS, OF_PLANS
from tests.simulation.partitioned import has_partitions
from tests.simulation.report import report
from tests.simulation.scenario import plan
from tests.simulation.server import SimulatedRedis
from tests.simulation.simulation import Simulation, simulate
from tests.simulation.stories import Violation

SEEDS = 12  #: a third of them with partitions
PARTITIONED = [seed for seed in range(SEEDS, 24) if has_partitions(seed)]
LONGEST = {11, 23}  #: as long as all others together
MOST = 400  #: seeds within which a mutant must be found


@pytest.fixture(scope="module")
def server() -> Iterator[SimulatedRedis]:
    with SimulatedRedis() as server:
        yield server


@pytest.mark.parametrize(
    "seed",
    [pytest.param(one, marks=pytest.mark.full if one in LONGEST else ()) for one in (*range(SEEDS), *PARTITIONED)],
)
def test_no_seed_violates_anything(server: SimulatedRedis, seed: int) -> None:
    if simulate(plan(seed), server) is not None:
        pytest.fail(report(plan(seed), lambda smaller: simulate(smaller, server)))


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_lost_wake_up_costs_at_most_the_slow_look(
    server: SimulatedRedis, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """All are lost: nobody who waits is told of a message."""
    monkeypatch.setattr(Kernel, "loses_wake_ups", True)
    if simulate(plan(seed), server) is not None:
        pytest.fail(report(plan(seed), lambda smaller: simulate(smaller, server)))


def test_plans_have_each_entry_of_the_contract_or_it_is_said_why_not() -> None:
    plans = [plan(seed) for seed in range(400)]
    found = {one.name for each in plans for one in each.of(Setting)} | {"id"}  # each message has an id
    for action in (one for each in plans for one in each.of(Action)):
        found |= action.options.keys()
    declared = {*settings.BY_NAME, *options.BY_NAME}
    assert declared - found == set(unknown.ENTRIES)


def test_a_seed_is_the_same_simulation_each_time(server: SimulatedRedis) -> None:
    first, second = Simulation(plan(7), server), Simulation(plan(7), server)
    first.run()
    second.run()
    assert first.kernel.history == second.kernel.history
    assert first.kernel.calls > 100


def test_the_command_shrinks_a_failing_seed_and_tells_its_history(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["simulation", "--seeds", "4"])
    with MUTANTS["keys are not respected"]():  # the processes are forked, and have it too
        assert command.main() == 1
    text = capsys.readouterr().out.strip()
    assert "\n4 seeds, " in text
    assert "repeat it: make simulate SEED=" in text
    count, _, story = text.partition("choices to ")[2].partition(":\n")
    assert int(count) <= 8
    assert "key=" in story
    assert "-> ready" in story
    assert text.endswith("of the same key, are in processing at once")


@pytest.mark.parametrize("name", sorted(LONG))
def test_a_mutant_changes_what_there_is(name: str) -> None:
    with MUTANTS[name]():
        pass


def test_each_mutant_has_the_seed_that_found_it() -> None:
    assert FOUND.keys() == MUTANTS.keys()
    assert FOUND.keys() >= LONG


@pytest.mark.timeout(1800)  # up to MOST seeds, once what was changed has made other simulations of the seeds
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.full if one in LONG else ()) for one in sorted(MUTANTS)]
)
def test_a_mutant_is_found(server: SimulatedRedis, name: str) -> None:
    with MUTANTS[name]():
        assert first_violation(server, name)


def first_violation(server: SimulatedRedis, mutant: str) -> tuple[int, Violation]:
    fits = next((has for table, has in OF_PLANS if mutant in table), lambda _: True)
    for seed in filter(fits, [FOUND[mutant], *range(MOST)]):
        if violation := simulate(plan(seed), server):
            return seed, violation
    raise AssertionError(f"nothing is violated within {MOST} seeds")


def test_the_command_repeats_one_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["simulation", "--seed", "3"])
    assert command.main() == 0
    assert "seed 3: nothing is violated in" in capsys.readouterr().out
