"""Types that several schemas use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from reliq.contract import values
from reliq.contract.outcomes import REASONS
from reliq.errors import InvalidName, InvalidSetting
from reliq.model.keys import FURTHER_HOME, check_grammar
from reliq_api.http.faults import worded_by

T = TypeVar("T")


def _no_lease(text: str) -> None:
    raise InvalidName(f"{values.cut(repr(text), 80)} is not the id of a lease")


_QUEUE = worded_by(check_grammar, r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$")
_MESSAGE = worded_by(values.check_id, r"^[!-~]{1,128}$")
# Never the id of a worker's consumer, which begins with c. Clients treat it as opaque.
_LEASE = worded_by(_no_lease, rf"^h[0-9a-f]{{20}}(\.[0-9]{{1,6}})?({FURTHER_HOME})?$")

QueueName = Annotated[str, Field(pattern=_QUEUE, examples=["orders"])]
MessageId = Annotated[str, Field(pattern=_MESSAGE, examples=["019aa4c2-7b1e-7c55-9d0e-3f0a7c5e1b2d"])]
Lease = Annotated[str, Field(pattern=_LEASE, examples=["h3f9c2d1e8a7b6c5d4e3f"])]


def as_whole(value: Any) -> Any:
    """Accept 5.0 as a whole number, as JSON does; no other types."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


DeathReason = Literal[*REASONS]  # type: ignore[valid-type]
Whole = Annotated[int, BeforeValidator(as_whole)]


def _checked(kind: str, check: Callable[..., T], value: Any, *limits: float) -> T:
    """Return the result of a check of the contract; its error becomes that of the request, in the same words.

    Values other than numbers and texts are refused before: the check would describe them in the words of Python.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise PydanticCustomError(f"{kind}_type", "of a wrong type")
    try:
        return check(value, "it", *limits)
    except InvalidSetting as error:
        raise PydanticCustomError(kind, "{text}", {"text": values.cut(str(error), 500)}) from None


@dataclass(frozen=True)
class Lasting:
    """The limits of a duration in a request: seconds, or a text such as "5m". The endpoint gets seconds."""

    shortest: float = 0.0
    longest: float = values.MAX_DELAY_SECONDS

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        limits = {"minimum": self.shortest, "maximum": self.longest}
        text = {"type": "string", "pattern": values.DURATION, "examples": ["30s"]}
        return {"anyOf": [{"type": "number", **limits, "examples": [30]}, text]}

    def _read(self, value: Any) -> float:
        return _checked("duration", values.seconds, value, self.shortest, self.longest)


@dataclass(frozen=True)
class Sized:
    """The limits of a number of bytes in a request: a whole number, or a text such as "8MiB"."""

    smallest: int
    largest: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        limits = {"minimum": self.smallest, "maximum": self.largest}
        return {
            "anyOf": [{"type": "integer", **limits}, {"type": "string", "pattern": values.SIZE, "examples": ["8MiB"]}]
        }

    def _read(self, value: Any) -> int:
        return _checked("size", values.size, as_whole(value), self.smallest, self.largest)


Period = Annotated[float, Lasting()]
HeaderPairs = Annotated[
    Sequence[str], Query(max_length=20, description="A header of the message, as name=value; may be repeated.")
]


class Request(BaseModel):
    """The body of a request. Unknown members are refused: a misspelled option must not be ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ListQuery(BaseModel):
    """The query of a list."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(100, ge=1, le=1000)
