"""Messages of kombu as messages of reliq.

The body of a reliq message is kombu's body as it is, so `reliq dead show` and the dashboard show a task's arguments.
Its header `kombu` has the rest as JSON; the headers `task` and `task_id` are there to be seen and to be filtered by.
"""

import contextlib
import time
from datetime import datetime
from typing import Any

from kombu.utils.json import dumps, loads

from reliq import Message, NewMessage
from reliq.contract.values import MAX_DELAY_SECONDS
from reliq.contrib.kombu.options import Options

_ENVELOPE = "kombu"  #: header: what kombu says of the message
_IN_BODY = "kombu_bytes"  #: header: so many bytes before the body are the envelope, which is too large for a header
TASK_ID = "task_id"  #: header: the id of a Celery task
REQUEUED = "kombu_requeued"  #: header: the message was delivered before, and put back
_LARGEST_ENVELOPE = 12 * 1024  #: bytes in a header; reliq's limit for all headers is 16 KiB
_SHORTEST_TTL = 0.001
_FIRST, _MIDDLE = 3, 6  #: the last of kombu's priorities 0 to 9 that count as high, and as normal


def outgoing(message: dict[str, Any], options: Options, three_priorities: bool) -> NewMessage:
    """Return the reliq message for one that a kombu producer publishes."""
    headers, properties = message["headers"], message["properties"]
    envelope = dumps(
        {
            "content-type": message["content-type"],
            "content-encoding": message["content-encoding"],
            "headers": headers,
            "properties": properties,
        }
    )
    body = message["body"]
    raw = body.encode() if isinstance(body, str) else bytes(body or b"")
    ours = _visible(headers)
    if len(envelope) <= _LARGEST_ENVELOPE:
        ours[_ENVELOPE] = envelope
    else:
        start = envelope.encode()
        ours[_IN_BODY] = str(len(start))
        raw = start + raw
    return NewMessage(
        raw,
        headers=ours,
        delay=0.0 if options.eta_in_worker else _delay(headers),
        ttl=None if _expires_in_celery(headers) else _ttl(properties),
        priority=_priority(properties.get("priority"), options.priority_order == "ascending", three_priorities),
    )


def incoming(message: Message) -> dict[str, Any]:
    """Return kombu's form of a claimed message. A message that kombu did not write is its body and its headers."""
    envelope, body = _envelope(message)
    properties = envelope.get("properties") or {}
    info = properties.get("delivery_info") or {}
    info["redelivered"] = message.redelivered or REQUEUED in message.headers
    properties |= {"delivery_tag": message.tag, "delivery_info": info, "body_encoding": None}
    properties["priority"] = properties.get("priority") or 0
    return {**envelope, "body": body, "headers": envelope.get("headers") or {}, "properties": properties}


def requeued(message: Message) -> bytes:
    """Return the element under which a message goes back, known as delivered before."""
    return message.again(headers={**message.headers, REQUEUED: "1"})


def _envelope(message: Message) -> tuple[dict[str, Any], bytes]:
    headers, body = message.headers, message.body
    with contextlib.suppress(ValueError, TypeError):
        if _ENVELOPE in headers:
            return dict(loads(headers[_ENVELOPE])), body
        if _IN_BODY in headers:
            size = int(headers[_IN_BODY])
            return dict(loads(body[:size].decode())), body[size:]
    return {"content-type": "application/octet-stream", "content-encoding": "binary", "headers": dict(headers)}, body


def _visible(headers: dict[str, Any]) -> dict[str, str]:
    named = {"task": headers.get("task"), TASK_ID: headers.get("id")}
    return {name: value[:256] for name, value in named.items() if isinstance(value, str)}


def _delay(headers: dict[str, Any]) -> float:
    """Return the seconds until the message is due: Celery's `eta`, or `x-delay` (ms) of other kombu programs.

    An eta without time zone is left to Celery, which knows its own.
    """
    delay = 0.0
    with contextlib.suppress(ValueError, TypeError):
        if headers.get("eta"):
            eta = datetime.fromisoformat(headers["eta"])
            delay = eta.timestamp() - time.time() if eta.tzinfo is not None else 0.0
        elif headers.get("x-delay"):
            delay = float(headers["x-delay"]) / 1000
    return min(max(delay, 0.0), MAX_DELAY_SECONDS)


def is_task(headers: dict[str, Any]) -> bool:
    """Whether the message is a Celery task."""
    return bool(headers.get("task") and headers.get("id"))


def _expires_in_celery(headers: dict[str, Any]) -> bool:
    """Whether the message is a Celery task with `expires`: the worker that receives it later revokes it."""
    return is_task(headers) and bool(headers.get("expires"))


def _ttl(properties: dict[str, Any]) -> float | None:
    """Return the seconds after which the message expires: AMQP's `expiration`, in ms."""
    expiration = properties.get("expiration")
    if expiration is None:
        return None
    return min(max(int(expiration) / 1000, _SHORTEST_TTL), MAX_DELAY_SECONDS)


def _priority(given: Any, ascending: bool, three: bool) -> str:
    """Return reliq's priority for kombu's 0 to 9, of which 0 is also that of a message without any.

    As in kombu's Redis transport 0 is the first, unless `ascending`. `three`: use all of reliq's priorities; else a
    message without any is a normal one, and the others are behind it, or before it if `ascending`.
    """
    number = min(max(int(given or 0), 0), 9)
    if not three:
        return "normal" if number <= _FIRST else "high" if ascending else "low"
    number = 9 - number if ascending else number
    return "high" if number <= _FIRST else "normal" if number <= _MIDDLE else "low"
