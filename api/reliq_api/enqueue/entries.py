"""Messages described by the JSON of a request, or by its headers."""

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from reliq.contract import kinds
from reliq.contract.nearest import nearest
from reliq.contract.options import OPTIONS, SEND, Option, given, options_of
from reliq.errors import InvalidMessage
from reliq.model.dead_letter import DEAD_FROM
from reliq_api.http.faults import DURATION, must_be, no_option
from reliq_api.http.problems import Problem

Duration = int | float | str | None


def _member(option: Option) -> tuple[str, Any, Any]:
    """Return the member of a JSON message for an option: name, type, default."""
    match option.kind:
        case kinds.Duration():
            return option.name, Duration, None
        case kinds.Whole():
            return option.name, int | float | None, None
        case kinds.Flag():
            return option.name, bool, False
        case kinds.Headers():
            return option.name, dict[str, str] | None, None
        case _:
            return option.name, str | None, None


_BODY: tuple[tuple[str, Any, Any], ...] = (("body", Raw, Raw()), ("body_base64", str | None, None))
#: One message. Exactly one of `body` and `body_base64` is given.
Entry: Any = msgspec.defstruct("Entry", [*_BODY, *map(_member, OPTIONS)], forbid_unknown_fields=True, frozen=True)

Described = tuple[bytes, dict[str, Any]]  #: the body of a message, and its options as NewMessage takes them
#: The header of each option.
HEADERS = {f"reliq-{one.flag}": one for one in options_of(SEND) if not isinstance(one.kind, kinds.Headers)}
_HEADER = "reliq-header-"
_KNOWN = (*HEADERS, "reliq-durability")


def _must(kind: kinds.Kind) -> str:
    """Return what a member of a wrong type must be."""
    match kind:
        case kinds.Duration():
            return DURATION
        case kinds.Whole():
            return "a whole number"
        case kinds.Flag():
            return "true or false"
        case kinds.Headers():
            return "an object of texts"
        case kinds.Choice(words=words):
            return f"one of {', '.join(words)}"
        case _:
            return "a text"


_WHOLE = frozenset(one.name for one in OPTIONS if isinstance(one.kind, kinds.Whole))
MUST = {one.name: _must(one.kind) for one in OPTIONS}  #: what options must be, for errors

_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_text = msgspec.json.Decoder(str).decode
_ESCAPE = re.compile(rb"\\")
_UNKNOWN = re.compile("unknown field `(.*)`", re.DOTALL)


def read_entry(text: bytes) -> Described:
    """Return the body and the options of a JSON object; raises Problem, and msgspec.DecodeError."""
    try:
        entry = _decode_entry(text)
    except msgspec.ValidationError as error:
        if found := _UNKNOWN.search(str(error)):
            hint = "" if b'"body' in text else ': the message is the value of "body"'
            raise Problem("invalid_message", no_option(found[1], Entry.__struct_fields__, hint)) from None
        raise
    body = _body(entry)
    options = given(msgspec.structs.asdict(entry), SEND)
    options |= {name: _whole(name, options[name]) for name in _WHOLE & options.keys()}
    if kind := lost_kind(bytes(memoryview(entry.body)[:1]), body):
        options["headers"] = {"content-type": kind, **(entry.headers or {})}
    return body, options


def is_entry(text: bytes) -> bool:
    """Whether this is a JSON object with the body of a message, and nothing but options beside it."""
    try:
        entry = _decode_entry(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return bool(memoryview(entry.body)) or entry.body_base64 is not None


def read_headers(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that headers of a request give, those of the message among them."""
    options = {one.name: _value(one, _text(headers[name])) for name, one in HEADERS.items() if name in headers}
    own = {name.removeprefix(_HEADER): _text(value) for name, value in headers.items() if name.startswith(_HEADER)}
    kind = headers.get("content-type")
    return {**options, "headers": {"content-type": kind, **own} if kind else own}


def check_names(headers: Mapping[str, str]) -> None:
    """Raise Problem for an unknown `Reliq-` header, such as a misspelled option."""
    for name in headers:
        if name.startswith("reliq-") and name not in _KNOWN and not name.startswith(_HEADER):
            near = nearest(name.removeprefix("reliq-"), [one.removeprefix("reliq-") for one in _KNOWN])
            hint = f"; is it Reliq-{near.title()}?" if near else f"; a header of the message is {_HEADER.title()}NAME"
            raise Problem("invalid_header", f"{name.title()[:100]} is no option of a message{hint}")


def refuse_options(headers: Mapping[str, str], *, events: bool) -> None:
    """Raise Problem for an option in the headers of a request whose messages, or `events`, have theirs in JSON."""
    for name in headers:
        option = HEADERS.get(name)
        if option is None and not name.startswith(_HEADER):
            continue
        if events:
            where = "events in structured mode: send the event in binary mode, with ce- headers"
        elif option is None:
            where = 'messages in JSON: give it in the member "headers" of the message'
        else:
            where = f'messages in JSON: give it as the member "{option.name}" of the message'
        raise Problem("invalid_header", f"{name.title()[:100]} is not read beside {where}")


def refuse_reserved(headers: Mapping[str, str] | None, before: Mapping[str, str] | None = None) -> None:
    """Raise InvalidMessage for a header of a message that reliq alone sets; `before`: those that a message has."""
    if (headers or {}).get(DEAD_FROM) != (before or {}).get(DEAD_FROM):
        raise InvalidMessage(f"the header {DEAD_FROM} is set by reliq alone: leave it as it is, or out")


def _text(value: str) -> str:
    """Return a header's value, which was read as Latin-1, decoded as UTF-8; unchanged if it is not UTF-8."""
    try:
        return value if value.isascii() else value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def _value(option: Option, text: str) -> str | float:
    """Return the value of an option, as NewMessage takes it."""
    return _number(text) if isinstance(option.kind, kinds.Duration) else option.kind.typed(text)


def _number(text: str) -> float | str:
    """Return seconds, or a text with a unit for NewMessage to read."""
    try:
        return float(text)
    except ValueError:
        return text


def _whole(name: str, value: float) -> int:
    """Return the whole number that a member is, also if it is written as 5.0; raises Problem for any other number."""
    if isinstance(value, float) and not value.is_integer():
        raise Problem("invalid_message", must_be(name, value, MUST[name]))
    return int(value)


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
    except ValueError:  # binascii.Error is one
        raise Problem("invalid_message", "the body is not base64") from None
