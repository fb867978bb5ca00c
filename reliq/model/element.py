"""The element: a message as it is stored in Redis. docs/reference/wire-format.md describes it for other languages."""

import base64
import hashlib
import random
import re
import time
from typing import Annotated, Literal

import msgspec

from reliq import forks
from reliq.contract import values

# An element is untrusted input: any client of Redis may have written it. Values outside these ranges do not decode.
_Count = Annotated[int, msgspec.Meta(ge=0, le=values.MAX_COUNT)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=values.MAX_TIME_MS)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Key = Annotated[str, msgspec.Meta(max_length=values.MAX_KEY_BYTES)]
_Priority = Annotated[str, msgspec.Meta(pattern=r"^(high|normal|low)?\Z")]
_Cost = Annotated[float, msgspec.Meta(ge=0, le=values.MAX_COST)]
_Batch = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9_-]{12})?\Z")]
_Group = Annotated[str, msgspec.Meta(max_length=16)]
_Reference = Annotated[bytes, msgspec.Meta(max_length=12)]

#: The version of an element that contains its body, and of one whose body is in the hash `bodies`.
INLINE, APART = 1, 2

#: How the last fields of `Extra` begin at the end of an element, in this order; each may be absent. The cost has
#: 8 bytes more, the batch 12, the group 16, the reference 12. Scripts read them there (reliq/lua/shared/element.lua).
ELEMENT_TAIL = {
    "cost": b"\xa4cost\xcb",
    "batch": b"\xa5batch\xac",
    "cycle": b"\xa5cycle\xc3",
    "lane": b"\xa4lane\xc3",
    "high": b"\xa8priority\xa4high",
    "low": b"\xa8priority\xa3low",
    "group": b"\xa5group\xb0",
    "apart": b"\xa5apart\xc4\x0c",
}

#: What lies in the place of a ready message that was cancelled; the next consumer passes over it. No MessagePack begins
#: with this byte.
BLANK = b"\xc1cancelled"


class Failure(msgspec.Struct, omit_defaults=True, frozen=True):
    """One failure of a message, as kept in its history."""

    at: _Time  #: ms since the epoch, the worker's clock
    worker: str
    error_class: str
    text: str


class Extra(msgspec.Struct, omit_defaults=True, frozen=True):
    """Fields that only some messages have; absent from the element of all others.

    The last ones are at the very end of the element, where a script finds them without decoding it: see ELEMENT_TAIL.
    """

    expires_at: _Time = 0  #: ms since the epoch; 0 = never
    routing_key: str = ""
    reason: str = ""  #: why the message is a dead letter
    errors: tuple[Failure, ...] = ()
    reported: bool = False  #: whether a handler has reported about the message: Redis may have a checkpoint
    together: _Count = 0  #: so many redelivered messages may run in a process while this one does; 0 = any number
    key: _Key = ""  #: messages with one key are handled in order, one at a time
    limit_key: _Key = ""  #: messages with one limit key share the limits of a key
    cost: _Cost | None = None  #: how much of the limits it takes when it starts; None = 1
    batch: _Batch = ""  #: the batch that counts the message
    cycle: bool = False  #: whether the message's key is a member of the queue's cycle
    lane: bool = False  #: whether `group` is the digest of the limit key; then the message has no other key
    priority: _Priority = ""
    group: _Group = ""  #: digest of the key, with `lane` of the limit key; or of a dedup key (see LATEST)
    apart: _Reference = b""  #: where the body is, if it is not in the element


class Envelope(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The array of the wire format, in the order of its fields."""

    version: Literal[1, 2]
    id: _Id
    nonce: Annotated[int, msgspec.Meta(ge=0)]
    deliveries: _Count
    failures: _Count
    redelivered: bool
    enqueued_at: _Time
    headers: dict[str, str]
    body: bytes
    extra: Extra | None = None


NO_EXTRA = Extra()
NO_HEADERS: dict[str, str] = {}
encode_envelope = msgspec.msgpack.Encoder().encode
decode_envelope = msgspec.msgpack.Decoder(Envelope).decode

# A generator of reliq's own: a program that seeds `random` must not repeat the ids of another process, nor a forked
# child those of its parent. Calling `forks.mark()` before each use reseeds it in the child.
_random = random.Random()
forks.in_every_child(_random.seed)


def group_in(element: bytes) -> str:
    """Return the digest of the key of a stored message; empty if it has none, or does not decode."""
    try:
        extra = decode_envelope(element).extra
    except msgspec.MsgspecError:
        return ""
    return extra.group if extra is not None else ""


_MADE_HERE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}")


def new_id() -> str:
    """Return a new UUIDv7 (RFC 9562) with 72 random bits; ids sort by the millisecond of their creation."""
    forks.mark()
    now, bits = f"{time.time_ns() // 1_000_000:012x}", f"{_random.getrandbits(72):018x}"
    return f"{now[:8]}-{now[8:]}-7{bits[:3]}-8{bits[3:6]}-{bits[6:]}"


def is_made_here(identity: str) -> bool:
    """Whether an id has the form of those that `new_id` makes, which no other message has."""
    return _MADE_HERE.fullmatch(identity) is not None


def new_ids(count: int) -> list[str]:
    """Return `count` new ids; three times as fast as calling `new_id` in a loop."""
    forks.mark()
    now, bits = f"{time.time_ns() // 1_000_000:012x}", _random.randbytes(9 * count).hex()
    head = f"{now[:8]}-{now[8:]}-7"
    return [
        f"{head}{bits[at : at + 3]}-8{bits[at + 3 : at + 6]}-{bits[at + 6 : at + 18]}"
        for at in range(0, 18 * count, 18)
    ]


def new_nonce() -> int:
    """Return 64 random bits that distinguish one push of a message from every other push."""
    forks.mark()
    return _random.getrandbits(64)


class Undecodable(Exception):
    """The bytes are not an element of this version."""


BODY_REFERENCE = 12  #: bytes of a reference


def new_reference(size: int) -> bytes:
    """Return a new reference to a body of `size` bytes: 64 random bits, then the size as four bytes."""
    forks.mark()
    return _random.randbytes(8) + size.to_bytes(4)


def size_of(element: bytes) -> int:
    """Return the bytes of a message, with its body if that is apart."""
    return len(element) + (int.from_bytes(element[-4:]) if element[1] == APART else 0)


def with_reference(element: bytes, reference: bytes) -> bytes:
    """Return an element with another reference to its body."""
    envelope = decode_envelope(element)
    extra = msgspec.structs.replace(envelope.extra or NO_EXTRA, apart=reference)
    return encode_envelope(msgspec.structs.replace(envelope, extra=extra))


def name_of(element: bytes) -> bytes:
    """Return the first bytes of a decodable element, through its nonce: they tell it from every other one."""
    end_of_id = 4 + element[3] if element[2] == 0xD9 else 3 + (element[2] & 0x1F)
    return element[: end_of_id + 9]


def id_in_name(name: bytes) -> bytes:
    """Return the id of the element with this name."""
    return name[4 if name[2] == 0xD9 else 3 : -9]


def first_element(identity: str, now: int, headers: dict[str, str], body: bytes, extra: Extra | None) -> bytes:
    nonce = _random.getrandbits(64)  # the callers have called `forks.mark()`, once per batch
    # The fields of an Envelope; a tuple is faster.
    return encode_envelope((INLINE, identity, nonce, 0, 0, False, now, headers, body, extra))


def first_element_apart(identity: str, now: int, headers: dict[str, str], extra: Extra) -> bytes:
    """Return the element of a message whose body is stored under the reference `extra.apart`."""
    return encode_envelope((APART, identity, _random.getrandbits(64), 0, 0, False, now, headers, b"", extra))


def group_of(key: str) -> str:
    """Return the digest of a key, 16 characters: a user's text never becomes part of a Redis key or hash field."""
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest() if key else ""


_LIMITED = "l"  #: how the group of a limit key ends: no digit of an ordering key's


def limit_group_of(limit_key: str) -> str:
    """Return the digest of a limit key: that of an ordering key with the same text, but for its last character."""
    return group_of(limit_key)[:-1] + _LIMITED if limit_key else ""


LATEST = "="  #: how the group of a dedup key begins, whose newest message replaces the one that waits


def latest_group_of(dedup_key: str) -> str:
    """Return the digest of such a dedup key: 16 characters that are no digest of an ordering key."""
    digest = hashlib.blake2b(dedup_key.encode("utf-8", "surrogatepass"), digest_size=12).digest()
    return LATEST + base64.urlsafe_b64encode(digest).decode()[:15]
