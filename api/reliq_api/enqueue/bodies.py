"""Messages in answers. Bodies are bytes, JSON is text: `encoding` names the form of a body."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw
from starlette.responses import Response

from reliq.model.life import read_state
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq_api.http.problems import Problem
from reliq_api.http.strict_json import read_json

Encoding = Literal["auto", "text", "base64"]


class Leased(msgspec.Struct, omit_defaults=True, gc=False):
    id: str
    body: str | Raw
    encoding: str
    headers: dict[str, str]
    deliveries: int
    failures: int
    redelivered: bool
    enqueued_at: int
    routing_key: str = ""
    cost: int = 1
    state: Raw | None = None


def leased(message: Message, encoding: Encoding, state: bytes | None) -> Leased:
    kind, body = shown(message.body, encoding, message.headers)
    return Leased(
        message.id, body, kind, message.headers, message.deliveries, message.failures, message.redelivered,
        message.enqueued_at, message.routing_key, message.cost, _state(state),
    )  # fmt: skip


def _state(state: bytes | None) -> Raw | None:
    """Return a checkpoint as JSON; None if there is none, or if it is a Python value that JSON cannot represent."""
    if state is None:
        return None
    try:
        return Raw(encode(read_state(state)))
    except (TypeError, ValueError):
        return None


def shown(body: bytes, encoding: Encoding, headers: Mapping[str, str]) -> tuple[str, str | Raw]:
    """Return the form and the body in it: by its content type, else an object or array as unchanged JSON, other
    UTF-8 as text, and everything else as base64.
    """
    if encoding == "base64":
        return "base64", b64encode(body).decode()
    if encoding == "auto" and _may_be_json(body, headers) and _is_json(body):
        return "json", Raw(body)
    try:
        return "text", body.decode()
    except UnicodeDecodeError:
        return "base64", b64encode(body).decode()


def _may_be_json(body: bytes, headers: Mapping[str, str]) -> bool:
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media.startswith("text/"):
        return False
    return body[:1] in (b"{", b"[") or media.endswith(("/json", "+json"))


def conflict(message: NewMessage) -> dict[str, bool]:
    """Return the addition to the answer for a duplicate with another body than the first message."""
    return {"conflict": True} if message.conflict else {}


def _is_json(body: bytes) -> bool:
    try:
        read_json(body)
    except (msgspec.MsgspecError, Problem):
        return False
    return True


encode: Any = msgspec.json.Encoder().encode


def answered(value: object, status: int = 200) -> Response:
    """Return a value as the answer to a request, as it is."""
    return Response(encode(value), status, media_type="application/json")
