"""Huey: one worker thread, results off. It pops a task before it runs it: a crash loses the task."""

import logging

from huey import RedisHuey
from play import BODY, play

count = None


def _huey(url):
    huey = RedisHuey("bench", url=url, results=False)

    @huey.task()
    def job(body):
        count()

    return huey, job


def fill(url, messages):
    _, job = _huey(url)
    for _ in range(messages):
        job(BODY)


def consume(url, counter):
    global count
    count = counter
    logging.getLogger("huey").setLevel(logging.ERROR)
    huey, _ = _huey(url)
    huey.create_consumer(workers=1, periodic=False).run()


if __name__ == "__main__":
    play(fill, consume, ("huey", "redis"), "RedisHuey, 1 worker thread, results=False, no periodic tasks", "no")
