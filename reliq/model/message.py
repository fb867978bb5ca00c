"""A message as its handler sees it, and what becomes of its element when it is pushed again."""

import time
from typing import Any, Self

import msgspec

from reliq.errors import InvalidMessage
from reliq.model import settings
from reliq.model.element import (
    NO_EXTRA,
    Envelope,
    Extra,
    Failure,
    Undecodable,
    cut,
    decode_envelope,
    encode_envelope,
    first_element,
    is_id,
    new_id,
    new_nonce,
)

_MAX_ELEMENT_BYTES = settings.MAX_ELEMENT_BYTES


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
        if len(element) > _MAX_ELEMENT_BYTES:
            raise Undecodable(f"it has {len(element)} bytes, the limit is {_MAX_ELEMENT_BYTES}")
        try:
            envelope = decode_envelope(element)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MemoryError) as error:
            raise Undecodable(str(error)) from None
        if is_id(envelope.id) is None:
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
        return (self._envelope.extra or NO_EXTRA).expires_at

    @property
    def routing_key(self) -> str:
        return (self._envelope.extra or NO_EXTRA).routing_key

    @property
    def key(self) -> str:
        """What orders it: messages with one key are handled one at a time, in the order of their sends."""
        return (self._envelope.extra or NO_EXTRA).key

    @property
    def group(self) -> str:
        """The digest of its key, by which Redis knows it; empty without a key."""
        return (self._envelope.extra or NO_EXTRA).group

    @property
    def in_cycle(self) -> bool:
        """Whether its key is a member of the queue's cycle."""
        return (self._envelope.extra or NO_EXTRA).cycle

    @property
    def priority(self) -> str:
        """One of high, normal, low."""
        return (self._envelope.extra or NO_EXTRA).priority or "normal"

    @property
    def reason(self) -> str:
        return (self._envelope.extra or NO_EXTRA).reason

    @property
    def errors(self) -> tuple[Failure, ...]:
        """Its failures so far: the first and the latest nine, oldest first."""
        return (self._envelope.extra or NO_EXTRA).errors

    def json(self) -> Any:
        """The body read as JSON; raises InvalidMessage."""
        try:
            return msgspec.json.decode(self._envelope.body)
        except msgspec.MsgspecError as error:
            raise InvalidMessage(f"the body of message {self.id} is not JSON: {error}") from None

    def again(self, **changes: Any) -> bytes:
        """The element of another push of this message: a new nonce, and the envelope's fields that changed."""
        return encode_envelope(msgspec.structs.replace(self._envelope, nonce=new_nonce(), **changes))

    def failed(self, failure: Failure, reason: str = "", charged: bool = True) -> bytes:
        """The element after a failure: one more in its history, and the reason if it is now a dead letter."""
        extra = self._envelope.extra or NO_EXTRA
        errors = _capped((*extra.errors, failure))
        return self.again(
            failures=min(self.failures + charged, settings.MAX_COUNT),
            extra=msgspec.structs.replace(extra, errors=errors, reason=reason),
        )

    def buried(self, reason: str, deliveries: int | None = None) -> bytes:
        """The element of a dead letter that died without a handler's failure."""
        extra = msgspec.structs.replace(self._envelope.extra or NO_EXTRA, reason=reason)
        return self.again(extra=extra, deliveries=self.deliveries if deliveries is None else deliveries)

    def revived(self, keep_failures: bool) -> bytes:
        """The element of a redriven dead letter: no reason, no expiry, and a fresh start unless told otherwise."""
        extra = msgspec.structs.replace(self._envelope.extra or NO_EXTRA, reason="", expires_at=0)
        if keep_failures:
            return self.again(redelivered=False, deliveries=0, extra=extra)
        extra = msgspec.structs.replace(extra, errors=())
        return self.again(redelivered=False, deliveries=0, failures=0, extra=None if extra == NO_EXTRA else extra)

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self.queue}: {len(self.body)} bytes, failures={self.failures}>"


def wrapped(raw: bytes) -> tuple[str, bytes]:
    """A dead letter around bytes that do not decode: its new id, and its element with the raw bytes as the body."""
    identity = new_id()
    return identity, first_element(identity, time.time_ns() // 1_000_000, {}, raw, Extra(reason="decode"))


def undecodable_letter(raw: bytes) -> tuple[str, bytes]:
    """The dead letter to store for bytes that do not decode, and its id; they stay bare where wrapping is too large."""
    return (new_id(), raw) if len(raw) > settings.MAX_ELEMENT_BYTES else wrapped(raw)


def _capped(errors: tuple[Failure, ...]) -> tuple[Failure, ...]:
    """The first failure and the latest ones; those between keep only the last line of their text."""
    if len(errors) > settings.ERRORS_KEPT:
        errors = errors[:1] + errors[1 - settings.ERRORS_KEPT :]
    between = [
        msgspec.structs.replace(one, text=cut(one.text.strip().rpartition("\n")[2], 200)) for one in errors[1:-1]
    ]
    return errors[:1] + tuple(between) + errors[1:][-1:]
