"""Queues: statistics, policy, limits."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from reliq.contract.settings import PAUSED, SETTINGS
from reliq.model.stats import Stats
from reliq_api.schemas.base import Lasting, QueueName, Request
from reliq_api.schemas.declared import with_changes, with_fields, with_values


class QueueConfig(with_values(BaseModel, (*SETTINGS, PAUSED))):  # type: ignore[misc]
    """A queue's policy; null: no limit."""


class ConfigChanges(with_changes(Request, SETTINGS)):  # type: ignore[misc]
    """Sets the given fields; null resets a field to its default."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_length": 100_000}]})


class QueueStats(with_fields(BaseModel, Stats, queue=QueueName)):  # type: ignore[misc]
    model_config = ConfigDict(from_attributes=True)


class QueueDetails(QueueStats):
    config: QueueConfig | None = Field(description="The policy; null while the node that has it does not answer.")


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
    seconds: Annotated[float, Lasting(0.1)] = Field(3600.0, description="How long it is open.")


class Breaker(BaseModel):
    queue: QueueName
    breaker: str


class PurgeRequest(Request):
    confirm: QueueName = Field(description="The queue's name again: purged messages cannot be restored.")


class Purged(BaseModel):
    removed: int
