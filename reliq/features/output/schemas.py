"""The output of messages."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from reliq_api.schemas.base import MessageId, Request


class EmitRequest(Request):
    id: MessageId
    chunk: Any = Field(description="Any JSON value.")
    token: str = Field("", max_length=64, pattern="^[!-~]*$", description="The same one twice in a row appends once.")


class Emitted(BaseModel):
    id: MessageId


class Chunk(BaseModel):
    id: str
    at: int = Field(description="ms since the epoch")
    run: int = Field(description="Counts the runs of the handler that emitted, from 1.")
    value: Any
    encoding: Literal["json", "base64"] = Field(description="base64: the handler emitted bytes.")


class Output(BaseModel):
    chunks: list[Chunk]
    more: bool = Field(description="Whether more may come, or is there.")
