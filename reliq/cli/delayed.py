"""Delayed messages from the command line: list."""

import argparse
import json
from typing import Any

from reliq.cli.options import command, error_line, queue_of, say_none, utc


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    one = command(
        commands, "delayed list", delayed_list, "delayed messages, retries with their last error; due soonest first",
        queue=True, json_too=True,
    )  # fmt: skip
    one.add_argument("--failed", action="store_true", help="only those that wait for a retry")
    one.add_argument("--limit", type=int, default=50, help="how many (default 50)")
    one.add_argument("--after", metavar="CURSOR", help="continue after an earlier page")


def delayed_list(options: argparse.Namespace) -> int:
    """Print a page of a queue's delayed messages."""
    page = queue_of(options).delayed.list(
        limit=options.limit, after=options.after, failed=options.failed, bodies=False
    )  # fmt: skip
    if options.json:
        print(json.dumps({"messages": [message.summary() for message in page], "next": page.next}))
        return 0
    what = "messages that wait for a retry" if options.failed else "delayed messages"
    say_none(page, f"{options.queue} has no {what}")
    for message in page:
        identity = message.id if message.readable else "(not a message)"
        print(f"{identity:36}  {utc(message.due_at)}  failures={message.failures}  {error_line(message.last_error)}")
    if page.next:
        print(f"more: --after={page.next}")  # it may begin with a dash
    return 0
