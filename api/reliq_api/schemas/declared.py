"""Members of schemas for the options of messages and the settings of queues, from the tables of the contract."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema, create_model

from reliq.contract import kinds, values
from reliq.contract.options import Option
from reliq.contract.settings import Setting
from reliq_api.schemas.base import Lasting, MessageId, Sized, Whole, as_whole

Model = TypeVar("Model", bound=BaseModel)


def with_options(base: type[Model], options: Iterable[Option]) -> type[Model]:
    """Return a schema that has a member for each option beside those of `base`."""
    members: dict[str, Any] = {one.name: _optional(one) for one in options}
    return create_model(f"{base.__name__}WithOptions", __base__=base, **members)


def with_changes(base: type[Model], settings: Iterable[Setting]) -> type[Model]:
    """Return a schema with a member for each setting; null resets a setting."""
    members: dict[str, Any] = {
        one.name: (_type_of(one.kind) | None, Field(None, description=_sentence(one), **_bounds(one)))
        for one in settings
    }
    return create_model(f"{base.__name__}WithSettings", __base__=base, **members)


def with_values(base: type[Model], settings: Iterable[Setting]) -> type[Model]:
    """Return a schema with the value of each setting; null where none is set."""
    members: dict[str, Any] = {
        one.name: (_answered(one.kind) | None if one.default is None else _answered(one.kind), Field())
        for one in settings
    }
    return create_model(f"{base.__name__}WithValues", __base__=base, **members)


def with_fields(base: type[Model], values: type[Any], **types: Any) -> type[Model]:
    """Return a schema with the fields of a dataclass that says what they mean; `types`: those that HTTP narrows."""
    members: dict[str, Any] = {
        one.name: (types.get(one.name, one.type), Field(description=_as_sentence(one.metadata["text"])))
        for one in fields(values)
    }
    return create_model(f"{base.__name__}With{values.__name__}", __base__=base, **members)


def _optional(one: Option) -> tuple[Any, Any]:
    described = Field(False if isinstance(one.kind, kinds.Flag) else None, description=_sentence(one), **_bounds(one))
    kind = _type_of(one.kind)
    return (kind if isinstance(one.kind, kinds.Flag) else kind | None), described


def _sentence(one: Option | Setting) -> str:
    default = f" Default: {one.default}." if isinstance(one, Option) and isinstance(one.default, str) else ""
    return _as_sentence(one.text) + default


def _as_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _type_of(kind: kinds.Kind) -> Any:
    """Return what a request may have for a value of this kind."""
    match kind:
        case kinds.Duration(shortest=shortest, longest=longest):
            return Annotated[float, Lasting(shortest, longest)]
        case kinds.Whole(smallest=smallest, largest=largest):
            return Annotated[int, Field(ge=smallest, le=largest), BeforeValidator(as_whole)]
        case kinds.Bytes(smallest=smallest, largest=largest):
            return Annotated[int, Sized(smallest, largest)]
        case kinds.Flag():
            return bool
        case kinds.Weights():
            return dict[str, Whole]
        case kinds.Headers():
            return dict[str, str]
        case kinds.Choice(words=words):
            return Literal[words]
        case kinds.Identity():
            return MessageId
        case kinds.Durability():  # the pattern is for generated clients: a wrong value is refused by the library
            return Annotated[str, WithJsonSchema({"type": "string", "pattern": values.DURABILITY_PATTERN})]
        case _:
            return str


def _answered(kind: kinds.Kind) -> Any:
    """Return what an answer has for a value of this kind."""
    return {
        kinds.Duration: float,
        kinds.Whole: int,
        kinds.Bytes: int,
        kinds.Flag: bool,
        kinds.Weights: dict[str, int],
    }.get(type(kind), str)


def _bounds(one: Option | Setting) -> dict[str, Any]:
    """Return the limits of a value that JSON Schema can tell."""
    examples = {"examples": [one.example]} if one.example and isinstance(one.kind, (kinds.Text, kinds.Rate)) else {}
    match one.kind:
        case kinds.Text(longest=longest):
            return {"min_length": 1, **({"max_length": longest} if longest else {}), **examples}
        case kinds.Rate():
            return {"max_length": 32, **examples}
        case kinds.Weights():
            return {"max_length": 1000}
    return {}
