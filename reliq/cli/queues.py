"""Queues as a whole, from the command line: delete."""

import argparse
import getpass
import logging
import socket
from dataclasses import asdict
from typing import Any

from reliq.cli.options import app_of, command, confirmed, say
from reliq.cli.queue_names import known_queue
from reliq.protocol.deletion import delete

log = logging.getLogger("reliq.operator")


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    what = "delete a queue that is not used any more, with its policy, counters, schedules and bindings"
    one = command(commands, "queue delete", delete_queue, what, queue=True)
    one.add_argument(
        "--force", action="store_true", help="delete it even if it has messages, which are lost, or workers"
    )
    one.add_argument("--yes", action="store_true", help="do not ask")


def delete_queue(options: argparse.Namespace) -> int:
    """Delete a queue after a confirmation; the log says who did it, and what the queue had."""
    app = app_of(options)
    known_queue(app, options.queue)
    messages = " with all of its messages" if options.force else ""
    confirmed(options, f"delete the queue {options.queue}{messages} for good")
    deleted = app.store.run(delete(options.queue, force=options.force))
    who = f"{_user()}@{socket.gethostname()}"
    log.warning("deleted queue=%s redis=%s by=%s had=%s", options.queue, app.store.where, who, deleted)
    return say(options, f"{options.queue} is deleted; it had {deleted}", deleted=True, had=asdict(deleted))


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without an entry for its user
        return "unknown"
