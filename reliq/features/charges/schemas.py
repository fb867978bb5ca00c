"""Charges."""

from pydantic import BaseModel, Field

from reliq.contract.values import MAX_COST
from reliq_api.schemas.base import MessageId, Request, Whole


class ChargeRequest(Request):
    id: MessageId
    actual: Whole = Field(ge=0, le=MAX_COST, description="What this run has cost so far, in tokens of the rate.")


class Charged(BaseModel):
    id: MessageId
