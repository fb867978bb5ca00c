"""Where a message is, and its cancellation."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from reliq.contract import values
from reliq_api.schemas.base import QueueName, Request


class FoundMessage(BaseModel):
    enqueued_at: int = Field(description="Ms since the epoch.")
    failures: int
    deliveries: int = Field(description="How many consumers vanished while they held it.")
    redelivered: bool
    headers: dict[str, str]
    routing_key: str
    key: str
    limit_key: str
    priority: str
    size: int = Field(description="Bytes of the body.")
    error_class: str
    error: str = Field(description="The text of its last failure.")


class Reported(BaseModel):
    fraction: float | None = Field(description="From 0 to 1; null: only a state was reported.")
    text: str
    at: int = Field(description="Ms since the epoch.")
    state_bytes: int | None = Field(description="Bytes of its latest checkpoint.")


class Event(BaseModel):
    at: int
    name: str
    detail: str


class Found(BaseModel):
    """What does not apply to the place is null or an empty text."""

    id: str
    queue: QueueName
    place: Literal["ready", "waiting", "processing", "delayed", "parked", "prepared", "dead", "done"]
    why: str = Field(description="A sentence for people.")
    position: int | None = Field(description="ready: about how many are taken before it.")
    limited_by: str = Field(
        description="ready: why none starts now: paused, held, breaker, rate, concurrency; else empty."
    )
    waiting_for: str = Field(description="waiting: the key that another message holds.")
    waiting_for_flow: str = Field(description="waiting: the id of its flow, if it waits for messages of that.")
    consumer: str = Field(description="processing: who holds it.")
    since: int | None
    due_at: int | None
    died_at: int | None
    reason: str = Field(description="dead: why.")
    message: FoundMessage | None
    progress: Reported | None
    history: list[Event]


class Hit(Found):
    """A message that contains the text."""

    where: Literal["id", "header", "key", "routing key", "error", "body"] = Field(
        description="The first of these that contains it."
    )
    excerpt: str = Field(description="The text with what is around it; empty if it lies deep in a large body.")


class Hits(BaseModel):
    messages: list[Hit]
    looked: int = Field(description="Messages that were looked at, the newest of each place.")
    total: int = Field(description="Messages in the places that were searched.")
    unread_bodies: int = Field(description="Bodies apart of more than 256 KiB: they were not searched.")
    complete: bool = Field(description="Whether all messages were looked at, with their bodies.")


class Cancelled(BaseModel):
    """`done` and `unknown` come as problems with the same member."""

    result: Literal["cancelled", "told"]


class CancelRequest(Request):
    """Exactly one of `key` and `headers`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"headers": {"tenant": "acme"}, "dry_run": True}]})

    key: str | None = Field(
        None, min_length=1, max_length=values.MAX_KEY_BYTES, description="All with this ordering key or limit key."
    )
    headers: dict[str, str] | None = Field(None, min_length=1, description="All that have all of these headers.")
    dry_run: bool = Field(default=False, description="Only count them.")


class CancelledMany(BaseModel):
    cancelled: int
    told: int = Field(description="Consumers hold them, which learn it with their next heartbeat.")
    dry_run: bool
