"""Messages and what is answered to a send."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from reliq.model import settings as core
from reliq_api.schemas.base import MessageId, Period, Request


class NewMessage(Request):
    """A message to enqueue. Exactly one of `body` and `body_base64` is given."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"body": {"order": 1}, "delay": "10s", "headers": {"tenant": "a"}, "dedup_key": "order-1"}]
        }
    )

    body: Any = Field(None, description="A text is sent as its UTF-8, any other value as the JSON it is.")
    body_base64: str | None = Field(None, description="Bytes that are not text.")
    delay: Period | None = Field(None, description="How long it stays invisible.")
    headers: dict[str, str] | None = Field(None, description="Kept with the message, at most 16 KiB.")
    dedup_key: str | None = Field(
        None, min_length=1, description="Within `window`, only the first message with this key is enqueued."
    )
    window: Period | None = Field(None, description="How long `dedup_key` is remembered; default 10 minutes.")
    replace: bool = Field(
        default=False,
        description="It replaces the message with this `dedup_key` that waits; `window` has no meaning then.",
    )
    debounce: Period | None = Field(None, description="With `replace`: delay it while no newer one comes.")
    at_most: Period | None = Field(
        None, description="With `debounce`: how long after the first one the newest is due in any case."
    )
    ttl: Period | None = Field(None, description="How long it may still be started; later it becomes a dead letter.")
    id: MessageId | None = Field(None, description="Default: a new UUIDv7.")
    key: str | None = Field(
        None, min_length=1, max_length=core.MAX_KEY_BYTES, description="Messages with one key go one by one, in order."
    )
    limit_key: str | None = Field(
        None, min_length=1, max_length=core.MAX_KEY_BYTES, description="Shares the limits of this key, e.g. a tenant."
    )
    priority: Literal["high", "normal", "low"] | None = Field(None, description="Default: normal.")


class Enqueued(BaseModel):
    id: MessageId
    deduplicated: bool = Field(
        description="A duplicate: nothing was enqueued, and the id is that of the earlier message."
    )
    conflict: bool = Field(default=False, description="Present if true: that earlier message has another body.")


class BatchResult(BaseModel):
    """The result of one message of a batch, in the order of the batch."""

    status: Literal["enqueued", "deduplicated", "refused"]
    id: MessageId | None = None
    conflict: bool = Field(default=False, description="Present if true: the earlier message has another body.")
    code: str | None = Field(None, description="Why it was refused: an error code.", examples=["invalid_message"])
    detail: str | None = None


class BatchEnqueued(BaseModel):
    enqueued: int
    deduplicated: int
    refused: int
    results: list[BatchResult]
