"""What the handler of a message returned."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class Result(BaseModel):
    result: Any = Field(description="What the handler returned.")
    encoding: Literal["json", "base64"] = Field(description="json: any JSON value. base64: the handler returned bytes.")
