"""Steps, sleeps and waits of the messages of a lease; signals."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from reliq.features.steps.model import LONGEST_NAME
from reliq_api.schemas.base import MessageId, Period, Request


class StepRequest(Request):
    id: MessageId
    name: str = Field(min_length=1, max_length=LONGEST_NAME, description="Of the step, once in a message.")
    result: Any = Field(None, description="What the step has returned: any JSON value.")


class StepStored(BaseModel):
    id: MessageId
    name: str
    result: Any
    before: bool = Field(description="Whether an earlier run had stored it: then `result` is that of the earlier run.")


class StepDone(BaseModel):
    name: str
    result: Any = None
    state: Literal["done", "failed", "tried", "begun", "slept", "again"]


class StepList(BaseModel):
    id: MessageId
    steps: list[StepDone]


class SleepRequest(Request):
    id: MessageId
    name: str = Field(min_length=1, max_length=LONGEST_NAME)
    seconds: Period


class Slept(BaseModel):
    id: MessageId
    state: Literal["sleeping", "over", "cancelled"] = Field(description="sleeping: the message has left the lease.")


class WaitRequest(Request):
    id: MessageId
    signal: str = Field(min_length=1, max_length=LONGEST_NAME)
    timeout: Period | None = Field(None, description="Without it the message waits for ever.")


class Waited(BaseModel):
    id: MessageId
    state: Literal["waiting", "given", "timed_out", "cancelled"] = Field(
        description="waiting: the message has left the lease."
    )
    value: Any = Field(None, description="Of the signal.")


class SignalRequest(Request):
    name: str = Field(min_length=1, max_length=LONGEST_NAME, examples=["approval"])
    value: Any = None


class LinkRequest(Request):
    value: Any = None


class Signalled(BaseModel):
    taken: bool = Field(description="false: the message has had this signal, and the first one counts.")


class ParkedMessage(BaseModel):
    id: MessageId
    signal: str
    since: int = Field(description="ms since the epoch")
    until: int | None = Field(description="ms since the epoch; null: for ever")
    key: str | None
    headers: dict[str, str]


class ParkedList(BaseModel):
    messages: list[ParkedMessage]
