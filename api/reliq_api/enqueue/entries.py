"""Messages described by the JSON of a request."""

import binascii
import re
from base64 import b64decode
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from reliq.contract import kinds
from reliq.contract.options import OPTIONS, SEND, Option, given
from reliq.model.outgoing import NewMessage
from reliq_api.http.problems import Problem
from reliq_api.http.requests import check_json_text, read_json

DURATION = r"^\d+(\.\d+)?\s*(ms|s|m|h|d)$"
Duration = Annotated[float, Meta(ge=0)] | Annotated[str, Meta(pattern=DURATION)] | None


def _member(option: Option) -> tuple[str, Any, Any]:
    """Return the member of a JSON message for an option: name, type, default."""
    match option.kind:
        case kinds.Duration():
            return option.name, Duration, None
        case kinds.Flag():
            return option.name, bool, False
        case kinds.Headers():
            return option.name, dict[str, str] | None, None
        case _:
            return option.name, str | None, None


_BODY: tuple[tuple[str, Any, Any], ...] = (("body", Raw, Raw()), ("body_base64", str | None, None))
#: One message. Exactly one of `body` and `body_base64` is given.
Entry: Any = msgspec.defstruct("Entry", [*_BODY, *map(_member, OPTIONS)], forbid_unknown_fields=True, frozen=True)


_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_text = msgspec.json.Decoder(str).decode
_ESCAPE = re.compile(rb"\\")


def read_entry(text: bytes, inherited: dict[str, str]) -> NewMessage:
    """Return the message for a JSON object; `inherited`: default headers.

    Raises Problem, InvalidMessage, InvalidName.
    """
    check_json_text(text)
    try:
        entry = _decode_entry(text)
        read_json(text)  # JSON that is kept unchanged must be readable for its consumer
        body = _body(entry)
    except msgspec.ValidationError as error:
        raise Problem("invalid_message", f"the message does not fit its schema: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Problem("invalid_json", f"the body is not JSON: {error}") from None
    headers = entry.headers
    if kind := lost_kind(bytes(memoryview(entry.body)[:1]), body):
        headers = {"content-type": kind, **(headers or {})}
    if inherited:
        headers = {**inherited, **(headers or {})}
    options = given(msgspec.structs.asdict(entry), SEND)
    return NewMessage(body, **{**options, "headers": headers})


def _body(entry: Any) -> bytes:
    raw, encoded = memoryview(entry.body), entry.body_base64
    if bool(raw) == (encoded is not None):
        raise Problem("invalid_message", "give exactly one of body and body_base64")
    if encoded is not None:
        return decode_base64(encoded)
    return json_value(raw)


def lost_kind(first: bytes, body: bytes) -> str:
    """Return the content type for a JSON value with ambiguous bytes, by its first byte; mostly empty."""
    if first == b'"':
        return "text/plain; charset=utf-8" if body[:1] in (b"{", b"[") else ""
    return "" if first in (b"{", b"[", b"") else "application/json"


def json_value(raw: memoryview) -> bytes:
    """Return a text as UTF-8, any other value as the JSON that was sent, so that numbers keep all digits."""
    if bytes(raw[:1]) == b'"':
        return _decode_text(raw).encode() if _ESCAPE.search(raw) else bytes(raw[1:-1])
    return bytes(raw)


def decode_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Problem("invalid_message", "the body is not base64") from None
