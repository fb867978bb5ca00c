"""The command line, which combines library, worker, monitor and HTTP service."""

import argparse
import io
import logging
import sys
from collections.abc import Sequence
from typing import NoReturn

from reliq._version import __version__
from reliq.cli import (
    api,
    bench,
    chaos,
    completion,
    dead,
    delayed,
    insight,
    messages,
    new,
    queues,
    services,
    size,
    spread,
    sqs,
    worker,
    workers,
)
from reliq.cli.options import BAD_USAGE
from reliq.cli.parser import Parser
from reliq.cli.streams import open_closed, write_no_more
from reliq.cli.words import Words
from reliq.errors import MissingExtra, ReliqError
from reliq.features.batches import command as batches
from reliq.features.flows import command as flows
from reliq.features.output import command as output
from reliq.features.schedules import command as schedules
from reliq.features.steps import command as durable
from reliq.features.topics import command as topics
from reliq.features.tracking import command as life
from reliq.runtime import logging as logs
from reliq.runtime import startup
from reliq.runtime.environment import flag
from reliq.runtime.looking import looking
from reliq.runtime.url import redacted


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status: 0 done, 1 failed, 2 wrong usage, 130 after Ctrl-C."""
    try:
        startup.imported()
        open_closed()
        if isinstance(sys.stdout, io.TextIOWrapper):  # characters missing in the terminal's encoding are escaped
            sys.stdout.reconfigure(errors="backslashreplace")
        words = sys.argv[1:] if arguments is None else arguments
        options = _parser(words).parse_args(words)
        level = logging.WARNING if getattr(options, "quiet", False) else logging.INFO
        as_json, tracebacks = getattr(options, "log_json", False), getattr(options, "tracebacks", False)
        logs.configure(level, as_json, tracebacks)
        _trace_if_asked_to()
        status = startup.end_status(_run(options))
        return _written() or status
    except ReliqError as error:
        print(f"reliq: {logs.printable(redacted(str(error)), lines=True)}", file=sys.stderr)
        return getattr(error, "exit_status", BAD_USAGE if isinstance(error, ValueError) else 1)
    except KeyboardInterrupt:
        return startup.INTERRUPTED
    except BrokenPipeError:  # `reliq dead list | head`
        write_no_more()
        return 0
    except OSError as error:
        if error.filename is not None or not _written("\n"):  # it was something else
            raise
        return 1


def _written(more: str = "") -> int:
    """Write what was printed, here and not at Python's exit: the reader may be gone. Return 1 if that fails."""
    try:
        sys.stdout.write(more)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        write_no_more()
        print(f"reliq: the command has ended, but what it printed is lost: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _run(options: argparse.Namespace) -> int:
    """Run the command; say what it could not see of a Redis Cluster. Commands that send or serve are more patient."""
    if getattr(options, "patient", True):
        status: int = options.run(options)
        return status
    with looking() as missing:
        status = options.run(options)
    for line in missing.lines():
        print(f"reliq: {line}", file=sys.stderr)
    return max(status, 1) if missing else status


def _trace_if_asked_to() -> None:
    if not flag("RELIQ_OTEL"):
        return
    try:
        from reliq.otel import from_environment
    except MissingExtra as error:
        raise MissingExtra(f"RELIQ_OTEL=1: {error}") from None
    from_environment()


def entry() -> NoReturn:
    sys.exit(main())


def _parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of these words, without what none of them can be; None: of all commands."""
    parser = Parser(
        prog="reliq",
        description="A reliable message queue on Redis lists.",
        epilog="Commands on queues take --url, or RELIQ_URL from the environment. `reliq COMMAND --help` says more.",
    )
    parser.add_argument("--version", action="version", version=f"reliq {__version__}")
    parser.set_defaults(run=lambda _: _help(parser))
    commands = Words(parser)
    for part in (
        worker,
        workers,
        services,
        new,
        messages,
        life,
        output,
        durable,
        batches,
        flows,
        spread,
        queues,
        topics,
        schedules,
        delayed,
        dead,
        insight,
        chaos,
        bench,
        size,
    ):
        part.add_to(commands)
    spark = commands.add_parser("spark", help="write data into queues and export dead letters, with Spark")
    if words is None or {"spark", "completion"}.intersection(words):  # its modules would make each command start later
        _spark(spark)
    for part in (api, sqs):
        part.add_to(commands)
    completion.add_to(commands, parser)
    commands.name_verbs()
    return parser


def _help(parser: argparse.ArgumentParser) -> int:
    """Print the commands: none was given."""
    parser.print_help(sys.stderr)
    return BAD_USAGE


def _spark(parser: argparse.ArgumentParser) -> None:
    from reliq.spark.pipeline import add_commands

    add_commands(parser.add_subparsers(title="commands", metavar="COMMAND", required=True))
