"""Batches that have not ended."""

from pydantic import BaseModel, Field

from reliq.features.batches.model import State


class Batch(BaseModel):
    id: str
    state: State = Field(description="open: its producer may add messages. abandoned: nothing is sent when it ends.")
    opened_at: int = Field(description="Ms since the epoch.")
    sent: int
    handled: int
    dead: int
    cancelled: int
    open: int = Field(description="How many messages have not ended.")
    batches: int = Field(description="Batches in it that have not ended.")


class BatchList(BaseModel):
    batches: list[Batch]
