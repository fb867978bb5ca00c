"""`reliq chaos`: a test of the guarantees on the user's own machine."""

import argparse
import json
import sys
from typing import Any

from reliq.cli.options import command


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    one = command(
        commands,
        "chaos",
        chaos,
        "kill and pause workers while they handle messages, and report what was lost",
        url_default="an embedded one",
    )
    one.add_argument("--messages", type=int, default=10_000, metavar="N", help="messages to send (default 10000)")
    one.add_argument("--workers", type=int, default=4, metavar="N", help="worker processes (default 4)")
    one.add_argument("--kills", type=int, default=10, metavar="N", help="workers that get SIGKILL (default 10)")
    one.add_argument("--pauses", type=int, default=2, metavar="N", help="workers to pause past their lease (default 2)")
    one.add_argument("--lease", type=float, default=2.0, metavar="SECONDS", help="lease of the workers (default 2)")
    one.add_argument("--time", type=float, default=300.0, metavar="SECONDS", help="time limit (default 300)")
    one.add_argument("--scenario", action=_Moved, help=argparse.SUPPRESS)
    one.set_defaults(quiet=True, patient=True)


class _Moved(argparse.Action):
    """An option that this command had."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.error(
            f"{self.option_strings[0]} is gone: the scenarios of the fault campaign are not installed with reliq; run "
            "`python -m tests.campaign --scenario list` in a checkout of its source"
        )


def chaos(options: argparse.Namespace) -> int:
    """Kill and pause workers, and report; exit 1 if a message was lost or not handled in time."""
    from reliq.cli.trials.chaos import Plan, run

    plan = Plan(options.messages, options.workers, options.kills, options.pauses, options.lease, options.time)
    report = run(options.url, plan)
    print(json.dumps(report.as_dict()) if options.json else report)
    if report.good and not options.json:
        print("\nNothing was lost.")
    elif not report.good:
        print("reliq: not every message was handled", file=sys.stderr)
    return 0 if report.good else 1
