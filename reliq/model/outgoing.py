"""A message that is to be sent, checked before anything is."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from reliq import forks
from reliq.errors import InvalidMessage, InvalidSetting
from reliq.model import settings
from reliq.model.element import NO_HEADERS, PRIORITIES, Extra, check_id, cut, first_element, group_of, new_id

Body = bytes | bytearray | memoryview | str | dict[str, Any] | list[Any] | tuple[Any, ...] | int | float | bool | None


class NewMessage:
    """A message to be sent, with the options of its own that `send_many` cannot give to a bare body.

    The defaults are the class's: an instance has only what is its own, which makes most of them in a third of the time.
    """

    body: bytes
    id: str
    headers: dict[str, str]
    delay = 0.0  #: seconds
    ttl: float | None = None  #: seconds
    key = ""
    priority = "normal"
    dedup_key: str | None = None
    window = 600.0  #: seconds
    in_cycle = False  #: its key is a member of a cycle
    duplicate = False  #: True once it was sent and an earlier message with its dedup_key stands for it
    conflict = False  #: True if that earlier message has another body: this one is nowhere

    def __init__(
        self,
        body: Body,
        *,
        id: str | None = None,
        delay: settings.Duration = 0,
        headers: Mapping[str, str] | None = None,
        dedup_key: str | None = None,
        window: settings.Duration = "10m",
        ttl: settings.Duration | None = None,
        key: str | None = None,
        priority: str = "normal",
    ) -> None:
        """Check and encode at once: the call that enqueues it has nothing left to refuse.

        `delay`: how long it stays invisible. `dedup_key`: within `window`, a second message with this key is not
        enqueued and answers the id of the first. `ttl`: how long after sending it may still be started; then it is a
        dead letter with reason `expired`. `key`: messages of a queue with one key are handled one at a time and in
        order (a delayed one takes its place when it is due); one that fails holds back only its own key.
        `priority`: "high", "normal" or "low"; while there are messages of all three, 16 : 4 : 1 are taken.
        Raises InvalidMessage, InvalidName.
        """
        self.body = encode_body(body)
        self.id = new_id() if id is None else check_id(id)
        self.headers = check_headers(headers) if headers else {}
        try:
            if delay:
                self.delay = settings.seconds(delay, "delay")
            if window != "10m":
                self.window = settings.seconds(window, "window", shortest=0.001)
            if ttl is not None:
                self.ttl = settings.seconds(ttl, "ttl", shortest=0.001)
        except InvalidSetting as error:
            raise InvalidMessage(str(error)) from None
        if key is not None:
            self.key = check_key(key)
        if priority != "normal":
            self.priority = _check_priority(priority)
        if dedup_key is not None:
            self.dedup_key = _check_dedup_key(dedup_key)

    def like(self, body: Body, identity: str) -> "NewMessage":
        """Another message with the same options; raises InvalidMessage."""
        other = object.__new__(NewMessage)
        if self.headers or self.placed or self.ttl is not None:
            other.__dict__.update(self.__dict__)
        else:
            other.headers = {}
        other.body = encode_body(body)
        other.id = identity
        return other

    @property
    def placed(self) -> bool:
        """Whether it goes elsewhere than to the head of the ready messages, or may: a script must look at it."""
        return bool(self.delay or self.key or self.dedup_key is not None) or self.priority != "normal"

    @property
    def digest(self) -> str:
        """Of the body; empty without a dedup_key."""
        return "" if self.dedup_key is None else hashlib.blake2b(self.body, digest_size=8).hexdigest()

    def element(self, now: int, routing_key: str = "") -> bytes:
        """Its element, sent at `now` (ms since the epoch, as near the Redis server's clock as is known)."""
        forks.mark()
        extra = None
        if self.ttl is not None or routing_key or self.key or self.priority != "normal":
            extra = Extra(
                expires_at=0 if self.ttl is None else now + round(self.ttl * 1000),
                routing_key=routing_key,
                key=self.key,
                cycle=self.in_cycle,
                priority="" if self.priority == "normal" else self.priority,
                group=group_of(self.key),
            )
        return first_element(self.id, now, self.headers, self.body, extra)


def elements_of(ids: Sequence[str], bodies: Sequence[bytes], now: int) -> list[bytes]:
    """The elements of messages that have nothing but an id and a body."""
    forks.mark()
    return [first_element(identity, now, NO_HEADERS, body, None) for identity, body in zip(ids, bodies, strict=True)]


def check_key(value: object, what: str = "key") -> str:
    """The key that orders a message, or a member of a cycle; raises InvalidMessage."""
    try:
        if isinstance(value, str) and 0 < len(value.encode()) <= settings.MAX_KEY_BYTES:
            return value
    except UnicodeEncodeError:
        pass
    raise InvalidMessage(f"{what} is {cut(repr(value), 80)}: a text of 1 to {settings.MAX_KEY_BYTES} bytes of UTF-8")


def _check_priority(value: str) -> str:
    if value not in PRIORITIES:
        raise InvalidMessage(f"priority is {value!r}: it is one of {', '.join(PRIORITIES)}")
    return value


def _check_dedup_key(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidMessage(f"dedup_key is {value!r}: it must be a text that is not empty")
    return value


_strict_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode_body(body: Body) -> bytes:
    """Bytes as they are, a text as UTF-8, anything else as JSON; raises InvalidMessage."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body)
    try:
        return (body if isinstance(body, str) else _strict_json(body)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(body).__name__
        raise InvalidMessage(f"a body of type {kind} is neither bytes, text nor JSON: {error}") from None


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    try:
        checked = dict(headers)
        size = sum(len(name.encode()) + len(value.encode()) for name, value in checked.items())
    except (AttributeError, TypeError, ValueError):
        raise InvalidMessage("headers must map texts to texts, all of them valid Unicode") from None
    if size > settings.MAX_HEADERS_BYTES:
        raise InvalidMessage(f"the headers take {size} bytes, the limit is {settings.MAX_HEADERS_BYTES}")
    return checked
