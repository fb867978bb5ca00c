"""reliq: a reliable message queue on Redis lists."""

from reliq.app import Reliq
from reliq.backoff import Backoff, exponential, fixed, rocketmq_levels, steps
from reliq.consumer import Consumer
from reliq.dead_letters import DeadLetter, DeadLetters
from reliq.errors import (
    DurabilityUnavailable,
    InvalidHandler,
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    JobClosed,
    LeaseLost,
    OutcomeUnknown,
    QueueFull,
    RedisUnavailable,
    RedisUnsuitable,
    ReliqError,
    TimeLimitExceeded,
)
from reliq.handlers import Again, Dead, Retry
from reliq.message import Failure, Message, NewMessage
from reliq.queue import Config, Queue, Stats

__version__ = "0.1.0"

__all__ = [
    "Again", "Backoff", "Config", "Consumer", "Dead", "DeadLetter", "DeadLetters", "DurabilityUnavailable", "Failure",
    "InvalidHandler", "InvalidMessage", "InvalidName", "InvalidSetting", "JobClosed", "LeaseLost", "Message",
    "NewMessage", "OutcomeUnknown", "Queue", "QueueFull", "RedisUnavailable", "RedisUnsuitable", "Reliq", "ReliqError",
    "Retry", "Stats", "TimeLimitExceeded", "exponential", "fixed", "rocketmq_levels", "steps",
]  # fmt: skip
