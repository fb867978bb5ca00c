"""Leases and their settlement."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from reliq.contract import outcomes, values
from reliq.model.life import MAX_TEXT_BYTES
from reliq_api.schemas.base import Lasting, Lease, MessageId, Period, Request, Whole

_Length = Annotated[float, Lasting(values.MIN_LEASE_SECONDS, values.MAX_LEASE_SECONDS)]


class LeaseRequest(Request):
    model_config = ConfigDict(json_schema_extra={"examples": [{"limit": 1}]})

    limit: Whole = Field(1, ge=1, le=values.MAX_BATCH, description="The largest number of messages.")
    wait: Annotated[float, Lasting(longest=30)] = Field(0, description="How long to wait for the first one.")
    lease: _Length = Field(
        values.LEASE, description="How long the messages may take to be settled, or the lease to be extended."
    )
    encoding: Literal["auto", "text", "base64"] = Field(
        "auto",
        description="The form of bodies. auto: a JSON object or array as JSON, other UTF-8 as a text, else base64. "
        "text: never as JSON. base64: always base64.",
    )


class Leased(BaseModel):
    """One message. `encoding` is the form of `body`."""

    id: MessageId
    body: Any
    encoding: Literal["json", "text", "base64"]
    headers: dict[str, str]
    deliveries: int = Field(description="How many consumers vanished while they held it.")
    failures: int = Field(description="How many times handling it failed.")
    redelivered: bool = Field(description="A consumer vanished while it held it: it may have been handled already.")
    enqueued_at: int = Field(description="Ms since the epoch.")
    routing_key: str | None = None
    cost: int = Field(1, description="How much of the rates it has taken; absent for 1.")
    state: Any = Field(None, description="The latest checkpoint of an earlier consumer; absent without one.")


class LeaseGiven(BaseModel):
    lease: Lease | None = Field(description="null if there was no message.")
    lease_seconds: float
    messages: list[Leased]


class RetryOf(Request):
    id: MessageId
    delay: Period | None = Field(None, description="Default: 5 s, 15 s, 45 s ... up to an hour.")
    error: str = Field("", max_length=values.MAX_ERROR_CHARACTERS, description="Kept in the message's history.")


class DeadOf(Request):
    id: MessageId
    reason: str = Field("", max_length=values.MAX_ERROR_CHARACTERS, description="Kept as its last error.")


class ReleaseOf(Request):
    id: MessageId
    delay: Period | None = None


class SettleRequest(Request):
    """Together at most 1,000 messages, each once."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ack": ["a1"], "retry": [{"id": "b2", "delay": 60}]}]})

    ack: list[MessageId] = Field([], max_length=values.MAX_BATCH, description="Handled: the message is deleted.")
    retry: list[RetryOf] = Field(
        [],
        max_length=values.MAX_BATCH,
        description="Failed: tried again later; the eleventh failure ends in the dead letters.",
    )
    dead: list[DeadOf] = Field([], max_length=values.MAX_BATCH, description="To the dead letters, as `rejected`.")
    release: list[MessageId | ReleaseOf] = Field(
        [], max_length=values.MAX_BATCH, description="Handed back untouched: taken next, nothing counted."
    )


class Settled(BaseModel):
    id: MessageId
    code: Literal[*(one.code for one in outcomes.Settled)] = Field(  # type: ignore[valid-type]
        description=". ".join(f"{one.code}: {one.text}" for one in outcomes.Settled) + "."
    )


class SettleResult(BaseModel):
    results: list[Settled]


class ExtendRequest(Request):
    lease: _Length = Field(values.LEASE, description="How long from now, whatever is left of it.")


class Extended(BaseModel):
    lease: Lease
    lease_seconds: float
    cancelled: list[str] = Field(description="Ids of messages of the lease that were cancelled meanwhile.")


class ProgressRequest(Request):
    """At least one of `progress` and `state`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"id": "a1", "progress": 0.4, "text": "page 12 of 30", "state": {"page": 12}}]}
    )

    id: MessageId
    progress: float | None = Field(None, ge=0, le=1, allow_inf_nan=False, description="How much is done, 0 to 1.")
    text: str = Field("", max_length=MAX_TEXT_BYTES, description="What is shown beside it.")
    state: Any = Field(None, description="What the next consumer can go on from, up to 1 MiB as MessagePack.")


class ProgressStored(BaseModel):
    id: MessageId
