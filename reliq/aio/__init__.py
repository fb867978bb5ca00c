"""The same names for asyncio: `from reliq.aio import Reliq`, and `await` in front of what talks to Redis."""

from reliq.aio.app import Reliq
from reliq.aio.consumer import Consumer
from reliq.aio.dead_letters import DeadLetters
from reliq.aio.delayed import Delayed
from reliq.aio.queue import Queue
from reliq.features.cycle.aio import Cycle
from reliq.features.prepared.aio import Prepared
from reliq.features.schedules.aio import Schedules
from reliq.features.topics.aio import Topics

__all__ = ["Consumer", "Cycle", "DeadLetters", "Delayed", "Prepared", "Queue", "Reliq", "Schedules", "Topics"]
