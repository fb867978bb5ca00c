"""Celery: acks late, results off, in the worker's own process."""

import os

from celery import Celery
from play import BODY, play

app = Celery("bench", broker=os.environ.get("BENCH_URL"))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1000,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    broker_connection_retry_on_startup=True,
)
count = None


@app.task(name="job")
def job(body):
    count()


def fill(url, messages):
    app.conf.broker_url = url
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(messages):
            job.apply_async((BODY,), producer=producer)


def consume(url, counter):
    global count
    count = counter
    app.conf.broker_url = url
    app.worker_main(
        ["worker", "-P", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
    )


if __name__ == "__main__":
    settings = "-P solo, task_acks_late, task_ignore_result, prefetch 1000, no gossip/mingle/heartbeat"
    play(fill, consume, ("celery", "kombu", "redis"), settings, "yes: after the visibility timeout, 1 hour")
