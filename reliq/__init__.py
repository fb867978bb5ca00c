"""reliq: a reliable message queue on Redis lists.

    app = reliq.Reliq()                    # the Redis of RELIQ_URL
    app.queue("orders").send({"order": 1})

    @app.handler("orders")                 # run it: reliq worker MODULE:app
    def ship(message): ...

Here are the classes that act. Not repeated here, and imported from `reliq` as well: errors (`pydoc reliq.errors`), and
what calls return and accept: Stats, Cycle, Found, Progress, DeadLetter, DelayedMessage, Schedule, Config ...
(`pydoc reliq.Stats`). With asyncio: `pydoc reliq.aio`.
"""

from reliq.runtime import startup  # noqa: F401  the first import: signals are handled while the others run

# isort: split

from reliq import slices  # noqa: F401  the core's steps know the features from here on
from reliq._version import __version__
from reliq.client.app import Reliq
from reliq.client.consumer import Consumer
from reliq.client.dead_letters import DeadLetters
from reliq.client.delayed import Delayed
from reliq.client.queue import Queue
from reliq.contract.keywords import BatchOptions, Config, ConfigChanges, MessageOptions, PublishOptions
from reliq.errors import (
    ChangeUnderWay,
    DoneInPart,
    DurabilityUnavailable,
    HandlerFailed,
    InvalidBody,
    InvalidHandler,
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    JobClosed,
    LeaseLost,
    NoResult,
    OutcomeUnknown,
    PreparedClosed,
    QueueFull,
    RedisUnavailable,
    RedisUnsuitable,
    ReliqError,
    SignalRefused,
    SignalTimeout,
    StepsChanged,
    TimeLimitExceeded,
    TooManyInFlight,
    Unroutable,
)
from reliq.features.batches.client import Batch
from reliq.features.batches.model import BatchProgress
from reliq.features.cycle.client import Cycle
from reliq.features.flows.client import Flow
from reliq.features.flows.model import FlowMember, FlowMessage, FlowProgress
from reliq.features.output.model import Chunk
from reliq.features.prepared.client import Prepared
from reliq.features.receipts.model import Received
from reliq.features.schedules.client import Schedules
from reliq.features.schedules.locating import Schedule
from reliq.features.schedules.model import ScheduleOptions
from reliq.features.steps.decorator import step
from reliq.features.steps.model import StepFailed
from reliq.features.steps.ops import Parked
from reliq.features.topics.client import Topics
from reliq.features.topics.steps import Binding, TopicStats
from reliq.features.tracking.model import Cancellation, Event, Found
from reliq.model.backoff import Backoff, exponential, fixed, rocketmq_levels, steps
from reliq.model.breaker import breaker
from reliq.model.dead_letter import DeadLetter
from reliq.model.delayed_message import DelayedMessage
from reliq.model.element import Failure
from reliq.model.found import CancelledMany, Place, Progress
from reliq.model.keywords import DeadLetterFilters
from reliq.model.message import Message
from reliq.model.middleware import Middleware, Sending
from reliq.model.outgoing import NewMessage
from reliq.model.policy import Again, Dead, Retry
from reliq.model.result import Results
from reliq.model.stats import Stats
from reliq.protocol.delayed import DelayedPage

__all__ = [
    "Again",
    "Backoff",
    "Batch",
    "BatchOptions",
    "BatchProgress",
    "Binding",
    "Cancellation",
    "CancelledMany",
    "ChangeUnderWay",
    "Chunk",
    "Config",
    "ConfigChanges",
    "Consumer",
    "Cycle",
    "Dead",
    "DeadLetter",
    "DeadLetterFilters",
    "DeadLetters",
    "Delayed",
    "DelayedMessage",
    "DelayedPage",
    "DoneInPart",
    "DurabilityUnavailable",
    "Event",
    "Failure",
    "Flow",
    "FlowMember",
    "FlowMessage",
    "FlowProgress",
    "Found",
    "HandlerFailed",
    "InvalidBody",
    "InvalidHandler",
    "InvalidMessage",
    "InvalidName",
    "InvalidSetting",
    "JobClosed",
    "LeaseLost",
    "Message",
    "MessageOptions",
    "Middleware",
    "NewMessage",
    "NoResult",
    "OutcomeUnknown",
    "Parked",
    "Place",
    "Prepared",
    "PreparedClosed",
    "Progress",
    "PublishOptions",
    "Queue",
    "QueueFull",
    "Received",
    "RedisUnavailable",
    "RedisUnsuitable",
    "Reliq",
    "ReliqError",
    "Results",
    "Retry",
    "Schedule",
    "ScheduleOptions",
    "Schedules",
    "Sending",
    "SignalRefused",
    "SignalTimeout",
    "Stats",
    "StepFailed",
    "StepsChanged",
    "TimeLimitExceeded",
    "TooManyInFlight",
    "TopicStats",
    "Topics",
    "Unroutable",
    "__version__",
    "breaker",
    "exponential",
    "fixed",
    "rocketmq_levels",
    "step",
    "steps",
]  # fmt: skip

#: What `help(reliq)` shows and a prompt completes: errors and records would fill six times as many lines.
_SHOWN = (
    "Again", "Batch", "Consumer", "DeadLetters", "Delayed", "Flow", "Message", "NewMessage",
    "Prepared", "Queue", "Reliq", "Retry", "Schedules", "Topics", "breaker", "exponential", "fixed",
    "rocketmq_levels", "step", "steps",
)  # fmt: skip


def __dir__() -> list[str]:
    return [name for name in globals() if name.startswith("__") or name in _SHOWN]
