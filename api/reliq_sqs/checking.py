"""Parameters of a request compared with the shape that the model has for them."""

import base64
from typing import Any

from reliq_sqs.errors import SqsError, invalid_parameter, missing
from reliq_sqs.model import Shape

_JSON_NAMES = {str: "STRING_VALUE", int: "NUMBER_VALUE", float: "NUMBER_VALUE"}
_WANTED = {
    "string": "a String", "integer": "an Integer", "long": "a Long", "boolean": "a Boolean", "blob": "a Blob",
}  # fmt: skip
BITS = {"integer": 31, "long": 63}  #: of a number, beside its sign
#: Required members that are empty if they are missing: the action says of both the same, of an entry that it fails.
_EMPTY_IF_MISSING = {
    "MessageAttributeValue": "DataType",
    "MessageSystemAttributeValue": "DataType",
    "SendMessageBatchRequestEntry": "MessageBody",
    "DeleteMessageRequest": "ReceiptHandle",
    "DeleteMessageBatchRequestEntry": "ReceiptHandle",
    "ChangeMessageVisibilityRequest": "ReceiptHandle",
    "ChangeMessageVisibilityBatchRequestEntry": "ReceiptHandle",
}


def checked(shape: Shape, value: Any, path: str = "") -> dict[str, Any]:
    """Return the members of a structure that are given, with blobs as bytes; unknown ones are left out.

    Raises SqsError. A list or a map that is required and missing is empty: the action says what that means.
    """
    if not isinstance(value, dict):
        raise _unlike(value, None)
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
            elif _EMPTY_IF_MISSING.get(shape.name) == name:
                found[name] = ""
            else:
                raise missing(path + name)
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
                return [_value(of, one, f"{called}.{at}") for at, one in enumerate(value, 1) if one is not None]
            if not isinstance(value, dict):
                raise SqsError("SerializationException", "Expected list or null")
        case "map":
            if type(value) is dict:
                return {name: _of_map(shape.of, one, f"{path}.{name}") for name, one in value.items()}
            raise _unlike(value, None)
        case _:
            return checked(shape, value, f"{path}.")
    raise _unlike(value, _WANTED.get(shape.kind))


def _of_map(shape: Shape, value: Any, path: str) -> Any:
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
    except ValueError:  # binascii.Error is one
        raise SqsError("SerializationException", "A blob is not valid Base64") from None


def _unlike(value: Any, wanted: str | None) -> SqsError:
    """Return what AWS says of a value of another kind; `wanted` is None for a structure or a map."""
    if isinstance(value, list):
        text = "Start of list found where not expected"
    elif isinstance(value, dict):
        text = "Start of structure or map found where not expected."
    elif wanted is None:
        text = "Expected null"
    else:
        has = f"{value}_VALUE".upper() if isinstance(value, bool) else _JSON_NAMES.get(type(value), "NULL_VALUE")
        text = f"{has} can not be converted to {wanted}"
    return SqsError("SerializationException", text)
