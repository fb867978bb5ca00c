"""A Taskiq application whose worker runs in a process of its own."""

import os
import signal
import time
from pathlib import Path

from taskiq import SmartRetryMiddleware

from reliq.contrib.taskiq import ReliqBroker

broker = ReliqBroker(os.environ["RELIQ_URL"], reconnect_grace=0.5).with_middlewares(SmartRetryMiddleware())


@broker.task(task_name="note")
def note(path: str, text: str, seconds: float = 0.0) -> None:
    """Write a line, take a while, and write another."""
    with Path(path).open("a") as file:
        file.write(f"begin {text}\n")
    time.sleep(seconds)
    with Path(path).open("a") as file:
        file.write(f"end {text}\n")


@broker.task(task_name="die")
def die() -> None:
    """Kill this process after a moment."""
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
