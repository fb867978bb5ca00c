"""Reading one message from a request: what its headers say, then its body."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from reliq.contract import values
from reliq.errors import InvalidSetting
from reliq.model.outgoing import NewMessage, too_large
from reliq.runtime.tracing import is_traceparent
from reliq_api import schemas
from reliq_api.enqueue import cloudevents
from reliq_api.enqueue.entries import (
    MUST,
    Described,
    check_names,
    is_entry,
    read_entry,
    read_headers,
    refuse_options,
    refuse_reserved,
)
from reliq_api.http.docs import EVENT, body_of, header
from reliq_api.http.misfits import misfit
from reliq_api.http.problems import Problem
from reliq_api.http.requests import REQUEST_LARGEST, BoundedRequest
from reliq_api.http.strict_json import no_json, read_json
from reliq_api.settings import Settings

JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"

#: A parameter of every call that enqueues.
DURABILITY = header(
    "Reliq-Durability",
    "Answer when it is in memory, on the server's disk (fsync) or on that many replicas; default: that of the queue.",
    pattern=values.DURABILITY_PATTERN,
)

TRACEPARENT = header("traceparent", "Kept as a header of the message, with `tracestate`.")
#: The request body of a call that takes one message.
ONE_MESSAGE = body_of({JSON: schemas.NewMessage, cloudevents.EVENT: EVENT, "application/octet-stream": None})
#: Error codes of every call that enqueues.
SEND_FAILS = (
    "queue_full", "overloaded", "unsupported_media_type", "outcome_unknown", "durability_unavailable",
)  # fmt: skip

_TRACESTATE_LARGEST = 512
_AROUND = 64 * 1024  #: bytes allowed for the JSON around a body


class Form(Enum):
    """How a request writes its message. The value names, in error texts, what the JSON of the request is."""

    ENTRY = "the message"
    EVENT = "the event"
    BINARY_EVENT = "the data of the event"
    BYTES = ""


class Head(NamedTuple):
    """What the headers of a request say of its message, or of each of its messages."""

    form: Form
    headers: Mapping[str, str]  #: of the request
    trace: dict[str, str]  #: the W3C trace context, which is stored with a message
    durability: str | None  #: that is requested; None: that of the queue
    max_body: int  #: bytes of a message's body
    is_json: bool = True  #: whether a message, or the data of an event in binary mode, is written in JSON

    @classmethod
    def of(cls, form: Form, headers: Mapping[str, str], settings: Settings, *, is_json: bool = True) -> "Head":
        """Read the headers for messages of this form; raises Problem."""
        check_names(headers)
        if form in (Form.ENTRY, Form.EVENT):
            refuse_options(headers, events=form is Form.EVENT)
        return cls(form, headers, trace(headers), durability_of(headers), settings.max_body, is_json)

    @property
    def is_event(self) -> bool:
        return self.form in (Form.EVENT, Form.BINARY_EVENT)


def read_head(headers: Mapping[str, str], settings: Settings) -> Head:
    """Return what the headers of a request with one message say; raises Problem."""
    media = media_type(headers)
    if cloudevents.is_binary(headers):
        return Head.of(Form.BINARY_EVENT, headers, settings, is_json=media in (JSON, "text/json"))
    if media == JSON:
        return Head.of(Form.ENTRY, headers, settings)
    if media == cloudevents.EVENT:
        return Head.of(Form.EVENT, headers, settings)
    if media in _BATCHES:
        raise Problem("unsupported_media_type", "a batch goes to .../messages/batch")
    return Head.of(Form.BYTES, headers, settings, is_json=False)


_BATCHES = (cloudevents.EVENTS, "application/x-ndjson")


def media_type(headers: Mapping[str, str]) -> str:
    """Return the content type without its parameters; raises Problem for content encodings."""
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


def durability_of(headers: Mapping[str, str]) -> str | None:
    """Return the requested durability; None: that of the queue. Raises Problem."""
    text = headers.get("reliq-durability")
    try:
        return None if text is None else values.durability(text)
    except InvalidSetting as error:
        raise Problem("invalid_header", f"Reliq-Durability: {error}") from None


def body_too_large(size: int | str, limit: int) -> Problem:
    """Return the problem of a message with a body above the service's limit."""
    return Problem("body_too_large", too_large(size, limit, "--max-body of `reliq api`"), limit=limit)


def largest_text(settings: Settings) -> int:
    """Return the bytes that a message in JSON may have: a text of the largest body takes six times as much if each of
    its characters is escaped.
    """
    return min(6 * settings.max_body + _AROUND, settings.max_buffered)


async def read_body(request: BoundedRequest, head: Head) -> bytes:
    """Return the body of a request with one message; raises Problem, for a large one before it is read."""
    if head.form in (Form.ENTRY, Form.EVENT):
        return await request.take(max(largest_text(request.app.state.settings), REQUEST_LARGEST))
    return await request.take(head.max_body, body_too_large)


def read_message(head: Head, text: bytes) -> NewMessage:
    """Return the message that a text describes; raises Problem, InvalidMessage, InvalidName."""
    body, options = _described(head, text)
    if len(body) > head.max_body:
        raise body_too_large(len(body), head.max_body)
    refuse_reserved(options.get("headers"))
    if head.trace:
        options["headers"] = {**head.trace, **options.get("headers", {})}
    return NewMessage(body, **options)


def _refuse_mistaken(head: Head, text: bytes) -> None:
    """Raise Problem for a message in JSON with the content type of a form, which `curl -d` always sends."""
    if text[:1] == b"{" and media_type(head.headers) == _FORM and is_entry(text):
        raise Problem(
            "unsupported_media_type",
            f"this is a message in JSON, and its content type is {_FORM}: send it as {JSON} (curl --json)",
        )


def _described(head: Head, text: bytes) -> Described:
    """Return the body and the options of a message."""
    try:
        if head.is_json and text:
            read_json(text)  # JSON that is kept unchanged must be readable for its consumer
        if head.form is Form.BYTES:
            _refuse_mistaken(head, text)
            return text, read_headers(head.headers)
        if head.form is Form.BINARY_EVENT:
            return text, cloudevents.with_attributes(read_headers(head.headers), head.headers)
        return cloudevents.read_event(text) if head.form is Form.EVENT else read_entry(text)
    except msgspec.ValidationError as error:
        raise Problem("invalid_message", misfit(error, text, head.form.value, MUST)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise no_json(text, error) from None
