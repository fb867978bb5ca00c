"""arq: many jobs at once, results off."""

import asyncio

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from play import BODY, play


async def _fill(url, messages):
    pool = await create_pool(RedisSettings.from_dsn(url))
    for start in range(0, messages, 200):
        some = min(200, messages - start)
        await asyncio.gather(*(pool.enqueue_job("job", BODY) for _ in range(some)))


def fill(url, messages):
    asyncio.run(_fill(url, messages))


def consume(url, count):
    async def job(context, body):
        count()

    async def main():
        worker = Worker(
            functions=[func(job, name="job", keep_result=0)],
            redis_settings=RedisSettings.from_dsn(url),
            max_jobs=200,
            poll_delay=0.01,
            handle_signals=False,
        )
        await worker.async_run()

    asyncio.run(main())


if __name__ == "__main__":
    play(fill, consume, ("arq", "redis"), "max_jobs=200, keep_result=0, poll_delay=0.01", "yes: after job_timeout")
