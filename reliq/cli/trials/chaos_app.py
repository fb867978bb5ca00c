"""The application of `reliq chaos`: it notes the start and the end of each run in a file, before the ack."""

import functools
import os
import time

import reliq

HISTORY = "RELIQ_CHAOS_HISTORY"  #: environment: the file; "start ID" or "end ID" a line
QUEUE = "RELIQ_CHAOS_QUEUE"  #: environment: the queue's name
WORK = "RELIQ_CHAOS_WORK"  #: environment: seconds that a message takes

app = reliq.Reliq()
_seconds = float(os.environ.get(WORK, "0.002"))


@functools.cache
def _history() -> int:
    return os.open(os.environ[HISTORY], os.O_WRONLY | os.O_APPEND)


def _note(event: str, message: reliq.Message) -> None:
    os.write(_history(), f"{event} {message.id}\n".encode())


@app.handler(os.environ.get(QUEUE, "chaos"))
def work(message: reliq.Message) -> None:
    """Take a while, so that workers are killed during a run."""
    _note("start", message)
    time.sleep(_seconds)
    _note("end", message)
