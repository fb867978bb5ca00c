"""Batches from the command line: those that have not ended, with their progress."""

import argparse
import json
import sys
from typing import Any

from reliq.cli.options import app_of, command, say_each, utc
from reliq.cli.progress import bar, since
from reliq.features.batches.model import BatchProgress


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    one = command(
        commands, "batch list", batches, "list the batches that have not ended, oldest first, with their progress"
    )
    one.add_argument("id", nargs="?", help="show only this batch, in full")
    one.add_argument("--limit", type=int, default=100, help="show at most this many (default 100)")


def batches(options: argparse.Namespace) -> int:
    """Print the batches that have not ended; or one, exit 1 if there is none of that id."""
    if options.id is not None:
        return _one(options)
    return say_each(options, app_of(options).batches(limit=options.limit), _line, "no batch is open")


def _one(options: argparse.Namespace) -> int:
    found = app_of(options).batch_progress(options.id)
    if options.json:
        print(json.dumps(found and found.summary()))
    elif found is None:
        print(f"reliq: there is no batch {options.id}: it has ended, or never existed", file=sys.stderr)
    else:
        print(f"{'state':12}{found.state}\n{'opened':12}{utc(found.opened_at)} ({since(found.opened_at)} ago)")
        print(f"{'progress':12}{_bar(found)}")
        for name in ("sent", "handled", "dead", "cancelled", "open", "batches"):
            print(f"{name:12}{getattr(found, name):,}")
    return 0 if found else 1


def _line(one: BatchProgress) -> str:
    counts = f"sent={one.sent} handled={one.handled} dead={one.dead} open={one.open}"
    return f"{one.id}  {one.state:9}  {_bar(one)}  {counts}  age={since(one.opened_at)}"


def _bar(one: BatchProgress) -> str:
    """Return the bar of the messages that have ended."""
    return bar((one.sent - one.open) / one.sent if one.sent else 0.0)
