"""reliq: a reliable message queue on Redis lists."""

from reliq import startup  # noqa: F401  the first import: signals are handled while the others run
from reliq.app import Reliq
from reliq.backoff import Backoff, exponential, fixed, rocketmq_levels, steps
from reliq.consumer import Consumer
from reliq.cycle import Cycle
from reliq.dead_letters import DeadLetter, DeadLetters
from reliq.delayed import Delayed, DelayedMessage, DelayedPage
from reliq.errors import (
    DurabilityUnavailable,
    InvalidHandler,
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    JobClosed,
    LeaseLost,
    OutcomeUnknown,
    PreparedClosed,
    QueueFull,
    RedisUnavailable,
    RedisUnsuitable,
    ReliqError,
    TimeLimitExceeded,
    Unroutable,
)
from reliq.handlers import Again, Dead, Retry
from reliq.message import Failure, Message, NewMessage
from reliq.prepared import Prepared
from reliq.queue import Config, Queue, Stats
from reliq.topics import Binding, Topics, TopicStats

__version__ = "0.1.0"

__all__ = [
    "Again", "Backoff", "Binding", "Config", "Consumer", "Cycle", "Dead", "DeadLetter", "DeadLetters",
    "Delayed", "DelayedMessage", "DelayedPage",
    "DurabilityUnavailable", "Failure", "InvalidHandler", "InvalidMessage", "InvalidName", "InvalidSetting",
    "JobClosed", "LeaseLost", "Message", "NewMessage", "OutcomeUnknown", "Prepared", "PreparedClosed", "Queue",
    "QueueFull", "RedisUnavailable", "RedisUnsuitable", "Reliq", "ReliqError", "Retry", "Stats", "TimeLimitExceeded",
    "TopicStats", "Topics", "Unroutable", "exponential", "fixed", "rocketmq_levels", "steps",
]  # fmt: skip
