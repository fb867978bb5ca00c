"""Messages to be sent, checked and encoded before anything is sent."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import msgspec

from reliq import forks
from reliq.contract import values
from reliq.contract.keywords import BatchOptions, MessageOptions
from reliq.contract.options import BY_NAME, options_of
from reliq.contract.values import cut
from reliq.errors import InvalidMessage, InvalidName, InvalidSetting
from reliq.model.body_types import TypedBody, plain
from reliq.model.element import (
    NO_EXTRA,
    NO_HEADERS,
    Extra,
    first_element,
    first_element_apart,
    group_of,
    latest_group_of,
    limit_group_of,
    new_id,
    new_reference,
)
from reliq.model.keywords import check_names
from reliq.model.unencodable import why_not_json

JsonBody = dict[str, Any] | list[Any] | tuple[Any, ...] | int | float | bool | None
Body = bytes | bytearray | memoryview | str | JsonBody | TypedBody


def check_option_names(options: Mapping[str, object], allowed: type[BatchOptions]) -> None:
    """Raise TypeError for an unknown message option."""
    if options:
        check_names(options, allowed, "message options")


class NewMessage:
    """A message to be sent, with options of its own that a bare body in `send_many` cannot have."""

    # Defaults are attributes of the class: an instance stores only what differs, and is created three times as fast.
    body: bytes
    id: str
    headers: dict[str, str]
    delay = 0.0  #: seconds
    ttl: float | None = None  #: seconds
    key = ""
    limit_key = ""
    cost = 1  #: tokens of a rate
    priority = "normal"
    dedup_key: str | None = None
    window = 600.0  #: seconds
    replace = False  #: whether it replaces the message with the same dedup_key that waits
    debounce = 0.0  #: seconds
    at_most: float | None = None  #: seconds; None = without limit
    enqueued_at = 0  #: ms since the epoch, of a message that comes from another queue; 0: it is new
    batch = ""  #: the batch that counts it
    in_cycle = False  #: whether its key is a member of a cycle
    waits = False  #: whether it waits for its flow
    duplicate = False  #: True after the send if an earlier message with the same dedup_key took its place
    first_id = ""  #: of that earlier message, after the send
    conflict = False  #: True if that earlier message has another body: this message was not enqueued
    offered = False  #: whether a full queue does not count that it refuses it: it is offered again alone

    def __init__(self, body: Body, **options: Unpack[MessageOptions]) -> None:
        """Check and encode the message at once, so that the call that enqueues it has nothing left to refuse.

        Raises InvalidMessage, InvalidName; TypeError for an unknown option.
        """
        self.body = encode_body(body)
        if options:
            self._set(options)
        if "id" not in self.__dict__:
            self.id = new_id()
        if "headers" not in self.__dict__:
            self.headers = {}

    def _set(self, options: MessageOptions) -> None:
        """Check the options one by one, then together; only what differs from the default is stored."""
        try:
            for name, value in options.items():
                if name not in BY_NAME:
                    check_option_names(options, MessageOptions)
                option = BY_NAME[name]
                if value is None or value is option.default:
                    continue
                if value != option.default or isinstance(value, bool):  # True is equal to 1
                    setattr(self, name, option.kind.check(value, name))
        except InvalidSetting as error:
            raise InvalidMessage(str(error)) from None
        if self.limit_key and self.key and self.key != self.limit_key:
            raise InvalidMessage(
                f"key is {_short(self.key)} and limit_key {_short(self.limit_key)}: give one of them; "
                "a message with an ordering key has the limits of that key"
            )
        if self.replace or self.debounce or self.at_most is not None:
            self._check_latest(options)

    def _check_latest(self, options: MessageOptions) -> None:
        """Check a message that replaces the one that waits."""
        debounce, at_most = options.get("debounce"), options.get("at_most")
        if not self.replace:
            name, value = ("at_most", at_most) if debounce is None else ("debounce", debounce)
            raise InvalidMessage(f"{name} is {value!r} without replace: it delays the message that is replaced")
        if self.dedup_key is None:
            raise InvalidMessage("replace without a dedup_key: give the key of the messages to replace")
        if self.key:
            raise InvalidMessage(
                f"replace and key {_short(self.key)} are given: messages with one key all run, in order"
            )
        if self.limit_key:
            raise InvalidMessage(f"replace and limit_key {_short(self.limit_key)} are given: leave one of them out")
        if self.delay:
            raise InvalidMessage(f"replace and delay {self.delay:g} s are given: use debounce to delay it")
        if self.at_most is None:
            return
        if debounce is None:
            raise InvalidMessage(f"at_most is {at_most!r} without debounce: it bounds the delay by debounce")
        if self.at_most < self.debounce:
            raise InvalidMessage(
                f"at_most is {at_most!r}, shorter than debounce, which is {debounce!r}: give at least as much"
            )

    def options(self, surface: str) -> dict[str, Any]:
        """Return the options that differ from their defaults, of those that a surface takes."""
        return {one.name: self.__dict__[one.name] for one in options_of(surface) if one.name in self.__dict__}

    def of_batch(self, batch: str) -> "NewMessage":
        """Return this message as one of a batch."""
        other = object.__new__(NewMessage)
        other.__dict__.update(self.__dict__)
        other.batch = batch
        return other

    def like(self, body: Body, identity: str) -> "NewMessage":
        """Return another message with the same options; raises InvalidMessage."""
        other = object.__new__(NewMessage)
        other.__dict__.update(self.__dict__)
        other.headers = self.headers.copy()
        other.body = encode_body(body)
        other.id = identity
        return other

    @property
    def placed(self) -> bool:
        """Whether the message may go elsewhere than to the head of the ready messages: then a script decides."""
        keyed = self.key or self.limit_key or self.dedup_key is not None
        return bool(self.delay or keyed or self.waits) or self.priority != "normal" or self.cost != 1

    @property
    def only_keyed(self) -> bool:
        """Whether an ordering key, a deduplication key or both are all that decides where it goes."""
        if self.limit_key and not self.key:
            return False
        other = self.delay or self.replace or self.waits or self.in_cycle or self.batch
        return not other and self.priority == "normal" and self.cost == 1

    @property
    def digest(self) -> str:
        """Digest of the body, or an empty string without a dedup_key."""
        return "" if self.dedup_key is None else hashlib.blake2b(self.body, digest_size=8).hexdigest()

    @property
    def _group(self) -> str:
        """Digest of the key that decides when the message is ready: dedup_key if it replaces, key, or limit_key."""
        if self.replace:
            return latest_group_of(self.dedup_key or "")
        return group_of(self.key) if self.key else limit_group_of(self.limit_key)

    def element(self, now: int, routing_key: str = "", reference: bytes = b"") -> bytes:
        """Return its element, sent at `now` (ms of the server's clock); `reference`: of a body that is stored apart."""
        forks.mark()
        lane = bool(self.limit_key and not self.key)
        changed = self.priority != "normal" or self.cost != 1
        expires_at = 0 if self.ttl is None else now + round(self.ttl * 1000)
        extra = None
        if reference or routing_key or self.key or lane or self.replace or changed or self.batch:
            extra = Extra(
                expires_at=expires_at,
                routing_key=routing_key,
                key=self.key,
                limit_key=self.limit_key if lane else "",
                cost=None if self.cost == 1 else float(self.cost),
                batch=self.batch,
                cycle=self.in_cycle,
                lane=lane,
                priority="" if self.priority == "normal" else self.priority,
                group=self._group,
                apart=reference,
            )
        elif expires_at:
            extra = Extra(expires_at)
        sent = self.enqueued_at or now
        if reference and extra is not None:
            return first_element_apart(self.id, sent, self.headers, extra)
        return first_element(self.id, sent, self.headers, self.body, extra)


def reference_to(body: bytes) -> bytes:
    """Return a new reference for a body that is too large to be part of its element, and b"" for any other."""
    return new_reference(len(body)) if len(body) > values.INLINE_BODY_BYTES else b""


def elements_of(ids: Sequence[str], bodies: Sequence[bytes], references: Sequence[bytes], now: int) -> list[bytes]:
    """Return the elements of messages that have only an id and a body; no references: all bodies are small."""
    forks.mark()
    if not references:
        return [first_element(one, now, NO_HEADERS, body, None) for one, body in zip(ids, bodies, strict=True)]
    return [
        first_element_apart(one, now, NO_HEADERS, msgspec.structs.replace(NO_EXTRA, apart=reference))
        if reference
        else first_element(one, now, NO_HEADERS, body, None)
        for one, body, reference in zip(ids, bodies, references, strict=True)
    ]


def check_key(value: object, what: str = "key") -> str:
    """Return a valid ordering key or member of a cycle; raises InvalidMessage."""
    key: str = BY_NAME["key"].kind.check(value, what)
    return key


def _short(value: str) -> str:
    return cut(repr(value), 80)


def too_large(size: int | str, limit: int, setting: str = "max_body") -> str:
    """Return why a body is refused; `setting`: the name of its limit where the caller can change it."""
    has = f"{size:,}" if isinstance(size, int) else size
    return (
        f"the body has {has} bytes, the limit is {limit:,} ({setting}): store it elsewhere and send a reference, "
        f"or raise {setting} (at most {values.bytes_text(values.MAX_BODY_BYTES)})"
    )


_strict_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain).encode


def encode_body(body: Body) -> bytes:
    """Return bytes unchanged, a text as UTF-8, and anything else as JSON, also typed objects; raises InvalidMessage."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body)
    try:
        return (body if isinstance(body, str) else _strict_json(body)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"the body is neither bytes, text nor JSON: {why_not_json(body, error)}") from None


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return valid headers; raises InvalidMessage."""
    checked: dict[str, str] = BY_NAME["headers"].kind.check(headers, "headers")
    return checked


def check_again(message: object, max_body: int) -> None:
    """Check a message that hooks of middleware may have changed; raises InvalidMessage."""
    if not isinstance(message, NewMessage):
        raise InvalidMessage(f"it is of type {type(message).__name__}: the messages of a send are reliq.NewMessage")
    if not isinstance(message.body, bytes):
        raise InvalidMessage(f"its body is of type {type(message.body).__name__}: a hook must set it to bytes")
    if len(message.body) > max_body:
        raise InvalidMessage(too_large(len(message.body), max_body))
    try:
        for name, option in BY_NAME.items():
            value = getattr(message, name)
            default = getattr(NewMessage, name, ...)
            if value != default or type(value) is not type(default):  # True equals 1; a default needs no check
                setattr(message, name, option.kind.check(value, name))
    except (InvalidName, InvalidSetting) as error:
        raise InvalidMessage(str(error)) from None
