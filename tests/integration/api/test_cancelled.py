"""A task that is cancelled ends, also in the very moment in which it sends to Redis."""

import asyncio

from reliq import aio, ops


def test_no_cancellation_is_forgotten(url):
    async def forever(reliq):
        while True:
            await reliq.store.run(ops.one(ops.command("PING")))

    async def scene():
        async with aio.Reliq(url) as reliq:
            for steps in range(40):  # at whatever point of the exchange it is
                task = asyncio.create_task(forever(reliq))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                done, _ = await asyncio.wait([task], timeout=5)
                assert done == {task}, f"it goes on, after {steps} steps"
                assert task.cancelled()

    asyncio.run(scene())
