"""Queues and messages from the command line: send, stats, config, pause, resume, purge."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from reliq.cli.columns import columns
from reliq.cli.options import (
    app_of,
    body_limit_of,
    command,
    confirmed,
    counted,
    given_options,
    max_body,
    message_options,
    pair,
    queue_of,
    say,
    say_none,
)
from reliq.cli.progress import age
from reliq.cli.queue_names import known_names
from reliq.cli.stdin import read_batches, read_body, say_broken_json
from reliq.cli.streams import write_no_more
from reliq.client.app import Reliq
from reliq.client.queue import Queue
from reliq.contract import values
from reliq.contract.options import BY_NAME, SEND, SEND_MANY
from reliq.contract.settings import BY_NAME as BY_SETTING
from reliq.contract.settings import PAUSED, SETTINGS, Setting
from reliq.errors import InvalidSetting, ReliqError
from reliq.model.stats import Stats
from reliq.protocol.stats import read_readable
from reliq.runtime import startup
from reliq.runtime.looking import missing_now

_CLEAR = "\x1b[H\x1b[2J"  #: the screen of a terminal


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    one = command(commands, "message send", send, "send a message", queue=True)
    one.set_defaults(patient=True)
    one.add_argument("body", nargs="?", help="the body; - or no argument: standard input")
    one.add_argument(
        "--lines", action="store_true", help="each line of standard input is a message; blank ones are skipped"
    )
    message_options(one, SEND)
    max_body(one)

    one = command(commands, "queue stats", stats, "count messages by state")
    one.add_argument("queues", nargs="*", metavar="QUEUE", help="queues (default: all)")
    one.add_argument(
        "--watch",
        type=float,
        nargs="?",
        const=2.0,
        metavar="SECONDS",
        help="repeat every so many seconds until Ctrl-C (default: 2)",
    )

    one = command(commands, "queue config", config, "show a queue's policy, or change it", queue=True)
    one.add_argument(
        "changes",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help=f"e.g. max_bytes=500MiB dead_max_age=30d; no VALUE: its default; names: {', '.join(BY_SETTING)}",
    )

    command(commands, "queue pause", pause, "pause a queue: no message starts", queue=True)
    command(commands, "queue resume", resume, "resume a paused queue", queue=True)
    one = command(commands, "queue breaker", breaker, "open or close a queue's circuit breaker", queue=True)
    one.add_argument("change", choices=("open", "close"), help="open: start no message; close: start messages again")
    one.add_argument("--for", dest="duration", default="1h", metavar="TIME", help="how long it is open (default: 1h)")
    one = command(commands, "queue purge", purge, "remove ready, delayed, parked and prepared messages", queue=True)
    one.add_argument("--yes", action="store_true", help="do not ask")


def send(options: argparse.Namespace) -> int:
    """Send one message, or with --lines each line of standard input."""
    queue = app_of(options).queue(options.queue)
    if options.lines:
        if options.body is not None:
            raise InvalidSetting("give either a body or --lines, which reads standard input")
        more = given_options(options, SEND_MANY)
        single = [BY_NAME[name].flag for name in given_options(options, SEND) if name not in more]
        if single:
            raise InvalidSetting("; ".join(f"--{flag} is for one message, not for --lines" for flag in single))
        return _send_lines(options, queue, more)
    body = read_body(body_limit_of(options)) if options.body in (None, "-") else options.body
    identity = queue.send(body, **given_options(options, SEND))
    say_broken_json("body", body)
    print(json.dumps({"id": identity}) if options.json else identity)
    return 0


def _send_lines(options: argparse.Namespace, queue: Queue, more: Any) -> int:
    """Send batch by batch, so that an endless pipe needs little memory; an error says how many lines were sent."""
    sent = blank = 0

    def note(ids: Sequence[str]) -> None:
        nonlocal sent
        separator = ", " if sent else ""
        sent += len(ids)
        if options.json and ids:
            _print_part(separator + json.dumps(ids)[1:-1])

    try:
        if options.json:
            _print_part("[")
        for lines in read_batches(body_limit_of(options)):
            bodies = [line for line in lines if line.strip()]
            blank += len(lines) - len(bodies)
            if bodies:
                note(queue.send_many(bodies, **more))
    except ReliqError as error:
        error.args = (f"{error}; {sent} lines were sent before",)
        note(error.sent)
        raise
    finally:
        print("]" if options.json else f"{sent} sent")
        if blank:
            print(f"reliq: {counted(blank, 'blank line')} skipped", file=sys.stderr)
    return 0


def _print_part(text: str) -> None:
    """Print some of the ids; raises ReliqError if standard output takes no more."""
    try:
        print(text, end="")
    except OSError as error:
        write_no_more()
        raise ReliqError(f"the ids cannot be written: {error.strerror}") from None


def stats(options: argparse.Namespace) -> int:
    """Print the statistics of the queues; with --watch, again and again."""
    app = app_of(options)
    if options.watch is None:
        return _print_stats(options, app)
    pause, status = values.seconds(options.watch, "--watch", shortest=0.1, longest=3600), 0
    with startup.until_stopped():
        while True:
            if sys.stdout.isatty():
                print(_CLEAR, end="")
            status = _print_stats(options, app)
            sys.stdout.flush()
            time.sleep(pause)
    return status


def _print_stats(options: argparse.Namespace, app: Reliq) -> int:
    there = app.queues(of_broadcasts=True)
    names = known_names(options.queues or there, there)
    found, unread = app.store.run(read_readable(names))
    for name, why in unread.items():  # a key of another application: the other queues can be read
        print(f"reliq: queue {name!r} cannot be read: {why}", file=sys.stderr)
    status = int(bool(unread) or len(names) < len(set(options.queues)))
    if options.json:
        print(json.dumps([asdict(one) for one in found]))
        return status
    if not found:
        text = "there are no queues: the first message makes one, `reliq message send QUEUE BODY`"
        say_none(there or missing_now() or (), text)
        return status
    rows = [("queue", "ready", "processing", "delayed", "dead", "oldest", " consumers"), *map(_stats_row, found)]
    print("\n".join(columns(rows, -30, 9, 10, 9, 7, 8)))
    return status


def _stats_row(one: Stats) -> tuple[object, ...]:
    oldest, paused = age(one.oldest_ready_age), "  paused" if one.paused else ""
    prepared = f"  {one.prepared} prepared" if one.prepared else ""
    limited = f"  limited by {one.limited_by}" if one.limited_by else ""
    parked = f"  {one.parked} parked" if one.parked else ""
    notes = f" {one.consumers}{paused}{limited}{prepared}{parked}"
    return one.queue, one.ready, one.processing, one.delayed, one.dead, oldest, notes


def config(options: argparse.Namespace) -> int:
    """Change the given settings, then print the policy."""
    queue = app_of(options).queue(options.queue) if options.changes else queue_of(options)
    changes: Any = {name: _setting(name, text) for name, text in (pair(one, "a change") for one in options.changes)}
    found = queue.configure(**changes) if changes else queue.config()
    lines = (f"{one.name:16} {_shown(one, getattr(found, one.name))}" for one in (*SETTINGS, PAUSED))
    return say(options, "\n".join(lines), **asdict(found))


def _shown(setting: Setting, value: Any) -> str:
    """Return a setting as it is written on the command line; - for none."""
    return "-" if value is None or value == {} else setting.kind.text(value)


def _setting(name: str, text: str) -> int | str | None:
    """Return a whole number, or the text for the library to read: a duration, a durability."""
    return (BY_SETTING[name].kind.typed(text) if name in BY_SETTING else text) if text else None


def pause(options: argparse.Namespace) -> int:
    queue_of(options).pause()
    return say(options, f"{options.queue} is paused: no message starts, sends continue", paused=True)


def resume(options: argparse.Namespace) -> int:
    queue_of(options).resume()
    return say(options, f"{options.queue} is resumed", paused=False)


def breaker(options: argparse.Namespace) -> int:
    """Open or close the circuit breaker of a queue."""
    queue = queue_of(options)
    if options.change == "open":
        queue.open_breaker(options.duration)
        return say(
            options,
            f"the breaker of {options.queue} is open for {options.duration}: no message is started",
            breaker="open",
        )
    before = "was open" if queue.close_breaker() else "was closed already"
    return say(options, f"the breaker of {options.queue} is closed; it {before}", breaker="closed")


def purge(options: argparse.Namespace) -> int:
    queue = queue_of(options)
    confirmed(options, f"remove all ready, delayed, parked and prepared messages of {options.queue}")
    removed = queue.purge()
    return say(options, f"{counted(removed, 'message')} removed", removed=removed)
