"""Taskiq on reliq: `python examples/taskiq_orders.py`. Starts a Redis of its own, and a worker in this process.

Needs the extras: `pip install '.[taskiq,embedded]'` in reliq's source folder. In a service, `taskiq worker shop:broker`
runs the tasks in processes of their own.
"""

import asyncio
from typing import Any

from taskiq import AsyncTaskiqDecoratedTask, Context, SmartRetryMiddleware, TaskiqDepends
from taskiq.api import run_receiver_task

from reliq.contrib.taskiq import ReliqBroker
from reliq.embedded import EmbeddedRedis


def shipping(broker: ReliqBroker, shipped: asyncio.Queue[int]) -> AsyncTaskiqDecoratedTask[..., Any]:
    """Return the task that ships an order; order 2 fails at its first try."""

    @broker.task(retry_on_error=True)
    async def ship(order: int, context: Context = TaskiqDepends()) -> None:
        tries = int(context.message.labels.get("_retries", 0))
        if order == 2 and not tries:
            raise OSError("the carrier does not answer")
        print(f"shipped {order}" + (" at the second try" if tries else ""))
        await shipped.put(order)

    return ship


async def main(url: str) -> None:
    retries = SmartRetryMiddleware(default_delay=0.5)  # a retry waits in Redis
    broker = ReliqBroker(url, queue="orders").with_middlewares(retries)
    shipped: asyncio.Queue[int] = asyncio.Queue()
    ship = shipping(broker, shipped)
    broker.is_worker_process = True
    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    for order in (1, 2, 3):
        await ship.kiq(order)
    await ship.kicker().with_labels(delay=2).kiq(4)
    for _ in range(4):
        await shipped.get()
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await broker.shutdown()


if __name__ == "__main__":
    with EmbeddedRedis() as redis:
        asyncio.run(main(redis.url))
