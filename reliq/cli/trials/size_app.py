"""The application of `reliq size --check`: handlers that take some time."""

import os
import time

import reliq

QUEUES = "RELIQ_SIZE_QUEUES"  #: environment: how many queues
HANDLER = "RELIQ_SIZE_HANDLER"  #: environment: seconds of a run


def queue_name(number: int) -> str:
    return f"size-{number}"


app = reliq.Reliq()
_seconds = float(os.environ.get(HANDLER, "0"))


def work(message: reliq.Message) -> None:
    """Take the time of a run."""
    time.sleep(_seconds)


for _number in range(int(os.environ.get(QUEUES, "1"))):
    app.handler(queue_name(_number))(work)
