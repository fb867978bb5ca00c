"""SAQ: many jobs at once, results off."""

import asyncio

from play import BODY, play
from saq import Queue, Worker


async def _fill(url, messages):
    queue = Queue.from_url(url)
    await queue.connect()
    for start in range(0, messages, 200):
        some = min(200, messages - start)
        await asyncio.gather(*(queue.enqueue("job", body=BODY, ttl=-1, timeout=0) for _ in range(some)))


def fill(url, messages):
    asyncio.run(_fill(url, messages))


def consume(url, count):
    async def job(context, *, body):
        count()

    async def main():
        await Worker(Queue.from_url(url), functions=[("job", job)], concurrency=100).start()

    asyncio.run(main())


if __name__ == "__main__":
    settings = "concurrency=100, ttl=-1 (no result kept), timeout=0"
    play(fill, consume, ("saq", "redis", "hiredis"), settings, "yes: by the sweeper, after the job's heartbeat")
