"""docket (pydocket): many tasks at once."""

import asyncio
from datetime import timedelta

from docket import Docket, Worker
from play import BODY, play

count = None


async def job(body: str) -> None:
    count()


async def _fill(url, messages):
    async with Docket(name="bench", url=url, execution_ttl=timedelta(0)) as docket:
        docket.register(job)
        for start in range(0, messages, 5):
            some = min(5, messages - start)
            await asyncio.gather(*(docket.add(job, key=f"job-{start + place}")(BODY) for place in range(some)))


def fill(url, messages):
    asyncio.run(_fill(url, messages))


async def _consume(url):
    async with Docket(name="bench", url=url, execution_ttl=timedelta(0)) as docket:
        docket.register(job)
        async with Worker(docket, concurrency=50) as worker:
            await worker.run_forever()


def consume(url, counter):
    global count
    count = counter
    asyncio.run(_consume(url))


if __name__ == "__main__":
    settings = "concurrency=50, execution_ttl=0 (no result kept)"
    play(fill, consume, ("pydocket", "redis"), settings, "yes: after redelivery_timeout, 5 minutes")
