"""Dead letters, redrive and purge."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from reliq.contract import values
from reliq.contract.outcomes import REASONS
from reliq_api.schemas.base import DeathReason, MessageId, Period, QueueName, Request, Whole


class Filter(Request):
    """A selection of dead letters; all given conditions must hold."""

    ids: list[MessageId] | None = Field(None, min_length=1, max_length=values.MAX_BATCH)
    reason: DeathReason | None = None
    error_class: str | None = Field(None, max_length=200, description="Of the last error, with or without its module.")
    error_text: str | None = Field(None, max_length=500, description="A part of the first line that this error says.")
    older_than: Period | None = Field(None, description="Dead for longer.")
    newer_than: Period | None = Field(None, description="Dead for less.")
    headers: dict[str, str] | None = None


class RedriveRequest(Filter):
    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "max_failures", "dry_run": True}]})

    limit: Whole = Field(10_000, ge=1, le=100_000, description="The largest number in this call.")
    dry_run: bool = False
    keep_failures: bool = Field(default=False, description="Do not reset their count of failures.")


class RedriveResult(BaseModel):
    matched: int
    redriven: int
    dry_run: bool
    stopped: str = Field(description="Why it ended before the last letter, or empty.")


class DeadPurgeRequest(Filter):
    all: bool = Field(default=False, description="All dead letters; needed if no other condition is given.")


class Failure(BaseModel):
    at: int
    worker: str
    error_class: str
    text: str


class DeadLetter(BaseModel):
    id: str
    queue: QueueName
    routing_key: str
    key: str
    reason: str = Field(examples=list(REASONS))
    died_at: int = Field(description="Ms since the epoch.")
    enqueued_at: int
    failures: int
    deliveries: int
    headers: dict[str, str]
    size: int
    error_class: str
    error: str


class DeadLetterDetails(DeadLetter):
    body: Any
    encoding: Literal["json", "text", "base64"]
    errors: list[Failure]


class DeadLetterPage(BaseModel):
    letters: list[DeadLetter]
    next: str | None = Field(description="Give it as `after` for the next page; null at the end.")
