"""Dead letters from the command line: list, show, redrive, purge."""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from reliq.cli.options import (
    command,
    confirmed,
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
from reliq.client.queue import Queue
from reliq.contract.outcomes import REASONS
from reliq.errors import InvalidSetting, ReliqError
from reliq.model.dead_letter import DeadLetter
from reliq.protocol.dead_letters import Filter, Redriven, RedriveOptions
from reliq.runtime.logging import paragraph, printable, printable_json

_NAMED = 5  #: ids that a question repeats


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    one = command(commands, "dead list", dead_list, "list dead letters, latest first", queue=True)
    one.add_argument("--limit", type=int, default=50, help="show at most this many (default 50)")
    one.add_argument("--after", metavar="CURSOR", help="continue after an earlier page")
    _dead_filters(one)
    one = command(commands, "dead show", dead_show, "show one dead letter, with its errors and body", queue=True)
    one.add_argument("id", help="its id")
    one = command(commands, "dead redrive", dead_redrive, "put dead letters back into the queue", queue=True)
    one.add_argument("id", nargs="*", help="only these")
    one.add_argument("--all", action="store_true", help="all dead letters, as when ids and filters are missing")
    one.add_argument("--rate", type=float, metavar="N", help="at most N per second")
    one.add_argument("--limit", type=int, metavar="N", help="at most N in total")
    one.add_argument("--dry-run", action="store_true", help="only count them")
    one.add_argument("--keep-failures", action="store_true", help="do not reset their count of failures")
    one.add_argument(
        "--stop-above",
        type=float,
        metavar="SHARE",
        help="with --rate: stop when more than this share (0 to 1) died again",
    )
    one.add_argument("--yes", action="store_true", help="do not ask, as a terminal does before all go back")
    _dead_filters(one)
    one = command(commands, "dead purge", dead_purge, "remove dead letters for good", queue=True)
    one.add_argument("id", nargs="*", help="only these")
    one.add_argument("--all", action="store_true", help="all dead letters")
    one.add_argument("--yes", action="store_true", help="do not ask")
    _dead_filters(one)


def _dead_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", choices=REASONS, help="only those that died for this reason")
    parser.add_argument("--error-class", metavar="NAME", help="only those whose last error has this class")
    parser.add_argument("--error-text", metavar="TEXT", help="only those whose last error says this in its first line")
    parser.add_argument("--older-than", metavar="TIME", help="only those that died longer ago, e.g. 1h")
    parser.add_argument("--newer-than", metavar="TIME", help="only those that died more recently")
    header(parser, "only those with this header")


def dead_list(options: argparse.Namespace) -> int:
    letters = queue_of(options).dead
    page = letters.list(limit=options.limit, after=options.after, bodies=False, **_filters(options))
    if options.json:
        print(json.dumps({"letters": [letter.summary() for letter in page], "next": page.next}))
        return 0
    such = "such " if _filtered(options) or options.after else ""
    say_none(page, f"{options.queue} has no {such}dead letters")
    for letter in page:
        error = error_line(letter.last_error)
        counts = f"failures={letter.failures}" + (f"  deaths={letter.deliveries}" if letter.deliveries else "")
        print(f"{letter.id}  {utc(letter.died_at)}  {letter.reason:14} {counts}  {error}".rstrip())
    if page.next:
        print(f"more: --after={page.next}")  # it may begin with a dash
    return 0


def dead_show(options: argparse.Namespace) -> int:
    letter = queue_of(options).dead.get(options.id)
    if letter is None:
        print(f"reliq: queue {options.queue} has no dead letter {options.id}", file=sys.stderr)
        return 1
    if options.json or not sys.stdout.isatty():
        print(_as_json({**letter.summary(), **_details(letter)}, indent=None if options.json else 2))
    else:
        print("\n".join(_lines(letter)))
    return 0


def _as_json(value: object, indent: int | None) -> str:
    """Return JSON that standard output can encode; what it cannot is an escape of JSON."""
    text = printable_json(value, indent)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text


def _lines(letter: DeadLetter) -> Iterator[str]:
    """Yield what a terminal shows of a dead letter: its errors and its body with their line breaks."""
    details = _details(letter)
    for name, value in letter.summary().items():
        if name not in ("error", "headers") and value not in (None, "", {}):
            yield f"{name:16}{printable(str(utc(value) if name.endswith('_at') else value))}"
    for name, value in letter.headers.items():
        yield f"{'header':16}{printable(f'{name}={value}')}"
    for error in details["errors"]:
        yield f"\nerror at {utc(error['at'])}, on {printable(error['worker'])}: {printable(error['error_class'])}"
        yield f"    {paragraph(error['text'])}"
    yield "\nbody" + (" (hex)" if "body_hex" in details else "")
    yield f"    {paragraph(details.get('body') or details.get('body_hex', ''))}"


def _details(letter: DeadLetter) -> dict[str, Any]:
    errors = [
        {"at": one.at, "worker": one.worker, "error_class": one.error_class, "text": one.text} for one in letter.errors
    ]
    try:
        return {"errors": errors, "body": letter.body.decode()}
    except UnicodeDecodeError:
        return {"errors": errors, "body_hex": letter.body.hex()}


def dead_redrive(options: argparse.Namespace) -> int:
    some_or_all(options, _filters(options))
    how: Any = {name: getattr(options, name) for name in ("rate", "limit", "dry_run", "keep_failures", "stop_above")}
    which: Any = {"ids": options.id or None, **_filters(options)}
    RedriveOptions(**how), Filter.of(which)  # what is wrong is said before the question
    queue = queue_of(options)
    _ask_before_all(options, queue)
    bar = Progress("redriving", visible=False if options.json else None)
    redriven = 0

    def note(matched: int) -> None:
        nonlocal redriven
        redriven = matched
        bar.update(matched)

    try:
        result = queue.dead.redrive(progress=note, **how, **which)
    except KeyboardInterrupt:
        if not options.dry_run:
            _say_interrupted(options, redriven)
        raise
    bar.update(result.matched, final=True)
    if options.json:
        print(json.dumps(asdict(result)))
    elif options.dry_run:
        print(f"{result.matched} would be redriven")
    else:
        print(f"{result.redriven} redriven" + (f"; stopped: {result.stopped}" if result.stopped else ""))
    return 1 if missing(options, result.matched, "dead letter", filtered=_filtered(options)) else 0


def _ask_before_all(options: argparse.Namespace, queue: Queue) -> None:
    """Ask on a terminal before all dead letters go back at once; a script has said what it wants."""
    some = options.id or options.limit or _filtered(options)
    if some or options.dry_run or options.yes or not sys.stdin.isatty():
        return
    if dead := queue.stats().dead:
        confirmed(options, f"put all dead letters of {options.queue} ({dead}) back into the queue")


def _say_interrupted(options: argparse.Namespace, redriven: int) -> None:
    """Say how far it came, but for a call whose answer was not read. Another connection counts what is left."""
    with contextlib.suppress(ReliqError):
        dead = queue_of(options).stats().dead
        result = Redriven(redriven, redriven, stopped="interrupted")
        text = f"interrupted: at least {redriven} redriven, {dead} stay dead"
        say(options, text, **asdict(result), dead=dead)
        sys.stdout.flush()


def dead_purge(options: argparse.Namespace) -> int:
    some_or_all(options, _filters(options))
    if not (options.id or options.all or _filtered(options)):
        raise InvalidSetting("purging dead letters needs ids, a filter, or --all")
    wanted: Any = {"ids": options.id or None, **_filters(options)}
    Filter.of(wanted)  # what is wrong is said before the question
    letters = queue_of(options).dead
    confirmed(options, f"remove {_named(options)} of {options.queue} for good")
    removed = letters.purge(all=options.all, **wanted)
    status = say(options, f"{counted(removed, 'dead letter')} removed", removed=removed)
    return 1 if missing(options, removed, "dead letter", filtered=_filtered(options)) else status


def _named(options: argparse.Namespace) -> str:
    """Return which letters a command is about; a long list of ids is cut."""
    if not options.id:
        return "dead letters"
    listed = ", ".join(options.id[:_NAMED]) + (", ..." if len(options.id) > _NAMED else "")
    return f"the dead letter{'s' * (len(options.id) > 1)} {listed}"


def _filtered(options: argparse.Namespace) -> bool:
    return any(_filters(options).values())


def _filters(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "reason": options.reason,
        "error_class": options.error_class,
        "error_text": options.error_text,
        "older_than": options.older_than,
        "newer_than": options.newer_than,
        "headers": dict(pair(one) for one in options.header),
    }
