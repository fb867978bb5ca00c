"""Messages that wait for a signal, from the command line, and their signals."""

import argparse
import sys
from typing import Any

from reliq.cli.options import command, queue_of, say, say_each, utc
from reliq.cli.progress import since
from reliq.cli.stdin import say_broken_json
from reliq.errors import SignalRefused
from reliq.features.steps.model import json_or_text
from reliq.features.steps.ops import Parked
from reliq.runtime.logging import printable


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    one = command(commands, "parked list", parked, "list messages that wait for a signal", queue=True)
    one.add_argument("--limit", type=int, default=100, help="show at most this many (default 100)")

    one = command(commands, "message signal", signal, "give a signal to a message, even before it waits", queue=True)
    one.add_argument("id", help="the id of the message")
    one.add_argument("name", help="the name of the signal, such as approval")
    one.add_argument(
        "value", nargs="?", help="the value of the signal, as JSON; text that is not JSON is sent as it is"
    )


def parked(options: argparse.Namespace) -> int:
    """Print the messages that wait."""
    return say_each(options, queue_of(options).parked(options.limit), _line, "no message waits for a signal")


def _line(one: Parked) -> str:
    until = f"until={utc(one.until)}" if one.until else "for ever"
    return f"{one.id}  signal={printable(one.signal)}  since={since(one.since)} ago  {until}"


def signal(options: argparse.Namespace) -> int:
    """Give a signal; exit 1 if it is refused."""
    value = None if options.value is None else json_or_text(options.value)
    try:
        taken = queue_of(options).signal(options.id, options.name, value)
    except SignalRefused as error:
        print(f"reliq: {error}", file=sys.stderr)
        return 1
    if taken:
        say_broken_json("value", options.value or "")
    text = (
        "the signal is given; if there is no such message yet, it is kept for a day"
        if taken
        else "the message has had this signal before: the first one counts"
    )
    return say(options, text, taken=taken)
