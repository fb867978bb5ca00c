"""The application that `bench/celery.py` measures, on the broker that the environment names."""

import os
import time

from celery import Celery

from reliq.contrib.celery import configure

BROKER = os.environ["BENCH_BROKER"]

app = Celery("bench.celery_app", broker=BROKER)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    worker_redirect_stdouts=False,
)
if BROKER.startswith("reliq+"):
    configure(app, BROKER)
else:
    app.conf.broker_transport_options = {
        "visibility_timeout": 20, "unacked_restore_interval": 1, "unacked_restore_throttle": 1
    }  # fmt: skip


@app.task(name="noop")
def noop() -> None:
    """Do nothing."""


@app.task(name="mark")
def mark(key: str, seconds: float) -> None:
    """Count the runs of a task that takes a while."""
    import redis

    with redis.from_url(BROKER.removeprefix("reliq+")) as client:
        client.incr(key)
    time.sleep(seconds)
