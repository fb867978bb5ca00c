"""taskiq with a Redis stream, acknowledged after the run."""

import asyncio

from play import BODY, play
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

count = None


def _broker(url):
    broker = RedisStreamBroker(url, xread_count=100)

    @broker.task(task_name="job")
    async def job(body: str) -> None:
        count()

    return broker, job


async def _fill(url, messages):
    broker, job = _broker(url)
    await broker.startup()
    for start in range(0, messages, 200):
        some = min(200, messages - start)
        await asyncio.gather(*(job.kiq(BODY) for _ in range(some)))
    await broker.shutdown()


def fill(url, messages):
    asyncio.run(_fill(url, messages))


async def _consume(url):
    broker, _ = _broker(url)
    await run_receiver_task(broker, validate_params=False, max_async_tasks=100, max_prefetch=100, run_startup=True)


def consume(url, counter):
    global count
    count = counter
    asyncio.run(_consume(url))


if __name__ == "__main__":
    settings = "RedisStreamBroker, xread_count=100, 100 tasks at once, prefetch 100, no result backend"
    play(fill, consume, ("taskiq", "taskiq-redis", "redis"), settings, "yes: after idle_timeout, 10 minutes")
