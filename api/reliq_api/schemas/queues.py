"""Queues: statistics, policy, limits."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from reliq.model import settings as core
from reliq.model.partitions import MOST
from reliq_api.schemas.base import QueueName, Request, Whole


class QueueConfig(BaseModel):
    """A queue's policy; null: no limit."""

    max_length: int | None
    max_bytes: int | None
    max_deliveries: int
    dead_max_age: float | None
    dead_max_count: int | None
    paused: bool
    rate: str | None
    burst: int | None
    concurrency: int | None
    key_rate: str | None
    key_concurrency: int | None
    fair: bool
    weights: dict[str, int]
    track: bool
    history: float | None
    partitions: int


class ConfigChanges(Request):
    """Sets the given fields; null resets a field to its default."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_length": 100_000}]})

    max_length: Whole | None = Field(None, ge=1, le=10**12, description="Ready and delayed; above it: 429 queue_full.")
    max_bytes: Whole | None = Field(
        None,
        ge=core.MIN_QUOTA_BYTES,
        le=10**15,
        description="Redis' memory for ready and delayed messages; above it: 429 queue_full.",
    )
    max_deliveries: Whole | None = Field(None, ge=1, le=10_000, description="Consumers that may vanish with a message.")
    dead_max_age: float | None = Field(
        None, ge=1, le=core.MAX_DELAY_SECONDS, allow_inf_nan=False, description="Seconds a dead letter is kept."
    )
    dead_max_count: Whole | None = Field(None, ge=1, le=10**12, description="Dead letters kept, the latest.")
    rate: str | None = Field(
        None, max_length=32, description="Messages given out, over all consumers.", examples=["100/s"]
    )
    burst: Whole | None = Field(None, ge=1, le=1_000_000, description="Of these, how many at once.")
    concurrency: Whole | None = Field(None, ge=1, le=1_000_000, description="Messages in processing at once.")
    key_rate: str | None = Field(None, max_length=32, description="Messages of one key given out.", examples=["5/s"])
    key_concurrency: Whole | None = Field(None, ge=1, le=1000, description="Messages of one limit key at once.")
    fair: bool | None = Field(None, description="Take one message of each limit key after another.")
    weights: dict[str, Whole] | None = Field(None, description="By limit key: how many in its turn.", max_length=1000)
    track: bool | None = Field(None, description="Keep an index of the messages: they are found at once.")
    history: float | None = Field(
        None,
        ge=1,
        le=core.MAX_DELAY_SECONDS,
        allow_inf_nan=False,
        description="Seconds the transitions of messages are kept.",
    )
    partitions: Whole | None = Field(None, ge=1, le=MOST, description="Queues in Redis that the queue is spread over.")


class QueueStats(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    queue: QueueName
    ready: int
    processing: int
    delayed: int
    dead: int
    prepared: int = Field(description="Invisible until their producers decide.")
    waiting: int = Field(description="Of the ready messages, those behind another message of their key.")
    oldest_ready_age: float = Field(description="Seconds.")
    consumers: int
    paused: bool
    limited_by: str = Field(description="Why nothing is given out now: held, breaker, rate, concurrency; else empty.")
    breaker: str = Field(description="closed, open or half_open.")
    counters: dict[str, int]


class QueueDetails(QueueStats):
    config: QueueConfig


class PartitionStats(BaseModel):
    """One partition. Calls name the queue, never a partition."""

    name: str = Field(description="The queue that it is in Redis.")
    open: bool = Field(description="Whether it takes new messages; else it is forgotten once it is empty.")
    stats: QueueStats
    keys_elsewhere: int = Field(description="Keys with messages here whose home is another partition by now.")


class PartitionProgress(BaseModel):
    count: int = Field(description="Partitions that take messages.")
    before: int = Field(description="How many there were before the latest change.")
    moving: bool = Field(description="Whether messages may still be in the former home of their key.")
    partitions: list[PartitionStats]


class QueueList(BaseModel):
    queues: list[QueueStats]


class Paused(BaseModel):
    queue: QueueName
    paused: bool


class BreakerRequest(Request):
    state: Literal["open", "closed"]
    seconds: float = Field(3600.0, ge=0.1, le=core.MAX_DELAY_SECONDS, description="How long it is open.")


class Breaker(BaseModel):
    queue: QueueName
    breaker: str


class PurgeRequest(Request):
    confirm: QueueName = Field(description="The queue's name again: purged messages are gone for good.")


class Purged(BaseModel):
    removed: int
