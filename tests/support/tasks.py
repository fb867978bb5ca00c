"""Tasks of asyncio that are cancelled at a chosen moment."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def cancelled(work: Coroutine[Any, Any, None], begun: asyncio.Event, turns: int) -> None:
    """Cancel a task so many turns of its event loop after it has begun; wait for it and for all that it has started."""
    task = asyncio.create_task(work)
    await begun.wait()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 10)
