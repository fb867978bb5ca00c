"""The workers, from the command line: who they are, and what they run."""

import argparse
import json
from typing import Any

from reliq.cli.columns import columns
from reliq.cli.options import command, say, say_none, store_of
from reliq.cli.progress import age
from reliq.errors import ReliqError
from reliq.model.instruction import Instruction
from reliq.model.worker import NO_WORKER, WorkerProcess
from reliq.ops import server_time
from reliq.protocol.workers import every_worker, find_worker, instruct
from reliq.runtime.logging import printable

HEAD = ("worker", "host", "pid", "title", "version", "up", "beat", "held", "msg/s", "queues; what has run for longest")


class UnknownWorker(ReliqError):
    """The worker that a command is about does not exist: it has ended, or its id is mistyped."""


_LEAST = (-20, -8, 6, -8, -7, 5, 5, 5, 6)


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    command(commands, "worker list", workers, "list the processes that consume, and what they run")

    for verb, text in (
        (Instruction.PAUSE, "pause a worker: it finishes what runs, and claims nothing"),
        (Instruction.RESUME, "let a paused worker claim messages again"),
        (Instruction.STOP, "shut a worker down cleanly, as SIGTERM does"),
    ):
        one = command(commands, f"worker {verb}", instruct_worker, text)
        one.set_defaults(instruction=verb)
        one.add_argument("id", help="its id, or the beginning of it, from `reliq worker list`")


def instruct_worker(options: argparse.Namespace) -> int:
    """Tell a worker to pause, to resume or to stop."""
    store, verb = store_of(options), options.instruction
    one = store.run(find_worker(options.id))
    if one is not None and not one.follows:
        raise UnknownWorker(f"{one.id} is not a worker; {NO_WORKER}")
    if one is None or not store.run(instruct(one, verb)):
        raise UnknownWorker(f"there is no worker {options.id!r}: `reliq worker list` shows all of them")
    text = f"told worker {one.id} to {verb}: it does so with its next heartbeat, within a third of its lease"
    return say(options, text, id=one.id, told=verb.value)


def workers(options: argparse.Namespace) -> int:
    """Print a line for each worker."""
    store = store_of(options)
    found = store.run(every_worker())
    if options.json:
        print(json.dumps([one.summary() for one in found]))
        return 0
    say_none(found, "there are no workers: `reliq worker MODULE:APP` starts one")
    if found:
        now = store.call(server_time()) / 1000  # this machine's clock may be wrong
        print("\n".join(columns([HEAD, *(row(one, now) for one in found)], *_LEAST)))
    return 0


def row(one: WorkerProcess, now: float) -> tuple[str, ...]:
    """Return the cells of a worker; - for what it does not say. `now`: seconds since the epoch, by Redis."""
    here, longest = one.process, one.running
    about = ("-", "-", "-", "-", "-")
    if here is not None:
        about = (here.host, str(here.pid), here.title or "-", here.version, _since(here.started, now))
    paused = "; paused" if one.paused else ""
    runs = f"; {longest.doing.running} for {_since(longest.doing.since, now)}" if longest else ""
    cells = (
        one.id,
        *about,
        _since(one.beat, now),
        str(one.processing),
        f"{one.rate:.3g}",
        ",".join(one.queues) + paused + runs,
    )
    return tuple(map(printable, cells))


def _since(at: int | None, now: float) -> str:
    return age(max(0.0, now - at / 1000)) if at else "-"
