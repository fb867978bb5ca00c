"""Single messages from the command line: find them, cancel them."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from reliq.cli.columns import columns
from reliq.cli.options import app_of, command, error_line, header, pair, queue_of, say, utc
from reliq.cli.progress import Progress, bar
from reliq.cli.queue_names import known_queue
from reliq.errors import InvalidSetting
from reliq.features.tracking.hits import Hit
from reliq.features.tracking.model import Cancellation, Found
from reliq.features.tracking.text_search import MOST, PLACES
from reliq.runtime.logging import printable


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    one = command(commands, "message find", find, "show where a message is, and why")
    one.add_argument("id", help="its id")
    one.add_argument("--queue", metavar="QUEUE", help="the queue that it is in (default: search all)")

    what = "look for a text in ids, headers, keys, errors and bodies"
    one = command(commands, "message search", search, what, queue=True)
    one.add_argument("text", help="what a message contains; upper and lower case differ")
    one.add_argument(
        "--in", dest="place", choices=[one.value for one in PLACES], help="only in this place (default: in all three)"
    )
    one.add_argument("--limit", type=int, default=50, help="how many to show (default 50)")
    one.add_argument("--most", type=int, default=MOST, help=f"how many to look through (default {MOST:,})")

    one = command(
        commands, "message cancel", cancel, "cancel one message, wherever it is, or those with a key or with headers",
        queue=True,
    )  # fmt: skip
    one.add_argument("id", nargs="?", help="its id")
    one.add_argument("--key", help="all messages with this ordering key or limit key")
    header(one, "all messages with this header")
    one.add_argument("--dry-run", action="store_true", help="with --key or --header: only count them")


def find(options: argparse.Namespace) -> int:
    """Print where a message is; exit 1 if it is nowhere."""
    app = app_of(options)
    found = app.find(options.id) if options.queue is None else known_queue(app, options.queue).find(options.id)
    if options.json:
        print(json.dumps(found and found.summary()))
    elif found is None:
        print(f"reliq: {_nowhere(options)}", file=sys.stderr)
    else:
        print("\n".join(f"{name:12}{printable(text)}" for name, text in _facts(found)))
    return 0 if found else 1


def _nowhere(options: argparse.Namespace) -> str:
    where = f"queue {options.queue}" if options.queue else "any queue"
    return f"message {options.id} is not in {where}: it was handled, removed, or never sent"


def _facts(found: Found) -> Iterator[tuple[str, str]]:
    yield "queue", found.queue
    yield "place", found.place.value
    yield "why", found.why
    if found.since is not None:
        yield "since", utc(found.since)
    if found.due_at is not None:
        yield "due", utc(found.due_at)
    if found.died_at is not None:
        yield "died", utc(found.died_at)
    if found.progress is not None:
        yield "progress", _progress(found)
    message = found.message
    if message is not None and message.readable:
        yield "sent", utc(message.enqueued_at)
        yield "failures", str(message.failures)
        yield "deaths", f"{message.deliveries} (consumers that died with it)"
        yield "size", f"{message.size:,} bytes"
        for name, value in (
            ("key", message.key),
            ("limit key", message.limit_key),
            ("routing key", message.routing_key),
        ):
            if value:
                yield name, value
        for name, value in message.headers.items():
            yield "header", f"{name}={value}"
        if message.last_error is not None:
            yield "last error", error_line(message.last_error)
    for event in found.history:
        yield "history", f"{utc(event.at)}  {event.name}  {event.detail}"


def _progress(found: Found) -> str:
    report = found.progress
    assert report is not None  # noqa: S101  the caller has looked
    text = f"{bar(report.fraction)}  {report.text}" if report.fraction is not None else "a checkpoint"
    return f"{text}  ({utc(report.at)})"


def search(options: argparse.Namespace) -> int:
    """Print the messages that contain a text, and how many were looked through; exit 1 if none was found."""
    queue = queue_of(options)
    hits = queue.search(options.text, place=options.place, limit=options.limit, most=options.most)
    if options.json:
        print(json.dumps(hits.summary()))
    else:
        rows = [("place", "id", "sent", "where; text"), *map(_hit_row, hits)]
        print("\n".join(columns(rows, -10, -36, -20)) if hits.hits else "no message contains it")
        print(f"reliq: {hits.sentence()}", file=sys.stderr)
    return 0 if hits.hits else 1


def _hit_row(one: Hit) -> tuple[str, ...]:
    message = one.found.message
    sent = utc(message.enqueued_at) if message is not None and message.readable else "-"
    return tuple(map(printable, (one.found.place.value, one.found.id, sent, f"{one.where}: {one.excerpt}")))


def cancel(options: argparse.Namespace) -> int:
    """Cancel a message, exit 1 if it was not removed; or many."""
    headers = dict(pair(one) for one in options.header)
    ways = (options.id is not None) + (options.key is not None) + bool(headers)
    if not ways:
        raise InvalidSetting(
            f"only {options.queue!r} is given: write `reliq message cancel QUEUE ID` (`reliq message find ID` names "
            "the queue), or the queue and --key KEY or --header NAME=VALUE"
        )
    if ways > 1:
        raise InvalidSetting("give one of these: the id of a message, --key KEY, --header NAME=VALUE")
    if options.id is None:
        return _cancel_many(options, headers)
    if options.dry_run:
        raise InvalidSetting("--dry-run is for --key and --header; `reliq message find ID` says where one message is")
    answer = queue_of(options).cancel(options.id)
    text = _nowhere(options) if answer is Cancellation.UNKNOWN else answer.value
    say(options, text, cancelled=bool(answer), answer=answer.value)
    return 0 if answer else 1


def _cancel_many(options: argparse.Namespace, headers: dict[str, str]) -> int:
    line = Progress("cancelling", visible=False if options.json else None)
    result = queue_of(options).cancel_many(
        key=options.key, headers=headers or None, dry_run=options.dry_run, progress=line.update
    )
    line.update(result.cancelled, final=True)
    would = "would be " if options.dry_run else ""
    text = f"{result.cancelled} messages {would}cancelled, consumers of {result.told} {would}told"
    return say(options, text, **asdict(result), dry_run=options.dry_run)
