"""A message of SQS as one of reliq's, and the other way round.

A message attribute of type String is the header of the same name, so that a Python worker reads
`message.headers["tenant"]`, and what Python sends with headers has attributes. Everything else stands as JSON in one
header, `sqs`; where headers have no room, in an envelope at the beginning of the body.
"""

import base64
import contextlib
from typing import Any

import msgspec

from reliq import Message
from reliq.contract.values import MAX_HEADERS_BYTES
from reliq_sqs.message_attributes import Attributes, not_xml

HEADER = "sqs"  #: JSON: what is neither body nor a String attribute
ENVELOPE = "sqs-envelope"  #: how many bytes at the beginning of the body are the same JSON, with all attributes
_OWN = (HEADER, ENVELOPE)
_OF_RELIQ = "reliq-"
_ROOM = MAX_HEADERS_BYTES - 1024  #: reliq adds headers of its own
_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_ENCODING = "reliq-body-encoding"  #: the attribute of a body that is no text of SQS: `base64`


class Content(msgspec.Struct, frozen=True):
    """A message as SQS sees it."""

    body: str
    attributes: Attributes
    sender: str = ""  #: the access key that has sent it
    trace: str = ""  #: AWSTraceHeader
    dedup: str = ""  #: MessageDeduplicationId, if the sender gave one


class _Rest(msgspec.Struct, omit_defaults=True):
    """What the JSON says. An attribute is its type and its value, which is Base64 of a Binary one."""

    sender: str = ""
    trace: str = ""
    dedup: str = ""
    attributes: dict[str, tuple[str, str]] = {}


_NOTHING = _Rest()
_decode = msgspec.json.Decoder(_Rest).decode


def written(body: bytes, content: Content) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of reliq's message; `body` is that of the content, encoded."""
    headers: dict[str, str] = {}
    rest = _Rest(content.sender, content.trace, content.dedup, {})
    for name, one in content.attributes.items():
        if one["DataType"] == "String" and _is_header(name):
            headers[name] = one["StringValue"]
        else:
            rest.attributes[name] = _packed(one)
    if rest != _NOTHING:
        headers[HEADER] = msgspec.json.encode(rest).decode()
    if headers and sum(len(name) + len(value.encode()) for name, value in headers.items()) > _ROOM:
        rest.attributes = {name: _packed(one) for name, one in content.attributes.items()}
        envelope = msgspec.json.encode(rest)
        return envelope + body, {ENVELOPE: str(len(envelope))}
    return body, headers


def read(message: Message) -> Content:
    """Return what a message of reliq is in SQS. A body that is no text of SQS is Base64, and an attribute says so."""
    body, headers = message.body, message.headers
    if not headers:
        return Content(*_text(body))
    rest, body = _rest(body, headers)
    text, attributes = _text(body)
    for name, value in headers.items():
        if _is_header(name):
            attributes[name] = {"StringValue": value, "DataType": "String"}
    for name, packed in rest.attributes.items():
        attributes[name] = _unpacked(*packed)
    return Content(text, attributes, rest.sender, rest.trace, rest.dedup)


def _is_header(name: str) -> bool:
    """Whether the header of this name is an attribute."""
    return bool(name) and name not in _OWN and not name.startswith(_OF_RELIQ) and _NAMES.issuperset(name)


def _rest(body: bytes, headers: dict[str, str]) -> tuple[_Rest, bytes]:
    """Return what the JSON says, and the body without it; anybody may write headers, so it may be no JSON."""
    try:
        if ENVELOPE in headers:
            length = int(headers[ENVELOPE])
            return _decode(body[:length]), body[length:]
        if HEADER in headers:
            return _decode(headers[HEADER]), body
    except (ValueError, msgspec.MsgspecError):
        pass
    return _NOTHING, body


def _packed(attribute: dict[str, Any]) -> tuple[str, str]:
    kind = attribute["DataType"]
    value = attribute["BinaryValue"] if kind.startswith("Binary") else None
    return kind, attribute["StringValue"] if value is None else base64.b64encode(value).decode()


def _unpacked(kind: str, value: str) -> dict[str, Any]:
    if kind.startswith("Binary"):
        with contextlib.suppress(ValueError):
            return {"BinaryValue": base64.b64decode(value), "DataType": kind}
        kind = "String"
    return {"StringValue": value, "DataType": kind}


def _text(body: bytes) -> tuple[str, Attributes]:
    """Return the body as SQS can say it, and the attribute that says where that is Base64."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or not_xml(text, body):
        return base64.b64encode(body).decode(), {_ENCODING: {"StringValue": "base64", "DataType": "String"}}
    return text, {}
