"""reliq beside the raw limit of Redis and beside its peers, with a verdict for each figure.

    python -m bench [--full] [--rounds 3] [--only PART,...] [--out .bench/results]

Parts: consume, send, latency, memory, flat, growth, long, start, weight. `make bench` sets the peers up first. Nothing
else should run on the machine meanwhile; the contestants take turns, so that what does run falls on all of them.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from bench.suite import consume, flat, growth, latency, long, memory, report, send, slots, start, weight
from bench.suite.harness import Row, Setting


def parts(race: consume.Race) -> dict[str, Callable[[Setting], list[Row]]]:
    def consumed(setting: Setting) -> list[Row]:
        race.run()
        return [
            consume.one_process(race), consume.two_processes(setting), consume.asynchronous(race),
            consume.sixteen_threads(setting),
        ]  # fmt: skip

    return {
        "consume": consumed,
        "send": send.rows,
        "latency": lambda setting: [latency.idle(setting), latency.slow_neighbours(setting)],
        "memory": lambda setting: [memory.row(setting)],
        "flat": flat.rows,
        "growth": lambda setting: [*growth.rows(setting), *slots.rows(setting)],
        "long": lambda setting: [*long.rows(setting)],
        "start": lambda setting: [start.start_up(setting), start.worker_memory(setting)],
        "weight": weight.rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the large volumes: about an hour")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the volumes; below 1 for a try")
    parser.add_argument("--only", default="", metavar="PART,...")
    parser.add_argument("--out", type=Path, default=Path(".bench/results"))
    options = parser.parse_args()
    setting = Setting(options.full, options.rounds, options.scale)
    race = consume.Race(setting)
    about, began, rows = report.machine(), time.monotonic(), []
    chosen = options.only.split(",") if options.only else None
    for name, part in parts(race).items():
        if chosen is None or name in chosen:
            print(f"{name} ...", flush=True)
            rows += part(setting)
    told = report.text(rows, race, about, time.monotonic() - began)
    print("\n" + told)
    report.save(rows, race, about, setting, options.out)
    (options.out / "results.txt").write_text(told)


if __name__ == "__main__":
    main()
