"""Batches that have not ended."""

from typing import Literal

from pydantic import BaseModel, Field


class Batch(BaseModel):
    id: str
    state: Literal["open", "closed", "abandoned"] = Field(
        description="open: its producer may add messages. abandoned: nothing is sent when it ends."
    )
    opened_at: int = Field(description="Ms since the epoch.")
    sent: int
    handled: int
    dead: int
    cancelled: int
    open: int = Field(description="How many messages have not ended.")
    batches: int = Field(description="Batches in it that have not ended.")


class BatchList(BaseModel):
    batches: list[Batch]
