"""Delayed messages from the command line: list, run now."""

import argparse
import json
from typing import Any

from reliq.cli.options import (
    command,
    counted,
    error_line,
    header,
    missing,
    pair,
    queue_of,
    say,
    say_none,
    some_or_all,
    utc,
)
from reliq.cli.progress import Progress
from reliq.errors import InvalidSetting


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    one = command(
        commands, "delayed list", delayed_list, "list delayed messages, due soonest first, with errors of retries",
        queue=True,
    )  # fmt: skip
    one.add_argument("--limit", type=int, default=50, help="show at most this many (default 50)")
    one.add_argument("--after", metavar="CURSOR", help="continue after an earlier page")
    _filters_of(one)
    one = command(commands, "delayed run", delayed_run, "run delayed messages now, retries too", queue=True)
    one.add_argument("id", nargs="*", help="only these")
    one.add_argument("--all", action="store_true", help="all delayed messages")
    one.add_argument("--dry-run", action="store_true", help="only count them")
    _filters_of(one)


def _filters_of(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--failed", action="store_true", help="only those that wait for a retry")
    parser.add_argument("--error-class", metavar="NAME", help="only those whose last error has this class")
    header(parser, "only those with this header")


def _filters(options: argparse.Namespace) -> dict[str, Any]:
    headers = dict(pair(one) for one in options.header)
    return {"failed": options.failed, "error_class": options.error_class, "headers": headers}


def delayed_list(options: argparse.Namespace) -> int:
    """Print a page of a queue's delayed messages."""
    page = queue_of(options).delayed.list(limit=options.limit, after=options.after, bodies=False, **_filters(options))
    if options.json:
        print(json.dumps({"messages": [message.summary() for message in page], "next": page.next}))
        return 0
    what = "messages that wait for a retry" if options.failed else "delayed messages"
    such = "such " if options.error_class or options.header else ""
    say_none(page, f"{options.queue} has no {such}{what}")
    for message in page:
        identity = message.id if message.readable else "(not a message)"
        print(f"{identity:36}  {utc(message.due_at)}  failures={message.failures}  {error_line(message.last_error)}")
    if page.next:
        print(f"more: --after={page.next}")  # it may begin with a dash
    return 0


def delayed_run(options: argparse.Namespace) -> int:
    """Make delayed messages due now."""
    some_or_all(options, _filters(options))
    if not (options.id or options.all or any(_filters(options).values())):
        raise InvalidSetting("running delayed messages needs ids, a filter, or --all")
    bar = Progress("running", visible=False if options.json else None)
    count = queue_of(options).delayed.run(
        *options.id, all=options.all, dry_run=options.dry_run, progress=bar.update, **_filters(options)
    )
    bar.update(count, final=True)
    text = f"{counted(count, 'delayed message')} {'would run' if options.dry_run else 'due'} now"
    say(options, text, due=count, dry_run=options.dry_run)
    return 1 if missing(options, count, "delayed message") else 0
