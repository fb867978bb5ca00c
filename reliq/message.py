"""The element: what lies in a list, and the message a handler sees.

An element is one MessagePack array, described for other languages in docs/wire-format.md. Every push writes a new
nonce, so that no two copies of a message are ever equal bytes and an LREM removes exactly what was meant.
"""

import hashlib
import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import msgspec

from reliq import forks, settings
from reliq.errors import InvalidMessage, InvalidName, InvalidSetting

Body = bytes | bytearray | memoryview | str | dict[str, Any] | list[Any] | tuple[Any, ...] | int | float | bool | None

_ID = re.compile(r"[\x21-\x7e]{1,128}")
_is_id = _ID.fullmatch
_ELEMENT_LARGEST = settings.ELEMENT_LARGEST
# An element is input: any client of Redis may have written it. What is outside of these ranges does not decode.
_Count = Annotated[int, msgspec.Meta(ge=0, le=settings.COUNT_LARGEST)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=settings.TIME_LARGEST)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Key = Annotated[str, msgspec.Meta(max_length=settings.KEY_LARGEST)]
_Priority = Annotated[str, msgspec.Meta(pattern=r"^(high|normal|low)?\Z")]
_Group = Annotated[str, msgspec.Meta(max_length=16)]


class Failure(msgspec.Struct, omit_defaults=True, frozen=True):
    """One failure of a message, as its history keeps it."""

    at: _Time  #: ms since the epoch, the worker's clock
    worker: str
    error_class: str
    text: str


class Extra(msgspec.Struct, omit_defaults=True, frozen=True):
    """What only some messages carry; absent from the element of all others.

    The last two are at the very end of the element, where a script finds them without decoding it.
    """

    expires_at: _Time = 0  #: ms since the epoch; 0 = never
    routing_key: str = ""
    reason: str = ""  #: why it is a dead letter
    errors: tuple[Failure, ...] = ()
    key: _Key = ""  #: messages with one key are handled in order, one at a time
    cycle: bool = False  #: its key is a member of the queue's cycle
    priority: _Priority = ""
    group: _Group = ""  #: the key's digest


class Envelope(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The array of the wire format, field by field."""

    version: Literal[1]
    id: _Id
    nonce: Annotated[int, msgspec.Meta(ge=0)]
    deliveries: _Count
    failures: _Count
    redelivered: bool
    enqueued_at: _Time
    headers: dict[str, str]
    body: bytes
    extra: Extra | None = None


_NO_EXTRA = Extra()
_NO_HEADERS: dict[str, str] = {}
PRIORITIES = ("high", "normal", "low")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode

# Our own generator: a user who seeds `random` must not get the ids of another process, nor a forked child its parent's.
# `forks.mark()` in front of each use sees to the child.
_random = random.Random()
forks.in_every_child(_random.seed)


def new_id() -> str:
    """A UUIDv7 (RFC 9562) with 72 random bits: sortable by the millisecond it was made in."""
    forks.mark()
    now, bits = f"{time.time_ns() // 1_000_000:012x}", f"{_random.getrandbits(72):018x}"
    return f"{now[:8]}-{now[8:]}-7{bits[:3]}-8{bits[3:6]}-{bits[6:]}"


def new_ids(count: int) -> list[str]:
    """So many of them, in a third of the time."""
    forks.mark()
    now, bits = f"{time.time_ns() // 1_000_000:012x}", _random.randbytes(9 * count).hex()
    head = f"{now[:8]}-{now[8:]}-7"
    return [
        f"{head}{bits[at : at + 3]}-8{bits[at + 3 : at + 6]}-{bits[at + 6 : at + 18]}"
        for at in range(0, 18 * count, 18)
    ]


def new_nonce() -> int:
    """64 random bits that make one push of a message unlike every other."""
    forks.mark()
    return _random.getrandbits(64)


class Undecodable(Exception):
    """The bytes are no element of this version."""


class Message:
    """A message as a handler or a consumer holds it."""

    __slots__ = ("_envelope", "element", "holder", "lost", "queue")

    def __init__(self, queue: str, element: bytes, envelope: Envelope) -> None:
        self.queue = queue
        self.element = element  #: the exact bytes in the processing list
        self._envelope = envelope
        self.holder: object = None  #: the consumer that claimed it
        self.lost = False  #: True once its lease was lost or its time limit passed: stop, the result is not wanted

    @classmethod
    def decode(cls, queue: str, element: bytes) -> Self:
        """Read an element; raises Undecodable."""
        if len(element) > _ELEMENT_LARGEST:
            raise Undecodable(f"it has {len(element)} bytes, the limit is {_ELEMENT_LARGEST}")
        try:
            envelope = _decode(element)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MemoryError) as error:
            raise Undecodable(str(error)) from None
        if _is_id(envelope.id) is None:
            raise Undecodable("its id is not printable ASCII")
        # Scripts find the id by its place: array, version and id begin with MessagePack's short forms.
        if element[0] > 0x9F or element[1] != 1 or (element[2] > 0xBF and element[2] != 0xD9):
            raise Undecodable("its id is not where scripts look for it")
        return cls(queue, element, envelope)

    @property
    def id(self) -> str:
        return self._envelope.id

    @property
    def tag(self) -> str:
        """What names this very push of the message."""
        return f"{self._envelope.id} {self._envelope.nonce:x}"

    @property
    def body(self) -> bytes:
        return self._envelope.body

    @property
    def headers(self) -> dict[str, str]:
        return self._envelope.headers

    @property
    def deliveries(self) -> int:
        """How many holders vanished with it."""
        return self._envelope.deliveries

    @property
    def failures(self) -> int:
        """How many times a handler failed on it."""
        return self._envelope.failures

    @property
    def redelivered(self) -> bool:
        """Whether a holder vanished while it had this message."""
        return self._envelope.redelivered

    @property
    def enqueued_at(self) -> int:
        """When it was first sent: ms since the epoch, the producer's clock."""
        return self._envelope.enqueued_at

    @property
    def extra(self) -> Extra | None:
        """What only some messages carry; None for all others."""
        return self._envelope.extra

    @property
    def expires_at(self) -> int:
        """When it expires: ms since the epoch, the Redis server's clock; 0 = never."""
        return (self._envelope.extra or _NO_EXTRA).expires_at

    @property
    def routing_key(self) -> str:
        return (self._envelope.extra or _NO_EXTRA).routing_key

    @property
    def key(self) -> str:
        """What orders it: messages with one key are handled one at a time, in the order of their sends."""
        return (self._envelope.extra or _NO_EXTRA).key

    @property
    def group(self) -> str:
        """The digest of its key, by which Redis knows it; empty without a key."""
        return (self._envelope.extra or _NO_EXTRA).group

    @property
    def in_cycle(self) -> bool:
        """Whether its key is a member of the queue's cycle."""
        return (self._envelope.extra or _NO_EXTRA).cycle

    @property
    def priority(self) -> str:
        """One of high, normal, low."""
        return (self._envelope.extra or _NO_EXTRA).priority or "normal"

    @property
    def reason(self) -> str:
        return (self._envelope.extra or _NO_EXTRA).reason

    @property
    def errors(self) -> tuple[Failure, ...]:
        """Its failures so far: the first and the latest nine, oldest first."""
        return (self._envelope.extra or _NO_EXTRA).errors

    def json(self) -> Any:
        """The body read as JSON; raises InvalidMessage."""
        try:
            return msgspec.json.decode(self._envelope.body)
        except msgspec.MsgspecError as error:
            raise InvalidMessage(f"the body of message {self.id} is not JSON: {error}") from None

    def again(self, **changes: Any) -> bytes:
        """The element of another push of this message: a new nonce, and the envelope's fields that changed."""
        return _encode(msgspec.structs.replace(self._envelope, nonce=new_nonce(), **changes))

    def failed(self, failure: Failure, reason: str = "", charged: bool = True) -> bytes:
        """The element after a failure: one more in its history, and the reason if it is now a dead letter."""
        extra = self._envelope.extra or _NO_EXTRA
        errors = _capped((*extra.errors, failure))
        return self.again(
            failures=min(self.failures + charged, settings.COUNT_LARGEST),
            extra=msgspec.structs.replace(extra, errors=errors, reason=reason),
        )

    def buried(self, reason: str, deliveries: int | None = None) -> bytes:
        """The element of a dead letter that died without a handler's failure."""
        extra = msgspec.structs.replace(self._envelope.extra or _NO_EXTRA, reason=reason)
        return self.again(extra=extra, deliveries=self.deliveries if deliveries is None else deliveries)

    def revived(self, keep_failures: bool) -> bytes:
        """The element of a redriven dead letter: no reason, no expiry, and a fresh start unless told otherwise."""
        extra = msgspec.structs.replace(self._envelope.extra or _NO_EXTRA, reason="", expires_at=0)
        if keep_failures:
            return self.again(redelivered=False, deliveries=0, extra=extra)
        extra = msgspec.structs.replace(extra, errors=())
        return self.again(redelivered=False, deliveries=0, failures=0, extra=None if extra == _NO_EXTRA else extra)

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self.queue}: {len(self.body)} bytes, failures={self.failures}>"


def wrapped(raw: bytes) -> tuple[str, bytes]:
    """A dead letter around bytes that do not decode: its new id, and its element with the raw bytes as the body."""
    identity = new_id()
    return identity, _first_element(identity, time.time_ns() // 1_000_000, {}, raw, Extra(reason="decode"))


def undecodable_letter(raw: bytes) -> tuple[str, bytes]:
    """The dead letter to store for bytes that do not decode, and its id; they stay bare where wrapping is too large."""
    return (new_id(), raw) if len(raw) > settings.ELEMENT_LARGEST else wrapped(raw)


def _first_element(identity: str, now: int, headers: dict[str, str], body: bytes, extra: Extra | None) -> bytes:
    nonce = _random.getrandbits(64)  # its callers have asked for `forks.mark()`, once for all of them
    return _encode((1, identity, nonce, 0, 0, False, now, headers, body, extra))  # an Envelope, only faster


def cut(text: str, largest: int = settings.ERROR_LARGEST) -> str:
    """The text in at most `largest` bytes of UTF-8, its middle left out; lone surrogates replaced."""
    data = text.encode("utf-8", "replace")
    if len(data) <= largest:
        return data.decode()
    half = (largest - 5) // 2
    return data[:half].decode("utf-8", "ignore") + " ... " + data[-half:].decode("utf-8", "ignore")


def _capped(errors: tuple[Failure, ...]) -> tuple[Failure, ...]:
    """The first failure and the latest ones; those between keep only the last line of their text."""
    if len(errors) > settings.ERRORS_KEPT:
        errors = errors[:1] + errors[1 - settings.ERRORS_KEPT :]
    between = [
        msgspec.structs.replace(one, text=cut(one.text.strip().rpartition("\n")[2], 200)) for one in errors[1:-1]
    ]
    return errors[:1] + tuple(between) + errors[1:][-1:]


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
        return _first_element(self.id, now, self.headers, self.body, extra)


def elements_of(ids: Sequence[str], bodies: Sequence[bytes], now: int) -> list[bytes]:
    """The elements of messages that have nothing but an id and a body."""
    forks.mark()
    return [_first_element(identity, now, _NO_HEADERS, body, None) for identity, body in zip(ids, bodies, strict=True)]


def group_of(key: str) -> str:
    """The digest of a key, 16 characters: a user's text never becomes part of a Redis key, nor of a field."""
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest() if key else ""


def check_key(value: object, what: str = "key") -> str:
    """The key that orders a message, or a member of a cycle; raises InvalidMessage."""
    try:
        if isinstance(value, str) and 0 < len(value.encode()) <= settings.KEY_LARGEST:
            return value
    except UnicodeEncodeError:
        pass
    raise InvalidMessage(f"{what} is {cut(repr(value), 80)}: a text of 1 to {settings.KEY_LARGEST} bytes of UTF-8")


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


def check_id(value: object) -> str:
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise InvalidName(f"message id {cut(repr(value), 80)}: use 1 to 128 printable ASCII characters without spaces")
    return value


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    try:
        checked = dict(headers)
        size = sum(len(name.encode()) + len(value.encode()) for name, value in checked.items())
    except (AttributeError, TypeError, ValueError):
        raise InvalidMessage("headers must map texts to texts, all of them valid Unicode") from None
    if size > settings.HEADERS_LARGEST:
        raise InvalidMessage(f"the headers take {size} bytes, the limit is {settings.HEADERS_LARGEST}")
    return checked
