"""Queues and messages from the command line: send, stats, config, pause, resume, purge."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

import reliq
from reliq.cli.options import app_of, body_limit_of, command, confirmed, header, max_body, pair, queue_of, say, say_none
from reliq.cli.queue_names import is_unknown, unknown
from reliq.cli.stdin import read_batches, read_body
from reliq.errors import RedisUnavailable, RedisUnsuitable
from reliq.observability.snapshot import why_unreadable
from reliq.runtime.looking import missing_now, unseen


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    one = command(commands, "send", send, "send a message", queue=True, json_too=True)
    one.set_defaults(patient=True)
    one.add_argument("body", nargs="?", help="the body; - or nothing reads standard input")
    one.add_argument("--lines", action="store_true", help="each line of standard input is a message")
    one.add_argument("--delay", default=0, metavar="TIME", help="time until it becomes visible, e.g. 10s, 5m, 2h")
    one.add_argument("--ttl", metavar="TIME", help="a dead letter (expired) if it is not started within this time")
    one.add_argument("--id", help="its id (default: a new UUIDv7)")
    one.add_argument(
        "--dedup-key", metavar="KEY", help="within 10 minutes, only the first message with this key counts"
    )
    one.add_argument("--replace", action="store_true", help="replace the message with this key that waits, instead")
    one.add_argument("--debounce", metavar="TIME", help="with --replace: delay it while no newer one comes, e.g. 5s")
    one.add_argument("--at-most", metavar="TIME", help="with --debounce: longest delay after the first one, e.g. 1m")
    one.add_argument("--key", help="messages with one key are handled in order, one at a time")
    one.add_argument("--limit-key", metavar="KEY", help="share the limits and the fair share of this key: a tenant")
    one.add_argument("--priority", default="normal", choices=("high", "normal", "low"), help="default: normal")
    max_body(one)
    header(one, "a header")

    one = command(commands, "stats", stats, "count messages by state", json_too=True)
    one.add_argument("queues", nargs="*", metavar="QUEUE", help="queues (default: all)")

    one = command(commands, "config", config, "show a queue's policy, or change it", queue=True, json_too=True)
    one.add_argument(
        "changes",
        nargs="*",
        metavar="NAME=VALUE",
        help="e.g. max_bytes=500000000 dead_max_age=30d; no VALUE: its default",
    )

    command(commands, "pause", pause, "stop starting messages of a queue; sends go on", queue=True, json_too=True)
    command(commands, "resume", resume, "end a pause", queue=True, json_too=True)
    one = command(commands, "breaker", breaker, "open or close a queue's circuit breaker", queue=True, json_too=True)
    one.add_argument("change", choices=("open", "close"), help="open: give out nothing for a time; close: go on")
    one.add_argument("--for", dest="duration", default="1h", metavar="TIME", help="how long it is open (default: 1h)")
    one = command(commands, "purge", purge, "remove ready, delayed and prepared messages", queue=True, json_too=True)
    one.add_argument("--yes", action="store_true", help="do not ask")


def send(options: argparse.Namespace) -> int:
    """Send one message, or with --lines each line of standard input."""
    queue = app_of(options).queue(options.queue)
    headers = dict(pair(one) for one in options.header)
    if options.lines:
        if options.body is not None:
            raise reliq.InvalidSetting("give either a body or --lines, which reads standard input")
        if options.replace or options.debounce or options.at_most:
            raise reliq.InvalidSetting("--replace is for one message: with --lines each line would replace the others")
        return _send_lines(options, queue, headers)
    body = read_body(body_limit_of(options)) if options.body in (None, "-") else options.body
    identity = queue.send(
        body, id=options.id, delay=options.delay, headers=headers, dedup_key=options.dedup_key, ttl=options.ttl,
        key=options.key, limit_key=options.limit_key, priority=options.priority, replace=options.replace,
        debounce=options.debounce, at_most=options.at_most,
    )  # fmt: skip
    print(json.dumps({"id": identity}) if options.json else identity)
    return 0


def _send_lines(options: argparse.Namespace, queue: reliq.Queue, headers: dict[str, str]) -> int:
    """Send batch by batch, so that an endless pipe needs little memory; an error says how many lines were sent."""
    sent = 0
    if options.json:
        print("[", end="")
    try:
        for lines in read_batches(body_limit_of(options)):
            ids = queue.send_many(
                lines, delay=options.delay, headers=headers, ttl=options.ttl, key=options.key,
                limit_key=options.limit_key, priority=options.priority,
            )  # fmt: skip
            if options.json:
                print(", " if sent else "", json.dumps(ids)[1:-1], sep="", end="")
            sent += len(ids)
    except reliq.ReliqError as error:
        error.args = (f"{error}; {sent} lines were sent before",)
        raise
    finally:
        print("]" if options.json else f"{sent} sent")
    return 0


def stats(options: argparse.Namespace) -> int:
    """Print the statistics of the queues."""
    app = app_of(options)
    there = app.queues(of_broadcasts=True)
    found, unreadable = [], False
    for name in options.queues or there:
        queue = app.queue(name, of_broadcast=True)
        if is_unknown(name, there):
            unreadable = True
            print(f"reliq: {unknown(name, there)}", file=sys.stderr)
            continue
        try:
            found.append(queue.stats())
        except (RedisUnsuitable, ValueError) as error:  # a key of another application: the other queues can be read
            unreadable = True
            print(f"reliq: queue {queue.name!r} cannot be read: {why_unreadable(error)}", file=sys.stderr)
        except RedisUnavailable as error:
            if not unseen(f"queue {name}", error):
                raise
    if options.json:
        print(json.dumps([asdict(one) for one in found]))
        return 1 if unreadable else 0
    if not found:
        text = "there are no queues: the first message makes one, `reliq send QUEUE BODY`"
        say_none(there or missing_now() or (), text)
        return 1 if unreadable else 0
    print(f"{'queue':30} {'ready':>9} {'processing':>10} {'delayed':>9} {'dead':>7} {'oldest':>8}  consumers")
    for one in found:
        age, paused = f"{one.oldest_ready_age:.1f}s", "  paused" if one.paused else ""
        prepared = f"  {one.prepared} prepared" if one.prepared else ""
        limited = f"  limited by {one.limited_by}" if one.limited_by else ""
        print(
            f"{one.queue:30} {one.ready:9} {one.processing:10} {one.delayed:9} {one.dead:7} {age:>8}  "
            f"{one.consumers}{paused}{limited}{prepared}"
        )
    return 1 if unreadable else 0


def config(options: argparse.Namespace) -> int:
    """Change the given settings, then print the policy."""
    queue = app_of(options).queue(options.queue) if options.changes else queue_of(options)
    changes: dict[str, Any] = {
        name: _setting(text) for name, text in (pair(one, "a change") for one in options.changes)
    }
    found = asdict(queue.configure(**changes) if changes else queue.config())
    lines = (f"{name:16} {_shown(value)}" for name, value in found.items())
    return say(options, "\n".join(lines), **found)


def _shown(value: Any) -> Any:
    """Return a setting as it is written on the command line; - for none."""
    if isinstance(value, dict):
        return ",".join(f"{key}:{weight}" for key, weight in value.items()) or "-"
    return "-" if value is None else value


def _setting(text: str) -> int | str | None:
    """Return a whole number, or the text for the library to read: a duration, a durability."""
    return int(text) if text.isascii() and text.isdigit() else text or None


def pause(options: argparse.Namespace) -> int:
    queue_of(options).pause()
    return say(options, f"{options.queue} is paused: nothing is started, sends go on", paused=True)


def resume(options: argparse.Namespace) -> int:
    queue_of(options).resume()
    return say(options, f"{options.queue} goes on", paused=False)


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
    confirmed(options, f"remove all ready and delayed messages of {options.queue}")
    removed = queue.purge()
    return say(options, f"{removed} messages removed", removed=removed)
