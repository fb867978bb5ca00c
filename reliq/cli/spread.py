"""The partitions of a queue, from the command line."""

import argparse
import dataclasses
import json
from typing import Any

from reliq.cli.columns import columns
from reliq.cli.options import app_of, command
from reliq.cli.queue_names import known_queue
from reliq.protocol.partition_progress import PartitionProgress, PartitionStats


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    what = "show a queue's partitions, and the progress of a change of their number"
    command(commands, "queue partitions", show, what, queue=True)


def show(options: argparse.Namespace) -> int:
    """Print a line for each partition."""
    app = app_of(options)
    known_queue(app, options.queue)
    found = app.queue(options.queue).partitions()
    if options.json:
        print(json.dumps(dataclasses.asdict(found)))
        return 0
    print(_summary(options.queue, found))
    rows = [("partition", "ready", "processing", "delayed", "dead", " consumers"), *map(_row, found.partitions)]
    print("\n".join(columns(rows, -40, 9, 10, 9, 7)))
    return 0


def _summary(queue: str, found: PartitionProgress) -> str:
    partitions = f"{found.count} partition{'s' if found.count > 1 else ''}"
    if not found.moving:
        return f"{queue} has {partitions}"
    keys = sum(one.keys_elsewhere for one in found.partitions)
    return (
        f"{queue} has {partitions}, {found.before} before; {keys} keys still have messages where they were: "
        "these are handled there first, or a monitor takes them to their new home"
    )


def _row(one: PartitionStats) -> tuple[object, ...]:
    stats, notes = one.stats, []
    if not one.open:
        notes.append("takes no new messages")
    if one.keys_elsewhere:
        notes.append(f"{one.keys_elsewhere} keys leave")
    consumers = f" {stats.consumers}{'  ' * bool(notes)}{', '.join(notes)}"
    return one.name, stats.ready, stats.processing, stats.delayed, stats.dead, consumers
