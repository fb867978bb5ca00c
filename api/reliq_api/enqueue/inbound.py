"""Reading one message from a request, by its content type."""

from collections.abc import Mapping
from typing import Any

from fastapi import Request

from reliq.contract import kinds
from reliq.contract.options import SEND, Option, options_of
from reliq.errors import InvalidSetting
from reliq.model.outgoing import NewMessage, too_large
from reliq.protocol.durability import durability
from reliq.runtime.tracing import is_traceparent
from reliq_api.enqueue import cloudevents
from reliq_api.enqueue.entries import read_entry
from reliq_api.http.docs import header
from reliq_api.http.problems import Problem
from reliq_api.http.requests import REQUEST_LARGEST, BoundedRequest, fields
from reliq_api.settings import Settings

JSON = "application/json"

#: A parameter of every call that enqueues.
DURABILITY = header(
    "Reliq-Durability",
    "Answer when it is in memory, on the server's disk (fsync) or on that many replicas; default: that of the queue.",
    pattern=r"^(memory|fsync|replicas=([1-9][0-9]?|100))$",
)

_TRACESTATE_LARGEST = 512
_AROUND = 64 * 1024  #: bytes for all that surrounds a body in JSON
_OPTIONS = {f"reliq-{one.flag}": one for one in options_of(SEND) if not isinstance(one.kind, kinds.Headers)}
_HEADER = "reliq-header-"


def media_type(request: Request) -> str:
    """Return the content type without its parameters; raises Problem for content encodings."""
    headers = fields(request)
    encoding = headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise Problem("unsupported_media_type", "send the body without a content-encoding")
    media, _, parameters = headers.get("content-type", "").partition(";")
    media = media.strip().lower()
    charset = parameters.lower().replace('"', "").partition("charset=")[2].partition(";")[0].strip()
    if charset not in ("", "utf-8", "utf8", "us-ascii") and media.endswith(("/json", "+json", "ndjson")):
        raise Problem("unsupported_media_type", "JSON is UTF-8")
    return media


def trace(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the W3C trace context of a request, to store with its message. A malformed one is ignored."""
    parent = headers.get("traceparent")
    if parent is None or not is_traceparent(parent):
        return {}
    state = headers.get("tracestate", "")
    return (
        {"traceparent": parent, "tracestate": state}
        if 0 < len(state) <= _TRACESTATE_LARGEST
        else {"traceparent": parent}
    )


def durability_of(request: Request) -> str | None:
    """Return the requested durability; None: that of the queue. Raises Problem."""
    text = fields(request).get("reliq-durability")
    try:
        return None if text is None else durability(text).name
    except InvalidSetting as error:
        raise Problem("invalid_header", f"Reliq-Durability: {error}") from None


def body_too_large(size: int | str, limit: int) -> Problem:
    """Return the problem of a message with a body above the service's limit."""
    return Problem("body_too_large", too_large(size, limit, "max_body of `reliq api`"), limit=limit)


def check_size(message: NewMessage, largest: int) -> None:
    if len(message.body) > largest:
        raise body_too_large(len(message.body), largest)


def largest_text(settings: Settings) -> int:
    """Return the bytes that a message in JSON may have: a text of the largest body takes six times as much if each of
    its characters is escaped.
    """
    return min(6 * settings.max_body + _AROUND, settings.max_buffered)


async def read_body(request: BoundedRequest) -> bytes:
    """Return the body of a request with one message; raises Problem, for a large one before it is read."""
    settings: Settings = request.app.state.settings
    if media_type(request) in (JSON, cloudevents.EVENT) and not cloudevents.is_binary(fields(request)):
        request.allow(max(largest_text(settings), REQUEST_LARGEST))
    else:
        request.allow(settings.max_body, lambda size: body_too_large(size, settings.max_body))
    return await request.taken()


def read_message(request: Request, body: bytes) -> NewMessage:
    """Return the message in a request; raises Problem, InvalidMessage, InvalidName."""
    media = media_type(request)
    headers = fields(request)
    inherited = trace(headers)
    if cloudevents.is_binary(headers):
        cloudevents.check_data(media, body)
        attributes = cloudevents.attributes(headers)
        options = {"dedup_key": cloudevents.dedup_key(attributes), **_options(headers)}
        return _raw(headers, body, {**inherited, **attributes}, options)
    if media == JSON:
        return read_entry(body, inherited)
    if media == cloudevents.EVENT:
        return cloudevents.read_event(body, inherited)
    if media in (cloudevents.EVENTS, "application/x-ndjson"):
        raise Problem("unsupported_media_type", "a batch goes to .../messages/batch")
    return _raw(headers, body, inherited, _options(headers))


def _raw(headers: Mapping[str, str], body: bytes, own: dict[str, str], options: dict[str, Any]) -> NewMessage:
    given = {name.removeprefix(_HEADER): value for name, value in headers.items() if name.startswith(_HEADER)}
    kind = headers.get("content-type")
    if kind:
        own = {**own, "content-type": kind}
    return NewMessage(body, headers={**own, **given}, **options)


def _options(headers: Mapping[str, str]) -> dict[str, Any]:
    return {one.name: _value(one, headers[name]) for name, one in _OPTIONS.items() if name in headers}


def _value(option: Option, text: str) -> str | float | bool:
    """Return the value of an option, as NewMessage takes it."""
    return _number(text) if isinstance(option.kind, kinds.Duration) else text


def _number(text: str) -> float | str:
    """Return seconds, or a text with a unit for NewMessage to read."""
    try:
        return float(text)
    except ValueError:
        return text
