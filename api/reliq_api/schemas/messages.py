"""Messages, and the answer to a send."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from reliq.contract.options import OPTIONS
from reliq_api.schemas.base import MessageId, Request
from reliq_api.schemas.declared import with_options


class _NewMessage(Request):
    body: Any = Field(None, description="A text is sent as its UTF-8, any other value as the JSON it is.")
    body_base64: str | None = Field(None, description="Bytes that are not text.")


class NewMessage(with_options(_NewMessage, OPTIONS)):  # type: ignore[misc]
    """A message to enqueue. Exactly one of `body` and `body_base64` is given."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"body": {"order": 1}, "delay": "10s", "headers": {"tenant": "a"}, "dedup_key": "order-1"}]
        }
    )


class Enqueued(BaseModel):
    id: MessageId
    deduplicated: bool = Field(
        description="A duplicate: nothing was enqueued, and the id is that of the earlier message."
    )
    conflict: bool = Field(default=False, description="Present if true: that earlier message has another body.")


class BatchResult(BaseModel):
    """The result of one message of a batch, in the order of the batch."""

    status: Literal["enqueued", "deduplicated", "refused", "unknown"]
    id: MessageId | None = None
    conflict: bool = Field(default=False, description="Present if true: the earlier message has another body.")
    code: str | None = Field(None, description="Why it was refused: an error code.", examples=["invalid_message"])
    detail: str | None = None


class BatchEnqueued(BaseModel):
    enqueued: int
    deduplicated: int
    refused: int
    unknown: int = Field(0, description="Messages that may be enqueued or not, because no answer came from Redis.")
    results: list[BatchResult]
