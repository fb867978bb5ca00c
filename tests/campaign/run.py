"""Carry out one scenario: start the system, cause its faults, wait until all is handled, and have the checker judge."""

import contextlib
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reliq.cli.progress import Progress
from reliq.cli.trials.processes import terminated_as_interrupted
from reliq.errors import ReliqError
from tests.campaign import faults
from tests.campaign.other_version import prepared
from tests.campaign.scenarios import Inflict, Scenario
from tests.campaign.system import System

_HEALED = 90.0  #: seconds after the last fault until which everything must be handled


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run was, and the checker's verdict on it."""

    scenario: str
    seed: int
    volume: int
    done: int  #: how many faults, or messages, there were
    seconds: float
    drained: bool
    verdict: dict[str, Any]
    details: dict[str, int]
    predicted: str  #: what `reliq doctor` said that the Redis may lose

    @property
    def good(self) -> bool:
        return self.drained and bool(self.verdict["valid"])

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "good": self.good}


def run(
    scenario: Scenario,
    seed: int,
    volume: int,
    duration: float,
    folder: Path,
    full: bool = False,
    older: Path | None = None,
) -> Outcome:
    """Run until so many faults, or for so many seconds; the histories stay in the folder.

    `older`: a folder with another version of reliq, for the scenario that needs one.
    """
    began = time.monotonic()
    setup = scenario.full_setup if full and scenario.full_setup else scenario.setup
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminated_as_interrupted())
        if scenario.own_disk:
            stack.enter_context(faults.own_disk(folder / "redis"))
        server = scenario.server(folder, scenario.settings)
        code = prepared(older, folder) if older else None
        system = stack.enter_context(System(server, folder, setup, seed, code))
        predicted = system.server.predicted()
        done = _load(system, scenario, volume, began + duration)
        if not (drained := system.wait_until_empty(_HEALED)):
            system.tell_where_all_are()
        system.stop_consumers()
        system.server.dump(folder / "dump.json")
    promised = {
        "scenario": scenario.name, "seed": seed, "duplicates": scenario.duplicates,
        "recovery_limit": scenario.recovery_limit if full else None, "sends_are_safe": scenario.sends_are_safe,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(promised))
    return Outcome(
        scenario.name,
        seed,
        volume,
        done,
        time.monotonic() - began,
        drained,
        check(folder),
        dict(system.details),
        predicted,
    )


def _load(system: System, scenario: Scenario, volume: int, until: float) -> int:
    """Send messages and cause faults; return how many of what the scenario counts."""
    if scenario.unit == "messages":
        return _messages(system, scenario.inflict, volume, until)
    bar, done = Progress(scenario.name, volume), 0
    system.start_producers()
    system.wait_for_load()
    while done < volume and time.monotonic() < until and scenario.inflict is not None:
        done += scenario.inflict(system)
        bar.update(done, final=done >= volume)
    system.stop_producers()
    return done


def _messages(system: System, inflict: Inflict | None, volume: int, until: float) -> int:
    """Send so many messages, and do what is to be done while they are handled."""
    share = max(1, volume // system.setup.producers)
    system.start_producers(share)
    if inflict is None:
        system.join_producers(until - time.monotonic())
    while inflict is not None and time.monotonic() < until:
        inflict(system)
        if all(one.ended for one in system.producers) and system.look_patiently(_HEALED)[0] == 0:
            break
    return share * system.setup.producers


def check(folder: Path) -> dict[str, Any]:
    """Run the checker, a program of its own, on the files of a run."""
    command = [sys.executable, "-m", "tests.campaign.checker", str(folder)]
    checked = subprocess.run(command, check=False, capture_output=True, text=True)
    if checked.returncode not in (0, 1) or not checked.stdout:
        raise ReliqError(f"the checker failed on {folder}: {checked.stderr.strip()[-2000:]}")
    verdict: dict[str, Any] = json.loads(checked.stdout)
    return verdict
