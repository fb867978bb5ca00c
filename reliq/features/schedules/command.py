"""Schedules from the command line."""

import argparse
import json
import sys
from datetime import datetime
from typing import Any, get_args

from reliq.cli.columns import columns
from reliq.cli.options import app_of, command, counted, given_options, max_body, message_options, say
from reliq.cli.queue_names import known_queue
from reliq.cli.stdin import read_body, say_broken_json
from reliq.contract.options import SCHEDULE
from reliq.features.schedules.locating import Schedule
from reliq.features.schedules.model import CatchUp
from reliq.protocol.application import body_limit


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    one = command(commands, "schedule list", show_all, "list all schedules, with their next tick and latest run")
    one.add_argument("queue", nargs="?", help="only those of this queue")

    one = command(commands, "schedule add", add, "add a schedule, or change the one with this name")
    one.add_argument("name", help="the schedule's name")
    one.add_argument("when", help="a cron expression such as '*/5 * * * *', or an interval such as 30s")
    one.add_argument("queue", help="the queue that gets the messages")
    one.add_argument("body", nargs="?", default="", help="the body of each message; - reads standard input")
    one.add_argument("--tz", default="UTC", metavar="ZONE", help="time zone such as Europe/Berlin (default: UTC)")
    one.add_argument("--start", metavar="TIME", help="send no tick before this time, such as 2026-11-21T10:00")
    one.add_argument("--end", metavar="TIME", help="send no tick after this time")
    one.add_argument("--jitter", default=0, metavar="TIME", help="delay each tick by up to this time")
    one.add_argument(
        "--catch-up",
        default="latest",
        choices=get_args(CatchUp),
        help="what is sent for missed ticks (default: latest)",
    )
    one.add_argument(
        "--catch-up-limit",
        type=int,
        default=100,
        metavar="N",
        help="with --catch-up all: the most missed ticks to send (default: 100)",
    )
    message_options(one, SCHEDULE)
    max_body(one)

    for verb, run, what in (
        ("remove", remove, "remove a schedule; its messages stay"),
        ("pause", pause, "pause a schedule"),
        ("resume", resume, "resume a schedule, from the next tick on"),
        ("run", run_now, "send a schedule's message now, in addition to its ticks"),
    ):
        one = command(commands, f"schedule {verb}", run, what)
        one.add_argument("name", help="the schedule's name")
    one = command(commands, "schedule preview", preview, "print the next ticks, in the time zone of the schedule")
    one.add_argument("name", help="the schedule's name")
    one.add_argument("--count", type=int, default=10, metavar="N", help="how many ticks (default: 10)")


def show_all(options: argparse.Namespace) -> int:
    app = app_of(options)
    schedules = app.schedules
    found = schedules.list(options.queue)
    if options.queue is not None and not found:
        known_queue(app, options.queue)
    for why in schedules.unreadable().values():
        print(f"reliq: {why}", file=sys.stderr)
    if options.json:
        print(json.dumps([one.summary() for one in found]))
        return 0
    rows = [(one.name, one.when, one.queue, _next(one), _latest(one)) for one in found]
    for line in columns(rows, -30, -16, -20, -28):
        print(line)
    print(counted(len(found), "schedule"))
    return 0


def add(options: argparse.Namespace) -> int:
    body = read_body(body_limit(options.max_body, "--max-body")) if options.body == "-" else options.body
    more: Any = {
        "tz": options.tz, "start": options.start, "end": options.end, "jitter": options.jitter,
        "catch_up": options.catch_up, "catch_up_limit": options.catch_up_limit, **given_options(options, SCHEDULE),
    }  # fmt: skip
    added = app_of(options).schedules.add(options.name, options.when, options.queue, body, **more)
    say_broken_json("body", body)
    return say(options, f"next tick: {_next(added)}", **added.summary())


def remove(options: argparse.Namespace) -> int:
    """Remove a schedule; exit 1 if there was none."""
    removed = app_of(options).schedules.remove(options.name)
    say(options, "removed" if removed else f"there was no schedule {options.name!r}", removed=removed)
    return 0 if removed else 1


def pause(options: argparse.Namespace) -> int:
    app_of(options).schedules.pause(options.name)
    return say(options, "paused", paused=True)


def resume(options: argparse.Namespace) -> int:
    schedules = app_of(options).schedules
    schedules.resume(options.name)
    return say(options, f"next tick: {_next(schedules.get(options.name))}", paused=False)


def run_now(options: argparse.Namespace) -> int:
    identity = app_of(options).schedules.run(options.name)
    return say(options, identity, id=identity)


def preview(options: argparse.Namespace) -> int:
    found = app_of(options).schedules.preview(options.name, options.count)
    ticks = [tick.isoformat() for tick in found]
    print(json.dumps(ticks) if options.json else "\n".join(ticks) or "no tick: it is paused, or its end is over")
    return 0


def _next(one: Schedule) -> str:
    if one.next_tick is None:
        return "paused" if one.paused else "ended"
    return _text(one.next_tick)


def _latest(one: Schedule) -> str:
    if one.last_tick is None:
        return "never run"
    what = f"{one.lateness:.3f} s late" if one.last_id else "missed"
    return f"latest {_text(one.last_tick)}, {what}; {one.fired} sent, {one.missed} missed"


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
