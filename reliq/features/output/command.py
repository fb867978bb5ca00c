"""The output of a message, from the command line."""

import argparse
import json
import sys
from typing import Any

from reliq.cli.options import command, queue_of
from reliq.contract import values
from reliq.runtime.logging import printable


def add_to(commands: Any) -> None:
    """Add this command to the parser."""
    one = command(
        commands, "message output", output, "print what the handler of a message emits, until the message has ended",
        queue=True,
    )  # fmt: skip
    one.add_argument("id", help="the id of the message")
    one.add_argument("--after", default="", metavar="CHUNK", help="only what comes after the chunk with this id")
    one.add_argument("--no-follow", action="store_true", help="print what is there, and do not wait for more")
    one.add_argument("--wait", default="1m", metavar="TIME", help="how long to wait for the first chunk (default 1m)")


def output(options: argparse.Namespace) -> int:
    """Print the chunks as they come; texts as they are, other values as JSON lines. Exit 1 if none came in time."""
    follow, wait = not options.no_follow, values.seconds(options.wait, "--wait")
    run = 0
    for chunk in queue_of(options).output(options.id, after=options.after, follow=follow, wait=wait):
        if options.json:
            run = chunk.run
            print(json.dumps(chunk.members()), flush=True)
            continue
        if run and chunk.run != run:
            print(f"\nreliq: run {chunk.run} of the handler begins", file=sys.stderr)
        run = chunk.run
        sys.stdout.write(printable(chunk.text, lines=True))
        sys.stdout.flush()
    if run or not follow or options.after:
        return 0
    print(f"reliq: no output of message {options.id} came within {wait:g} s", file=sys.stderr)
    return 1
