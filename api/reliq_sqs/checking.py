"""Parameters of a request compared with the shape that the model has for them."""

import base64
import binascii
from typing import Any

from reliq_sqs.errors import SqsError, invalid_parameter, missing
from reliq_sqs.model import Shape

_JSON_NAMES = {
    str: "STRING_VALUE",
    bool: "BOOLEAN_VALUE",
    int: "NUMBER_VALUE",
    float: "NUMBER_VALUE",
}
_WANTED = {"string": "a String", "integer": "an Integer", "long": "a Long", "boolean": "a Boolean", "blob": "a Blob"}
BITS = {"integer": 31, "long": 63}  #: of a number, beside its sign
_EMPTY_IF_MISSING = ("MessageAttributeValue", "MessageSystemAttributeValue")  #: AWS says of both the same
_SAID_AS = {("DeleteMessageRequest", "ReceiptHandle"): "MessageHandle"}  #: what AWS calls one that is missing


def checked(shape: Shape, value: Any, path: str = "") -> dict[str, Any]:
    """Return the members of a structure that are given, with blobs as bytes; unknown ones are left out.

    Raises SqsError. A list or a map that is required and missing is empty: the action says what that means.
    """
    if not isinstance(value, dict):
        raise _unlike(value, "a structure")
    found: dict[str, Any] = {}
    for name, member in shape.members.items():
        given = value.get(name)
        if type(given) is str and member.kind == "string":  # nearly all
            found[name] = given
        elif given is not None:
            found[name] = _value(member, given, f"{path}{name}")
        elif name in shape.required:
            if member.kind in ("list", "map"):
                found[name] = [] if member.kind == "list" else {}
            elif shape.name in _EMPTY_IF_MISSING:
                found[name] = ""
            else:
                raise missing(path + _SAID_AS.get((shape.name, name), name))
    return found


def _value(shape: Shape, value: Any, path: str) -> Any:
    match shape.kind:
        case "string":
            if type(value) is str:
                return value
        case "integer" | "long":
            if type(value) is int and -(1 << BITS[shape.kind]) <= value < 1 << BITS[shape.kind]:
                return value
        case "boolean":
            if type(value) is bool:
                return value
        case "blob":
            return _blob(value)
        case "list":
            if type(value) is list:
                of, called = shape.of, shape.element
                return [_element(of, one, f"{called}.{place}") for place, one in enumerate(value, 1)]
            raise _unlike(value, "a list")
        case "map":
            if type(value) is dict:
                return {name: _element(shape.of, one, f"{path}.{name}") for name, one in value.items()}
            raise _unlike(value, "a map")
        case _:
            return checked(shape, value, f"{path}.")
    raise _unlike(value, _WANTED[shape.kind])


def _element(shape: Shape, value: Any, path: str) -> Any:
    if value is None:
        raise invalid_parameter(f"Value null at {path} is invalid. Reason: Must not be null.")
    return _value(shape, value, path)


def _blob(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _unlike(value, _WANTED["blob"])
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise SqsError("SerializationException", "A blob is not valid Base64") from None


def _unlike(value: Any, wanted: str) -> SqsError:
    if isinstance(value, (list, dict)):
        what = "list" if isinstance(value, list) else "structure or map"
        return SqsError("SerializationException", f"Start of {what} found where not expected.")
    has = _JSON_NAMES.get(type(value), "NULL_VALUE")
    return SqsError("SerializationException", f"{has} can not be converted to {wanted}")
