"""Flows from the command line: those that have not ended, and the messages of one."""

import argparse
import json
import sys
from collections import Counter
from typing import Any

from reliq.cli.options import app_of, command, say_each
from reliq.cli.progress import bar, since
from reliq.client.app import Reliq
from reliq.features.flows.model import FlowMember, FlowProgress

_SHOWN = 50  #: messages of a layer, or of a flow within the flow; and such flows


def add_to(commands: Any) -> None:
    """Add the commands to the parser."""
    every = command(
        commands, "flow list", flows,
        "list the flows that have not ended, oldest first, with how many of their messages have ended; an abandoned "
        "one was not sent as a whole",
    )  # fmt: skip
    every.add_argument("--limit", type=int, default=100, help="show at most this many (default 100)")
    one = command(
        commands, "flow show", show,
        "print the messages of a flow by layers: number, state, queue, id, the numbers of those that it waits for, and "
        "the flows that its handler has opened, their messages below it; also in the hour after its end",
    )  # fmt: skip
    one.add_argument("id", help="the id of the flow")
    gone = command(
        commands, "flow cancel", cancel,
        "cancel the messages of a flow that have not ended, and of those that its handlers have opened; one that runs "
        "learns it with its next heartbeat",
    )  # fmt: skip
    gone.add_argument("id", help="the id of the flow")


def flows(options: argparse.Namespace) -> int:
    """Print the flows that have not ended."""
    return say_each(options, app_of(options).flows(limit=options.limit), _line, "no open flows")


def show(options: argparse.Namespace) -> int:
    """Print one flow; exit 1 if no flow has that id."""
    app = app_of(options)
    found = app.flow_progress(options.id)
    if options.json:
        print(json.dumps(found and found.graph()))
        return 0 if found else 1
    if found is None:
        return _none(options.id)
    print(_line(found))
    within = Within(app)
    for number, layer in enumerate(found.layers()):
        counts = ", ".join(f"{count} {state}" for state, count in sorted(Counter(one.state for one in layer).items()))
        print(f"\nlayer {number}: {counts}")
        for one in layer[:_SHOWN]:
            print(f"  {_member(one)}")
            within.show(one, " " * 6)
        if len(layer) > _SHOWN:
            print(f"  and {len(layer) - _SHOWN:,} more")
    return 0


class Within:
    """Prints the flows that handlers of messages have opened, each below its message, up to a number of them."""

    def __init__(self, app: Reliq) -> None:
        self._app = app
        self._left = _SHOWN

    def show(self, opener: FlowMember, indent: str) -> None:
        for flow in opener.flows[: self._left]:
            found = self._app.flow_progress(flow)
            if found is None:  # it ended over an hour ago
                continue
            self._left -= 1
            print(f"{indent}{_line(found)}")
            for one in found.members[:_SHOWN]:
                print(f"{indent}  {_member(one)}")
                self.show(one, indent + " " * 6)
            if len(found.members) > _SHOWN:
                print(f"{indent}  and {len(found.members) - _SHOWN:,} more")


def cancel(options: argparse.Namespace) -> int:
    """Cancel a flow; exit 1 if it is not open."""
    cancelled = app_of(options).cancel_flow(options.id)
    if options.json:
        print(json.dumps({"id": options.id, "cancelled": cancelled}))
    elif cancelled:
        print(f"flow {options.id} is cancelled")
    else:
        _none(options.id)
    return 0 if cancelled else 1


def _none(flow: str) -> int:
    print(f"reliq: there is no flow {flow} that is open: it has ended, was given up, or never existed", file=sys.stderr)
    return 1


def _line(one: FlowProgress) -> str:
    done = bar((one.size - one.open) / one.size)
    return f"{one.id}  {one.state:9}  {done}  messages={one.size} open={one.open}  age={since(one.opened_at)}"


def _member(one: FlowMember) -> str:
    few = " ".join(f"#{number}" for number in one.after[:5])
    more = f" and {len(one.after) - 5:,} more" if len(one.after) > 5 else ""
    after = f"  after {few}{more} (on failure: {one.on_failure})" if one.after else ""
    opened = f"  opened {' '.join(one.flows)}" if one.flows else ""
    return f"#{one.number:<4} {one.state:9}  {one.queue}  {one.id}{after}{opened}"
