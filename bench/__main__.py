"""reliq beside the raw limit of Redis and beside its peers, with a verdict for each figure.

    python -m bench [--full] [--rounds 3] [--only PART,...] [--out .bench/results]

Parts: consume, send, latency, memory, flat, long, start, weight, and, only if they are named: idle, states, limits,
sharing, cluster, celery, http, away, size. `growth` stands for all that have figures of one table, what is asked for as
systems get large: 40 minutes, or with --full an hour. `make bench` sets the peers up first. Nothing else should run on
the machine meanwhile; the contestants take turns, so that what does run falls on all of them.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.suite import (
    asked,
    consume,
    flat,
    growth,
    idle,
    latency,
    long,
    memory,
    report,
    send,
    slots,
    start,
    weight,
    whole,
)
from bench.suite.harness import Row, Setting

_ALWAYS = ("consume", "send", "latency", "memory", "flat", "long", "start", "weight")


def parts(race: consume.Race) -> dict[str, Callable[[Setting], Iterable[Row]]]:
    def consumed(setting: Setting) -> list[Row]:
        race.run()
        return [
            consume.one_process(race), consume.two_processes(setting), consume.asynchronous(race),
            consume.sixteen_threads(setting),
        ]  # fmt: skip

    return {
        "consume": consumed,
        "send": send.rows,
        "latency": lambda setting: [
            latency.idle(setting),
            latency.idle(setting, partitions=12),
            latency.idle(setting, partitions=64, at_rest=True),
            latency.slow_neighbours(setting),
        ],
        "memory": lambda setting: [memory.row(setting)],
        "flat": flat.rows,
        "idle": idle.rows,
        "states": growth.rows,
        "limits": slots.rows,
        "long": long.rows,
        "start": lambda setting: [start.start_up(setting), start.worker_memory(setting)],
        "weight": weight.rows,
        "sharing": whole.sharing,
        "cluster": whole.cluster,
        "celery": whole.sends_of_celery,
        "http": whole.http,
        "away": whole.away,
        "size": whole.planned,
    }


def _chosen(only: str) -> set[str]:
    """Return the parts that are named, those of the table for `growth`; without a name those that are always run."""
    names = set(only.split(",")) if only else set(_ALWAYS)
    return names - {"growth"} | asked.PARTS if "growth" in names else names


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
    about, began = report.machine(), time.monotonic()
    rows: list[Row] = []
    every, chosen = parts(race), _chosen(options.only)
    if chosen - every.keys():
        parser.error(f"--only {options.only}: the parts are growth, {', '.join(every)}")
    for name, part in every.items():
        if name in chosen:
            print(f"{name} ...", flush=True)
            rows += part(setting)
    told = report.text(rows, race, about, time.monotonic() - began)
    if chosen >= asked.PARTS:
        told += "\n" + asked.table(rows)
    print("\n" + told)
    report.save(rows, race, about, setting, options.out)
    (options.out / "results.txt").write_text(told)


if __name__ == "__main__":
    main()
