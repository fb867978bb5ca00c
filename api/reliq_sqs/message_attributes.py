"""Message attributes: checked, measured, filtered, and digested as SDKs check it."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from reliq_sqs.errors import SqsError, invalid_parameter

Attribute = dict[str, Any]  #: DataType with StringValue or BinaryValue
Attributes = dict[str, Attribute]

_MOST = 10
_LONGEST = 256
_NAME = re.compile(r"[\w.-]+")  #: letters of all languages, which the documentation of AWS does not say
_RESERVED = ("aws.", "amazon.")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_ALL = frozenset(("All", "*", ".*"))
_STRING, _BINARY = b"\x01", b"\x02"  #: how a value is carried, in the digest
TRACE = "AWSTraceHeader"

#: What XML 1.0 cannot hold, and therefore no message.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CONTROL = bytes(one for one in range(0x20) if one not in b"\t\n\r")  #: the same of ASCII


def not_xml(text: str, encoded: bytes) -> str:
    """Return the first character of a text that XML does not allow; empty if it allows all."""
    if text.isascii() and len(encoded.translate(None, _CONTROL)) == len(encoded):  # a tenth of the time of a search
        return ""
    found = _NOT_XML.search(text)
    return found[0] if found else ""


def without_not_xml(text: str) -> str:
    """Return a text in which other characters stand for those that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


def checked_text(text: str, where: str, error: str = "InvalidMessageContents") -> bytes:
    """Return a text as UTF-8; raises SqsError for a character that XML cannot hold."""
    encoded = text.encode(errors="surrogatepass")
    if found := not_xml(text, encoded):
        raise SqsError(
            error,
            f"Invalid binary character '#x{ord(found):X}' was found in the {where}, the set of allowed characters "
            "is #x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF].",
        )
    return encoded


def checked(attributes: Attributes) -> Attributes:
    """Return the attributes of a message to be sent; raises SqsError."""
    if len(attributes) > _MOST:
        raise invalid_parameter(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{_MOST}]."
        )
    for name, attribute in attributes.items():
        _check_name(name)
        _check_value(name, attribute)
    return attributes


def _check_name(name: str) -> None:
    if not name:
        raise invalid_parameter("The request must contain non-empty message attribute name.")
    if len(name) > _LONGEST:
        raise invalid_parameter("Message (user) attribute names must be shorter than 256 Bytes")
    if _NAME.fullmatch(name) is None:
        raise invalid_parameter(
            f"The message attribute name '{name}' is invalid. Attribute name can contain A-Z, a-z, 0-9, underscore "
            "(_), hyphen (-), and period (.) characters."
        )
    if name.lower().startswith(_RESERVED) or name[0] == "." or name[-1] == "." or ".." in name:
        raise invalid_parameter(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for "
            "internal use. Additionally, they cannot start or end with '.'."
        )


def _check_value(name: str, attribute: Attribute) -> None:
    if attribute.get("StringListValues") or attribute.get("BinaryListValues"):
        raise SqsError(
            "UnsupportedOperation", "Message attribute list values in SendMessage operation are not supported."
        )
    kind = attribute["DataType"]
    if not kind:
        part = "type" if "StringValue" in attribute or "BinaryValue" in attribute else "value"
        raise invalid_parameter(f"The message attribute '{name}' must contain non-empty message attribute {part}.")
    family, _, label = kind.partition(".")
    if family not in ("String", "Number", "Binary") or (kind != family and not label):
        raise invalid_parameter(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the following supported type "
            "prefixes: Binary, Number, String."
        )
    if len(kind) > _LONGEST:
        raise invalid_parameter("Message (user) attribute types must be shorter than 256 Bytes")
    field = "BinaryValue" if family == "Binary" else "StringValue"
    other = "StringValue" if family == "Binary" else "BinaryValue"
    value = attribute.get(field)
    if not value or attribute.get(other):
        raise invalid_parameter(f"Message (user) attribute '{name}' must contain a non-empty value of type '{family}'.")
    if isinstance(value, str):
        checked_text(value, "message attribute", "InvalidParameterValueException")
    if family == "Number" and (_NUMBER.fullmatch(value) is None or len(value) > 100):
        raise invalid_parameter(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def checked_system(attributes: Attributes) -> Attributes:
    """Return the system attributes of a message to be sent; raises SqsError."""
    for name, attribute in attributes.items():
        if name != TRACE:
            raise invalid_parameter(
                f"Message system attribute name '{name}' is invalid. The set of supported names is [{TRACE}]."
            )
        if attribute["DataType"] != "String":
            raise invalid_parameter(
                f"The message system attribute '{name}' has an invalid message attribute type, the set of supported "
                "types is String."
            )
        _check_value(name, attribute)
    return attributes


def size(attributes: Attributes) -> int:
    """Return the bytes that attributes count for."""
    total = 0
    for name, one in attributes.items():
        value = one.get("BinaryValue") or one.get("StringValue", "").encode(errors="surrogatepass")
        total += len(name.encode()) + len(one["DataType"].encode()) + len(value)
    return total


def digest(attributes: Attributes) -> str:
    """Return the MD5 of attributes, which SDKs compare with their own."""
    md5 = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        one = attributes[name]
        binary = one["DataType"].startswith("Binary")
        value = one["BinaryValue"] if binary else one["StringValue"].encode()
        for part in (name.encode(), one["DataType"].encode()):
            md5.update(len(part).to_bytes(4) + part)
        md5.update((_BINARY if binary else _STRING) + len(value).to_bytes(4) + value)
    return md5.hexdigest()


def chosen(attributes: Mapping[str, Attribute], names: Iterable[str]) -> Attributes:
    """Return the attributes that a receiver asks for: by name, by a beginning and `.*`, or all."""
    names = list(names)
    if not names or not attributes:
        return {}
    if not _ALL.isdisjoint(names):
        return dict(attributes)
    exact = set(names)
    beginnings = tuple(one.removesuffix(".*") for one in names if one.endswith(".*"))
    return {name: one for name, one in attributes.items() if name in exact or name.startswith(beginnings or ("\0",))}
