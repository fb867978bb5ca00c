"""asyncio: a producer and a worker in one event loop, and a consumer by hand.

python examples/asyncio_orders.py
"""

import asyncio

import reliq
from reliq.aio import Reliq
from reliq.embedded import EmbeddedRedis

ORDERS = 500


async def consume(app: Reliq, name: str, shipped: set[int]) -> None:
    """Claim, handle and settle until the queue has nothing more."""
    async with app.queue("orders").consumer(lease=15) as consumer:
        while messages := await consumer.claim(limit=50, wait=0.5):
            await asyncio.gather(*(ship(message, shipped) for message in messages))
            await consumer.ack(*messages)
            print(f"  {name} shipped {len(messages)}")


async def ship(message: reliq.Message, shipped: set[int]) -> None:
    await asyncio.sleep(0.01)
    shipped.add(message.json()["order"])


async def main(url: str) -> None:
    shipped: set[int] = set()
    async with Reliq(url) as app:
        ids = await app.queue("orders").send_many([{"order": number} for number in range(ORDERS)])
        print(f"{len(ids)} sent in one round trip")
        await asyncio.gather(*(consume(app, f"consumer {number}", shipped) for number in range(3)))
        stats = await app.queue("orders").stats()
    print(f"shipped {len(shipped)} of {ORDERS}, acked {stats.counters['acked']}")


if __name__ == "__main__":
    with EmbeddedRedis() as redis:
        asyncio.run(main(redis.url))
