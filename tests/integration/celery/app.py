"""A Celery application whose worker runs in a process of its own."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import celery
from celery.exceptions import Reject

from reliq.contrib.celery import configure

app = celery.Celery("tests.integration.celery.app", backend=os.environ.get("TEST_BACKEND"))
configure(app, os.environ.get("TEST_BROKER"), **json.loads(os.environ.get("TEST_OPTIONS", "{}")))
app.conf.result_expires = 600
app.conf.beat_schedule_filename = os.environ.get("TEST_BEAT", "beat")


@app.task(shared=False)
def add(x: int, y: int) -> int:
    return x + y


@app.task(shared=False)
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(shared=False)
def sleep(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@app.task(shared=False)
def fail() -> None:
    raise KeyError("no such order")


@app.task(shared=False, bind=True, max_retries=2, default_retry_delay=0.1)
def stubborn(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry()
    return int(self.request.retries)


@app.task(shared=False)
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(shared=False)
def leave() -> None:
    sys.exit("gone")


@app.task(shared=False)
def exhaust() -> None:
    raise MemoryError("nothing is left")


@app.task(shared=False, reject_on_worker_lost=False)
def die_once() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(shared=False, acks_on_timeout=False, time_limit=1)
def overrun() -> None:
    time.sleep(60)


@app.task(shared=False, bind=True)
def late(self: Any) -> None:
    raise self.retry(countdown=1.0)


@app.task(shared=False, bind=True)
def put_back(self: Any, path: str, times: int) -> str:
    """Note whether this is a redelivery, and reject the message so many times, to be delivered again."""
    with Path(path).open("a") as file:
        file.write(f"{self.request.delivery_info['redelivered']}\n")
    if len(Path(path).read_text().splitlines()) <= times:
        raise Reject("not yet", requeue=True)
    return "done"


@app.task(shared=False)
def refuse() -> None:
    raise Reject("never", requeue=False)


@app.task(shared=False)
def note(path: str, text: str, seconds: float = 0.0) -> None:
    """Write a line, take a while, and write another."""
    with Path(path).open("a") as file:
        file.write(f"begin {text}\n")
    time.sleep(seconds)
    with Path(path).open("a") as file:
        file.write(f"end {text}\n")
