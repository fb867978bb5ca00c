"""The shapes of the model as types, with which msgspec checks a request while it parses it: nearly all are valid.

What they refuse is looked at by `checking`, which knows what AWS says of it; both take the same.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Required, TypedDict

import msgspec

from reliq_sqs.checking import BITS
from reliq_sqs.model import Shape


def _whole(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(1 << bits), le=(1 << bits) - 1)]


_KINDS = {"string": str, "boolean": bool, "blob": bytes, **{kind: _whole(bits) for kind, bits in BITS.items()}}


@cache
def decoder(shape: Shape) -> Callable[[bytes], dict[str, Any]]:
    """Return what reads a structure as JSON, without members that it does not know."""
    return msgspec.json.Decoder(_type(shape)).decode


def _type(shape: Shape) -> Any:
    match shape.kind:
        case "list":
            return list[_type(shape.of)]  # type: ignore[misc]
        case "map":
            return dict[str, _type(shape.of)]  # type: ignore[misc]
        case "structure":
            return _structure(shape)
    return _KINDS[shape.kind]


def _structure(shape: Shape) -> Any:
    members = {name: _type(one) for name, one in shape.members.items()}
    made: Any = TypedDict  # of members that only the model knows
    return made(shape.name, {**members, **{name: Required[members[name]] for name in shape.required}}, total=False)
