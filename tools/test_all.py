"""Run every target of the Makefile that tests something, one after another, and print one table at the end.

    python tools/test_all.py [TARGET ...]

A target that fails does not stop the others. What each printed is kept in .data/test-all/TARGET.log. Interrupted, it
goes on where it was: what passed at this commit, with nothing changed since, is in the table and is not run again.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGETS = (
    "test", "test-heavy", "test-campaign", "test-full", "combine", "test-install", "test-slow", "test-docs",
    "test-celery", "test-sqs", "test-spark-matrix", "test-lowest", "test-slices", "faults-mutants", "simulate",
    "mutants",
)  # fmt: skip
_CLOSING = re.compile(r"^=*\s*(?:no tests ran|\d+ (?:passed|failed|errors?|skipped|deselected|rerun)\b.*) in [\d.]+s")
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
_MUTANTS = re.compile(r"^\d+ mutants, (\d+) found, (\d+) not found$")
_SUITE = re.compile(r"^\w+: (\d+) passed, (\d+) failed, (\d+) left out$")
_SEEDS = re.compile(r"^(\d+) seeds, .*: (\d+) failed$")


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a target. `status`: the exit status of make."""

    target: str
    passed: int
    failed: int
    skipped: int
    minutes: float
    status: int

    @property
    def good(self) -> bool:
        return self.status == 0 and self.failed == 0

    def __str__(self) -> str:
        failed = f"{self.failed:,}" if self.good or self.failed else f"exit {self.status}"
        return f"{self.target:18} {self.passed:>8,} {failed:>8} {self.skipped:>8,} {self.minutes:>8.1f}"


def counts(printed: Iterable[str]) -> tuple[int, int, int]:
    """Return how many passed, failed and were skipped, by the closing lines of pytest, simulation and mutants."""
    passed = failed = skipped = 0
    for line in printed:
        if seeds := _SEEDS.match(line):
            passed += int(seeds[1]) - int(seeds[2])
            failed += int(seeds[2])
        elif suite := _SUITE.match(line):
            passed += int(suite[1])
            failed += int(suite[2])
            skipped += int(suite[3])
        elif mutants := _MUTANTS.match(line):
            passed += int(mutants[1])
            failed += int(mutants[2])
        elif _CLOSING.match(line):
            found = {word.rstrip("s"): int(count) for count, word in _COUNT.findall(line)}
            passed += found.get("passed", 0)
            failed += found.get("failed", 0) + found.get("error", 0)
            skipped += found.get("skipped", 0)
    return passed, failed, skipped


def run(target: str, make: Sequence[str], folder: Path) -> Result:
    """Run a target; show what it prints, and keep it."""
    began, log = time.monotonic(), folder / f"{target}.log"
    running = subprocess.Popen(
        [*make, target], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    with running, log.open("w") as file:
        for line in running.stdout or ():
            file.write(line)
            print(line, end="", flush=True)
    passed, failed, skipped = counts(log.read_text().splitlines())
    return Result(target, passed, failed, skipped, (time.monotonic() - began) / 60, running.returncode)


def state(root: Path = ROOT) -> str | None:
    """Return the commit of the checkout; None if anything has changed since."""
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=False)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return None if changed.returncode or changed.stdout else commit.stdout.strip()


def main(
    targets: Sequence[str],
    make: Sequence[str] = ("make",),
    folder: Path = ROOT / ".data" / "test-all",
    commit: str | None = None,
) -> int:
    """Run these targets but those that passed at this commit; return 1 if any has failed."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "passed.json"
    passed = json.loads(file.read_text()) if file.exists() else {}
    if commit is None or passed.get("commit") != commit:
        passed = {"commit": commit}
    results = []
    for target in targets:
        if target in passed:
            results.append(Result(**passed[target]))
            continue
        print(f"\nmake {target}", flush=True)
        results.append(run(target, make, folder))
        if results[-1].good:
            passed[target] = asdict(results[-1])
            file.write_text(json.dumps(passed, indent=1))
    print(f"\n{'target':18} {'passed':>8} {'failed':>8} {'skipped':>8} {'minutes':>8}", *results, sep="\n")
    return 0 if all(one.good for one in results) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    sys.exit(main(parser.parse_args().targets or TARGETS, commit=state()))
