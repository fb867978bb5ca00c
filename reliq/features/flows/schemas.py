"""Flows: messages that wait until others are handled."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from reliq.features.flows.model import MOST_MEMBERS, OnFailure
from reliq_api.schemas.base import Lease, MessageId, QueueName, Request
from reliq_api.schemas.messages import NewMessage


class FlowMessage(Request):
    queue: QueueName
    message: NewMessage = Field(description="Without a dedup_key.")
    after: list[int] = Field(
        default=[], description="The messages that it waits for, by their places in the list, from 0 on; earlier ones."
    )
    on_failure: OnFailure = Field("fail", description="What it does when one of these fails.")


class _Parent(Request):
    queue: QueueName
    lease: Lease
    id: MessageId
    name: str = Field("flow", description="Tells the flows of one parent apart.")


class _NewFlow(Request):
    messages: list[FlowMessage] = Field(min_length=1, max_length=MOST_MEMBERS)
    parent: _Parent | None = Field(
        None, description="A message of a lease: those behind it, in a flow of its own, wait for this flow too."
    )


def new_flow() -> dict[str, Any]:
    """Return the schema of a flow to be sent; that of NewMessage is among the components."""
    schema = _NewFlow.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = schema.pop("$defs")
    schema["properties"]["messages"]["items"] = parts["FlowMessage"]
    schema["properties"]["parent"]["anyOf"][0] = parts["_Parent"]
    return schema


class Sent(BaseModel):
    queue: str
    id: MessageId


class SentFlow(BaseModel):
    id: str
    messages: list[Sent]


class Flow(BaseModel):
    id: str
    state: Literal["sending", "open", "ended", "cancelled", "abandoned"] = Field(
        description="abandoned: its producer died while it sent the flow, or failed to send all of it."
    )
    opened_at: int = Field(description="Ms since the epoch.")
    size: int
    open: int = Field(description="How many messages have not ended.")


class Member(BaseModel):
    number: int
    queue: str
    id: MessageId
    state: str = Field(
        description="waiting, open (ready, delayed or being handled), or what became of it: handled, dead, cancelled, "
        "skipped, deleted, lost."
    )
    after: list[int]
    on_failure: OnFailure
    flows: list[str] = Field(description="Flows that its handler has opened.")


class FlowGraph(Flow):
    members: list[Member]


class FlowList(BaseModel):
    flows: list[Flow]
