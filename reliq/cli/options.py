"""Options, confirmation and output shared by the commands."""

import argparse
import json
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence, Sized
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from reliq.cli.queue_names import known_queue
from reliq.client.app import Reliq
from reliq.client.queue import Queue
from reliq.contract import kinds, values
from reliq.contract.options import Option, given, options_of
from reliq.errors import InvalidSetting, RedisUnavailable, RedisUnsuitable, ReliqError
from reliq.model.element import Failure
from reliq.model.error_text import gist
from reliq.ops import server_time
from reliq.protocol.application import body_limit, eviction_allowed, reconnect_grace, url_from_environment
from reliq.runtime import startup
from reliq.runtime.logging import printable
from reliq.transport.store import Store

BAD_USAGE = 2  #: exit status


class Summarized(Protocol):
    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON."""


T = TypeVar("T", bound=Summarized)


def command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    help: str,
    queue: bool = False,
    json_too: bool = True,
    url_default: str | None = "RELIQ_URL, else redis://localhost:6379/0",
) -> argparse.ArgumentParser:
    """Add a command. `url_default`: the Redis that it uses without --url; None: it takes no other Redis."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
    parser.set_defaults(run=run, patient=False)
    if url_default is not None:
        where = f"the Redis server, or env:NAME or file:/path where its URL is (default: {url_default})"
        parser.add_argument("--url", metavar="URL", help=where)
    if queue:
        parser.add_argument("queue", help="the queue's name")
    if json_too:
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    return parser


def header(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help=f"{help}; may be repeated")


def message_options(parser: argparse.ArgumentParser, call: str) -> None:
    """Add a flag for each option of the messages of a call."""
    for option in options_of(call):
        match option.kind:
            case kinds.Headers():
                header(parser, "a header")
            case kinds.Flag():
                parser.add_argument(f"--{option.flag}", action="store_true", help=_help(option))
            case kinds.Choice(words=words):
                parser.add_argument(f"--{option.flag}", choices=words, help=_help(option))
            case kind:
                metavar = _METAVARS.get(type(kind), "TEXT")
                parser.add_argument(f"--{option.flag}", metavar=metavar, help=_help(option))


_METAVARS: dict[type[kinds.Kind], str] = {
    kinds.Duration: "TIME", kinds.Text: "KEY", kinds.Identity: "ID", kinds.Tokens: "TOKENS",
}  # fmt: skip


def _help(option: Option) -> str:
    such = f" (e.g. {option.example})" if option.example else ""
    default = f" (default: {option.default})" if isinstance(option.default, str) else ""
    text = f"{option.text}{such}{default}".replace("`", "")
    return re.sub(r"\b(window|replace|debounce|dedup_key)\b", lambda name: f"--{name[0].replace('_', '-')}", text)


def given_options(options: argparse.Namespace, call: str) -> Any:
    """Return the options of messages that the command line sets, as keywords of the call."""
    values = {**vars(options), "headers": dict(pair(one) for one in options.header)}
    typed = {
        one.name: one.kind.typed(values[one.name]) for one in options_of(call) if isinstance(values.get(one.name), str)
    }
    return given({name: value for name, value in (values | typed).items() if value is not False}, call)


def logging_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="log warnings only")
    parser.add_argument("--log-json", action="store_true", help="log JSON, one object per line (or RELIQ_LOG_JSON=1)")


def metrics_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="serve Prometheus metrics at /metrics on this port (default: none)",
    )
    parser.add_argument(
        "--metrics-host",
        default="127.0.0.1",
        metavar="HOST",
        help="the address of the metrics (default 127.0.0.1; 0.0.0.0 = all)",
    )


def grace_option(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--reconnect-grace",
        metavar="TIME",
        help="how long a worker may be disconnected before the monitor returns its messages (default 5s, or "
        "RELIQ_RECONNECT_GRACE)",
    )


def reconnect_grace_of(options: argparse.Namespace) -> float:
    return reconnect_grace(options.reconnect_grace, "--reconnect-grace")


def max_body(parser: argparse.ArgumentParser) -> None:
    text = "bytes a body may have, such as 8MiB; at most 64MiB (default: RELIQ_MAX_BODY, else 1MiB)"
    parser.add_argument("--max-body", metavar="SIZE", help=text)


def body_limit_of(options: argparse.Namespace) -> int:
    return body_limit(options.max_body, "--max-body")


def app_of(options: argparse.Namespace) -> Reliq:
    app = Reliq(options.url, max_body=body_limit_of(options) if "max_body" in options else None)
    _expect_answer(app.store)
    return app


def store_of(options: argparse.Namespace, *, waits: bool = False) -> Store:
    """Return the store of a command; `waits`: the command waits for a Redis that is away, not for one that refuses."""
    store = Store(url_from_environment(options.url), allow_eviction=eviction_allowed(None))
    if not waits:
        _expect_answer(store)
    else:
        expect_no_refusal(store)
    return store


def expect_no_refusal(store: Store) -> None:
    """Raise RedisUnsuitable for a Redis that refuses; for one that is away the command waits, and says so."""
    try:
        store.call(server_time(), timeout=0)  # each role may ask for it
    except RedisUnsuitable:
        raise
    except ReliqError:
        pass


def _expect_answer(store: Store) -> None:
    """On a terminal, say at once that Redis cannot be reached; a script's call is repeated for some seconds."""
    if not sys.stderr.isatty():
        return
    try:
        store.call(server_time(), timeout=0)  # each role may ask for it
    except RedisUnsuitable:
        raise
    except RedisUnavailable as error:
        hint = "`reliq dev` starts one for development; --url or RELIQ_URL names another one"
        raise RedisUnavailable(f"{error}: {hint}") from None


def queue_of(options: argparse.Namespace) -> Queue:
    """Return the queue that the command is about; raises UnknownQueue for one that does not exist."""
    return known_queue(app_of(options), options.queue)


def say(options: argparse.Namespace, text: str, **values: Any) -> int:
    print(json.dumps(values) if options.json else text)
    return 0


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some_or_all(options: argparse.Namespace, filters: Mapping[str, Any]) -> None:
    """Refuse ids or filters beside --all: a reader cannot tell which of them decides."""
    if not options.all:
        return
    if options.id:
        raise InvalidSetting(f"the id {options.id[0]!r} and --all are given: give ids, or --all")
    for name in (name for name, value in filters.items() if value):
        flag = "header" if name == "headers" else name.replace("_", "-")
        raise InvalidSetting(f"--{flag} and --all are given: give filters, or --all")


def missing(options: argparse.Namespace, found: int, noun: str, *, filtered: bool = False) -> int:
    """Return how many of the ids that were given were not found; say so, on standard error.

    `filtered`: filters were given, too, so that one of another kind may be there.
    """
    ids = set(options.id)
    if absent := max(0, len(ids) - found):
        noun = f"such {noun}" if filtered else noun
        which = options.id[0] if len(ids) == 1 else f"for {absent} of the {len(ids)} ids"
        print(f"reliq: queue {options.queue} has no {noun} {which}", file=sys.stderr)
    return absent


def say_each(options: argparse.Namespace, found: Sequence[T], line: Callable[[T], str], none: str) -> int:
    """Print a line for each item, or with --json all summaries; without any item, the text `none`."""
    if options.json:
        print(json.dumps([one.summary() for one in found]))
        return 0
    say_none(found, none)
    for one in found:
        print(line(one))
    return 0


def say_none(found: Sized, text: str) -> None:
    """Say that a list is empty, on standard error: standard output is for what was found."""
    if not found:
        print(text, file=sys.stderr)


def confirmed(options: argparse.Namespace, what: str) -> None:
    """Ask for a yes on a terminal, on standard error; without one, raise InvalidSetting unless there is --yes."""
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise InvalidSetting(f"this would {what}: confirm with --yes")
    try:
        print(f"This will {what}. Type yes to go on: ", end="", file=sys.stderr, flush=True)
        answer = input()  # whose own prompt would go into a pipe
    except EOFError:  # Ctrl-D
        answer = ""
        print(file=sys.stderr)
    if answer.strip() != "yes":
        raise SystemExit("nothing was done")


def pair(text: str, what: str = "--header") -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidSetting(f"{what} {text!r}: write NAME=VALUE")
    return name, value


def utc(milliseconds: int) -> str:
    """Return the time as ISO 8601, or a text for a number that is not a valid time."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # an element may hold any number
        return "(impossible time)"


def error_line(failure: Failure | None) -> str:
    """Return an error's class and the first line of its text, without hidden characters; empty without an error."""
    return "" if failure is None else printable(values.cut(f"{failure.error_class}: {gist(failure)}", 200))


def stop_event() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopping = threading.Event()
    startup.take_over(stopping.set)
    return stopping
