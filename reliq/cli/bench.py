"""`reliq bench`: throughput, latency and recovery on the user's own Redis."""

import argparse
import json
from typing import Any

from reliq.cli.options import command


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    what = "measure throughput, latency and recovery on your Redis, in a queue of its own"
    one = command(commands, "bench", bench, what)
    one.add_argument("--messages", type=int, default=100_000, metavar="N", help="throughput messages (default 100000)")
    one.add_argument("--samples", type=int, default=500, metavar="N", help="samples of the latency (default 500)")
    one.add_argument("--kills", type=int, default=3, metavar="N", help="workers that get SIGKILL (default 3)")
    one.add_argument("--time", type=float, default=120.0, metavar="SECONDS", help="time limit (default 120)")
    one.set_defaults(quiet=True, patient=True)


def bench(options: argparse.Namespace) -> int:
    """Measure and report."""
    from reliq.cli.trials.benchmark import Plan, run

    report = run(options.url, Plan(options.messages, options.samples, options.kills, options.time))
    print(json.dumps(report.as_dict()) if options.json else report)
    return 0
