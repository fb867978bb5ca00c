"""streaQ: many tasks at once, results off."""

import asyncio

from play import BODY, play
from streaq import Worker

count = None


def _worker(url):
    worker = Worker(redis_url=url, queue_name="bench", concurrency=200, prefetch=200, handle_signals=False)

    @worker.task(ttl=0, name="job")
    async def job(body: str) -> None:
        count()

    return worker, job


async def _fill(url, messages):
    worker, job = _worker(url)
    async with worker:
        for start in range(0, messages, 500):
            await worker.enqueue_many([job.enqueue(BODY) for _ in range(min(500, messages - start))])


def fill(url, messages):
    asyncio.run(_fill(url, messages))


def consume(url, counter):
    global count
    count = counter
    worker, _ = _worker(url)
    worker.run_sync()


if __name__ == "__main__":
    play(
        fill, consume, ("streaq", "coredis"), "concurrency=200, prefetch=200, ttl=0 (no result kept)", "yes: after 60 s"
    )
