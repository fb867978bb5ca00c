"""The workers, from the command line: who they are, and what they run."""

import argparse
import json
import time
from typing import Any

from reliq.cli.columns import columns
from reliq.cli.options import command, say_none, store_of
from reliq.cli.progress import age
from reliq.model.worker import WorkerProcess
from reliq.protocol.workers import every_worker
from reliq.runtime.logging import printable

HEAD = ("worker", "host", "pid", "title", "version", "up", "beat", "held", "msg/s", "queues; what has run for longest")
_LEAST = (-20, -8, 6, -8, -7, 5, 5, 5, 6)


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    command(commands, "worker list", workers, "list the processes that consume, and what they run", json_too=True)


def workers(options: argparse.Namespace) -> int:
    """Print a line for each worker."""
    found = store_of(options).run(every_worker())
    if options.json:
        print(json.dumps([one.summary() for one in found]))
        return 0
    say_none(found, "there are no workers: `reliq worker MODULE:APP` starts one")
    if found:
        print("\n".join(columns([HEAD, *(row(one, time.time()) for one in found)], *_LEAST)))
    return 0


def row(one: WorkerProcess, now: float) -> tuple[str, ...]:
    """Return the cells of a worker; - for what it does not say. `now`: seconds since the epoch."""
    here, longest = one.process, one.running
    about = ("-", "-", "-", "-", "-")
    if here is not None:
        about = (here.host, str(here.pid), here.title or "-", here.version, _since(here.started, now))
    runs = f"; {longest.doing.running} for {_since(longest.doing.since, now)}" if longest else ""
    cells = (one.id, *about, _since(one.beat, now), str(one.processing), f"{one.rate:.3g}", ",".join(one.queues) + runs)
    return tuple(map(printable, cells))


def _since(at: int | None, now: float) -> str:
    return age(max(0.0, now - at / 1000)) if at else "-"
