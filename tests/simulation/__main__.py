"""Simulate thousands of seeds on all cores: `python -m tests.simulation --seeds 10000`, or one of them: `--seed 7`."""

import argparse
import concurrent.futures
import os
import sys
import time
from collections.abc import Iterator

from tests.simulation.report import report
from tests.simulation.scenario import plan
from tests.simulation.server import SimulatedRedis
from tests.simulation.simulation import Simulation, simulate

_CHUNK = 25  #: seeds that a process simulates before it says how far it is
CLEAR = "\r\033[K" if sys.stderr.isatty() else ""  #: removes the progress bar
_WIDTH = 40  #: of the progress bar
_server: SimulatedRedis | None = None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one, with its history")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options.seed)
    return _many(options.first, options.seeds)


def _one(seed: int) -> int:
    with SimulatedRedis() as server:
        simulation = Simulation(plan(seed), server)
        if simulation.violation() is not None:
            print(report(plan(seed), lambda smaller: simulate(smaller, server)))
            return 1
        print(f"seed {seed}: nothing is violated in {simulation.kernel.calls} calls")
    return 0


def _many(first: int, count: int) -> int:
    began, done, calls = time.monotonic(), 0, 0
    failed: list[int] = []
    chunks = [range(start, min(start + _CHUNK, first + count)) for start in range(first, first + count, _CHUNK)]
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), initializer=_begin) as processes:
        for seeds, some_calls, some in _finished(processes, chunks):
            done, calls, failed = done + len(seeds), calls + some_calls, failed + some
            for seed in some:
                print(f"{CLEAR}seed {seed} fails: make simulate SEED={seed}", flush=True)
            _show(done, count, len(failed), time.monotonic() - began)
    seconds = time.monotonic() - began
    print(f"\n{count} seeds, {calls} calls, {seconds:.0f} s on {os.cpu_count()} cores: {len(failed)} failed")
    if not failed:
        return 0
    print(f"failing seeds: {' '.join(map(str, sorted(failed)[:50]))}")
    return _one(min(failed))


def _finished(
    processes: concurrent.futures.ProcessPoolExecutor, chunks: list[range]
) -> Iterator[tuple[range, int, list[int]]]:
    calls = {processes.submit(_chunk, seeds): seeds for seeds in chunks}
    for call in concurrent.futures.as_completed(calls):
        yield calls[call], *call.result()


def _begin() -> None:
    """Start the server of a process; it ends with the process."""
    global _server
    _server = SimulatedRedis().__enter__()


def _chunk(seeds: range) -> tuple[int, list[int]]:
    """Simulate some seeds; return how many calls that were, and the seeds that failed."""
    assert _server is not None
    calls, failed = 0, []
    for seed in seeds:
        simulation = Simulation(plan(seed), _server)
        violation = simulation.violation()
        calls += simulation.kernel.calls
        failed += [seed] if violation else []
    return calls, failed


def _show(done: int, of: int, failed: int, seconds: float) -> None:
    if not sys.stderr.isatty():
        if done * 20 // of > (done - _CHUNK) * 20 // of:
            print(f"{done}/{of} seeds, failed {failed}, {seconds:.0f} s", file=sys.stderr, flush=True)
        return
    bar = "#" * (_WIDTH * done // of)
    left = seconds / done * (of - done)
    print(f"\r[{bar:{_WIDTH}}] {done}/{of}  failed {failed}  {left:4.0f} s left ", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
