"""Dramatiq: one worker thread, its prefetch raised."""

import os
import time

os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112  that is its name

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from play import BODY, play

count = None


def job(body):
    count()


def _actor(url):
    broker = RedisBroker(url=url, middleware=[])
    dramatiq.set_broker(broker)
    return broker, dramatiq.actor(job)


def fill(url, messages):
    _, actor = _actor(url)
    for _ in range(messages):
        actor.send(BODY)


def consume(url, counter):
    global count
    count = counter
    broker, _ = _actor(url)
    dramatiq.Worker(broker, worker_threads=1).start()
    while True:
        time.sleep(1)


if __name__ == "__main__":
    settings = "1 worker thread, dramatiq_queue_prefetch=1000, no middleware"
    play(
        fill, consume, ("dramatiq", "redis"), settings, "yes: after 60 s without heartbeat, by chance of 1/1000 a call"
    )
