"""The application of `reliq bench`: the body says what the handler does; it notes the time in a file."""

import functools
import os
import time

import reliq

NOTES = "RELIQ_BENCH_NOTES"  #: environment: the file; "name seconds pid" a line, by time.monotonic()
QUEUE = "RELIQ_BENCH_QUEUE"  #: environment: the queue's name

NOTHING, MARK, HOLD = b"nothing", b"mark ", b"hold "

app = reliq.Reliq()


@functools.cache
def _notes() -> int:
    return os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND)


def _note(name: bytes) -> None:
    os.write(_notes(), b"%s %.7f %d\n" % (name, time.monotonic(), os.getpid()))


@app.handler(os.environ.get(QUEUE, "reliq-bench"))
def work(message: reliq.Message) -> None:
    """Do nothing, or note the run, or note it and hang until the process is killed."""
    if message.body.startswith(MARK):
        _note(message.body[len(MARK) :])
    elif message.body.startswith(HOLD):
        _note(message.body[len(HOLD) :])
        while not message.redelivered and not message.lost:
            time.sleep(0.005)
