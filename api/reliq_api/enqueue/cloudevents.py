"""CloudEvents 1.0 over HTTP, in both modes. In both the message has the event's data as body and its attributes as
`ce-` headers, so that consumers need not know which mode the producer used.
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Raw

from reliq_api.enqueue.entries import Described, decode_base64, json_value
from reliq_api.http.faults import must_be
from reliq_api.http.problems import Problem
from reliq_api.schemas.base import as_whole

EVENT = "application/cloudevents+json"
EVENTS = "application/cloudevents-batch+json"

_TEXT = {"type": "string", "minLength": 1}
SCHEMA = {
    "type": "object",
    "description": "A CloudEvent, version 1.0.",
    "required": ["specversion", "id", "source", "type"],
    "properties": {"specversion": {"const": "1.0"}, "id": _TEXT, "source": _TEXT, "type": _TEXT, "data": {}},
    "additionalProperties": {"type": ["string", "integer", "boolean", "null"]},
}

_PREFIX = "ce-"
_REQUIRED = ("ce-specversion", "ce-id", "ce-source", "ce-type")
_ATTRIBUTE = re.compile(r"[a-z0-9]{1,64}")
_ANY = (str | int | float | bool, "a text, a whole number, or true or false")  #: what an attribute may be
_decode_event = msgspec.json.Decoder(dict[str, Raw]).decode


def is_binary(headers: Mapping[str, str]) -> bool:
    """Whether the headers are those of an event in binary mode."""
    return "ce-specversion" in headers


def with_attributes(options: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a message with those of an event in binary mode; raises Problem."""
    found = _checked({name: unquote(value) for name, value in headers.items() if name.startswith(_PREFIX)})
    return {"dedup_key": dedup_key(found), **options, "headers": {**found, **options["headers"]}}


def dedup_key(attributes: Mapping[str, str]) -> str:
    """Return the deduplication key: producers make source and id together unique for each event."""
    return json.dumps([attributes["ce-source"], attributes["ce-id"]])


def read_event(text: bytes) -> Described:
    """Return the body and the options of an event in structured mode; raises Problem, and msgspec.DecodeError."""
    members = {name: value for name, value in _decode_event(text).items() if bytes(value) != b"null"}
    data, encoded = members.pop("data", None), members.pop("data_base64", None)
    if data is not None and encoded is not None:
        raise Problem("invalid_message", "an event has data or data_base64, not both")
    kind = _typed("datacontenttype", members.pop("datacontenttype", Raw(b'"application/json"')), str, "a text")
    found = _checked(dict(_attribute(name, value) for name, value in members.items()))
    body = b"" if data is None else _data(memoryview(data), kind)
    if encoded is not None:
        body = decode_base64(_typed("data_base64", encoded, str, "a text"))
    return body, {"headers": {**found, "content-type": kind}, "dedup_key": dedup_key(found)}


def _typed(name: str, value: Raw, wanted: Any, must: str) -> Any:
    """Return the value of an attribute; raises Problem if it is of another type than the wanted one."""
    try:
        return msgspec.json.decode(value, type=wanted)
    except msgspec.ValidationError:
        raise Problem("invalid_message", must_be(name, msgspec.json.decode(value), must)) from None


def _data(raw: memoryview, kind: str) -> bytes:
    media = kind.partition(";")[0].strip().lower()
    return bytes(raw) if media.endswith(("/json", "+json")) else json_value(raw)


def _attribute(attribute: str, value: Raw) -> tuple[str, str]:
    if _ATTRIBUTE.fullmatch(attribute) is None:
        raise Problem("invalid_message", "the name of an event's attribute has other characters than a-z and 0-9")
    name = _PREFIX + attribute
    decoded = as_whole(_typed(attribute, value, *((str, "a text") if name in _REQUIRED else _ANY)))
    if isinstance(decoded, float):
        raise Problem("invalid_message", must_be(attribute, decoded, _ANY[1]))
    if isinstance(decoded, bool):
        return name, "true" if decoded else "false"
    return name, str(decoded)


def _checked(found: dict[str, str]) -> dict[str, str]:
    for name in _REQUIRED:
        if not found.get(name):
            raise Problem("invalid_message", f"the event has no {name.removeprefix(_PREFIX)}")
    if found["ce-specversion"] != "1.0":
        raise Problem("invalid_message", "the event's specversion is not 1.0")
    return found
