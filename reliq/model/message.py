"""A message as its handler sees it, and the elements under which it is pushed again."""

import time
from collections.abc import Awaitable
from typing import Any, Self

import msgspec

from reliq.contract import values
from reliq.contract.values import cut, is_id
from reliq.errors import InvalidMessage, ReliqError, TimeLimitExceeded
from reliq.features.charges.model import ChargeCalls
from reliq.features.flows.model import FlowCalls
from reliq.features.output.model import OutputCalls
from reliq.features.steps.model import DurableCalls
from reliq.model.element import (
    APART,
    BODY_REFERENCE,
    ELEMENT_TAIL,
    INLINE,
    LATEST,
    NO_EXTRA,
    Envelope,
    Extra,
    Failure,
    Undecodable,
    decode_envelope,
    encode_envelope,
    first_element,
    new_id,
    new_nonce,
)
from reliq.model.error_text import classed_gist
from reliq.model.life import Holder, Life, checked_progress, checked_state, read_state

_MAX_ELEMENT_BYTES = values.MAX_ELEMENT_BYTES
_REFERENCE_HEAD = ELEMENT_TAIL["apart"]


class Message(DurableCalls, FlowCalls, OutputCalls, ChargeCalls):
    """A message as a handler or a consumer holds it."""

    __slots__ = (
        "_body", "_envelope", "_headers", "_rests", "doubtful", "element", "holder", "lost", "overran", "queue",
        "reference",
    )  # fmt: skip

    def __init__(self, queue: str, element: bytes, envelope: Envelope) -> None:
        self.queue = queue
        self.element = element  #: the exact bytes in the processing list
        self._envelope = envelope
        self._headers: dict[str, str] | None = None  #: those that a handler sees, and may change; None until it looks
        self._body: bytes | None  #: None until it is read
        self.reference: bytes  #: where in Redis the body is: a field of the hash `bodies`, or empty
        if envelope.version == INLINE:
            self._body, self.reference = envelope.body, b""
        else:
            self._body, self.reference = None, (envelope.extra or NO_EXTRA).apart
        self.holder: Holder | None = None  #: the consumer that claimed it
        self.doubtful = False  #: it was found in the processing list: perhaps an earlier run of it was undone
        self.lost = False  #: True once its lease is lost or its time limit has passed: the result is discarded
        self.overran: TimeLimitExceeded  #: the failure of a run beyond its time limit; not set before
        self._rests: bool  #: True once its handler has let it rest: that run is over; not set before

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
        # Scripts find the id by its offset: array, version and id must use MessagePack's short forms.
        if element[0] > 0x9F or element[1] > APART or (element[2] > 0xBF and element[2] != 0xD9):
            raise Undecodable("its id is not where scripts look for it")
        if envelope.version == APART or (envelope.extra is not None and envelope.extra.apart):
            _check_reference(element, envelope)
        return cls(queue, element, envelope)

    @property
    def id(self) -> str:
        return self._envelope.id

    @property
    def tag(self) -> str:
        """The id and nonce, which identify this push of the message."""
        return f"{self._envelope.id} {self._envelope.nonce:x}"

    @property
    def body(self) -> bytes:
        """The body. Raises ReliqError for a message of a listing whose large body was not read."""
        if self._body is None:
            raise ReliqError(f"the body of message {self.id} has not been read: it is stored apart from the message")
        return self._body

    @property
    def size(self) -> int:
        """The bytes of the body, whether it has been read or not."""
        return int.from_bytes(self.reference[-4:]) if self.reference else len(self._envelope.body)

    @property
    def body_is_read(self) -> bool:
        return self._body is not None

    def with_body(self, body: bytes) -> Self:
        """Give the message the body that was read; returns the message."""
        self._body = body
        return self

    def opened(self, body: bytes) -> "Message":
        """Return this message with its body, for a handler. It is lost as soon as this one is."""
        return _Opened(self, self._envelope, body)

    @property
    def headers(self) -> dict[str, str]:
        """The headers. A handler may change them for itself; the message keeps those with which it was sent."""
        if self._headers is None:
            self._headers = self._envelope.headers.copy()
        return self._headers

    @property
    def deliveries(self) -> int:
        """How many consumers died while they held this message."""
        return self._envelope.deliveries

    @property
    def failures(self) -> int:
        """How many times the handler failed on this message."""
        return self._envelope.failures

    @property
    def redelivered(self) -> bool:
        """Whether a consumer died while it held this message."""
        return self._envelope.redelivered

    @property
    def together(self) -> int:
        """How many redelivered messages may run in a process while this one does; 0: any number."""
        return (self._envelope.extra or NO_EXTRA).together

    @property
    def was_started(self) -> bool:
        """Whether an earlier consumer may have reported about the message."""
        extra = self._envelope.extra
        return self.doubtful or self._envelope.redelivered or (extra is not None and extra.reported)

    @property
    def enqueued_at(self) -> int:
        """When the message was first sent: ms since the epoch, the producer's clock."""
        return self._envelope.enqueued_at

    @property
    def extra(self) -> Extra | None:
        """The fields that only some messages have; None for all others."""
        return self._envelope.extra

    @property
    def expires_at(self) -> int:
        """When the message expires: ms since the epoch, the Redis server's clock; 0 = never."""
        return (self._envelope.extra or NO_EXTRA).expires_at

    @property
    def routing_key(self) -> str:
        return (self._envelope.extra or NO_EXTRA).routing_key

    @property
    def limit_key(self) -> str:
        """The key whose limits this message shares: that of the send or, by default, the ordering key."""
        extra = self._envelope.extra or NO_EXTRA
        return extra.limit_key or extra.key

    @property
    def cost(self) -> int:
        """How much of `rate` and `key_rate` it takes when it starts."""
        cost = (self._envelope.extra or NO_EXTRA).cost
        return 1 if cost is None else round(cost)

    @property
    def key(self) -> str:
        """The ordering key: messages with the same key are handled one at a time, in the order they were sent."""
        return (self._envelope.extra or NO_EXTRA).key

    @property
    def group(self) -> str:
        """The digest of the key, or of the dedup key where the latest wins, as used in Redis; empty without both."""
        return (self._envelope.extra or NO_EXTRA).group

    @property
    def is_latest(self) -> bool:
        """Whether a newer message with its deduplication key replaces it."""
        return self.group.startswith(LATEST)

    @property
    def in_cycle(self) -> bool:
        """Whether the message's key is a member of the queue's cycle."""
        return (self._envelope.extra or NO_EXTRA).cycle

    @property
    def priority(self) -> str:
        """The priority: high, normal or low."""
        return (self._envelope.extra or NO_EXTRA).priority or "normal"

    @property
    def reason(self) -> str:
        return (self._envelope.extra or NO_EXTRA).reason

    @property
    def errors(self) -> tuple[Failure, ...]:
        """The failures so far, oldest first: the first one and the latest nine."""
        return (self._envelope.extra or NO_EXTRA).errors

    @property
    def cancelled(self) -> bool:
        """Whether the message was cancelled while in processing: a handler may check it and return."""
        life = self._life
        return life is not None and life.cancelled

    @property
    def state(self) -> Any:
        """The latest checkpoint, of this run or an earlier one."""
        life = self._life
        return None if life is None else read_state(life.state)

    def progress(self, fraction: float, text: str = "") -> Awaitable[None]:
        """Report the handler's progress, from 0 to 1; await it in async handlers. `text`: up to 1,000 bytes.

        Operators see it, and the message is not charged with a delivery if its worker dies now. At most ten reports a
        second are sent. Raises LeaseLost if this consumer no longer holds the message, and InvalidMessage.
        """
        return self._holder().report(self, checked_progress(fraction, text))

    def checkpoint(self, state: Any) -> Awaitable[None]:
        """Store a state for the next run of this message, as `message.state`; await it in async handlers.

        `state`: dicts, lists, texts, numbers, bytes, None; up to 1 MiB. It is deleted with the message, or a week after
        the latest report. Raises LeaseLost if this consumer no longer holds the message (then nothing is stored),
        InvalidMessage, RedisUnavailable, OutcomeUnknown and QueueFull.
        """
        return self._holder().report(self, checked_state(state))

    @property
    def _life(self) -> Life | None:
        return None if self.holder is None else self.holder.lives.get(self.element)

    def _holder(self) -> Holder:
        if self.holder is None:
            raise ReliqError(f"message {self.id} is not in processing here: only its consumer can report about it")
        return self.holder

    def json(self) -> Any:
        """Return the body decoded as JSON; raises InvalidMessage."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            why = f"{error}; a text is sent as it is, and message.body has it"
            raise InvalidMessage(f"the body of message {self.id} is not JSON: {why}") from None

    def again(self, **changes: Any) -> bytes:
        """Return the element of another push of this message: a new nonce and the given changes of the envelope."""
        return encode_envelope(self._renewed(changes))

    def pushed_again(self, **changes: Any) -> "Message":
        """Return the message that such a push makes."""
        envelope = self._renewed(changes)
        return Message(self.queue, encode_envelope(envelope), envelope)

    def _renewed(self, changes: dict[str, Any]) -> Envelope:
        life, starts_anew = self._life, self._envelope.redelivered and changes.get("redelivered") is False
        if starts_anew or self.doubtful or (life is not None and (life.stored or life.book is not None)):
            extra = changes.get("extra", self._envelope.extra) or NO_EXTRA
            together = 0 if starts_anew else extra.together
            changes["extra"] = msgspec.structs.replace(extra, reported=True, together=together)
        return msgspec.structs.replace(self._envelope, nonce=new_nonce(), **changes)

    def returned(self, deliveries: int, together: int = 0) -> bytes:
        """Return the element that goes back when the consumer of the message has died.

        `together`: of one that was redelivered, how many such messages may run with it from now on; 0: as before.
        """
        extra = self._envelope.extra
        if together and self.redelivered:
            extra = msgspec.structs.replace(extra or NO_EXTRA, together=min(together, self.together or together))
        return self.again(redelivered=True, deliveries=deliveries, extra=extra)

    def failed(self, failure: Failure, reason: str = "", charged: bool = True) -> bytes:
        """Return the element after a failure: one more in its history and, for a dead letter, the reason."""
        extra = self._envelope.extra or NO_EXTRA
        errors = _capped((*extra.errors, failure))
        return self.again(
            failures=min(self.failures + charged, values.MAX_COUNT),
            extra=msgspec.structs.replace(extra, errors=errors, reason=reason),
        )

    def buried(self, reason: str, deliveries: int | None = None) -> bytes:
        """Return the element of a dead letter that did not die of a handler's failure."""
        extra = msgspec.structs.replace(self._envelope.extra or NO_EXTRA, reason=reason)
        return self.again(extra=extra, deliveries=self.deliveries if deliveries is None else deliveries)

    def revived(self, keep_failures: bool, **changes: Any) -> bytes:
        """Return the element of a redriven dead letter: no reason, no expiry, no failures unless `keep_failures`."""
        extra = msgspec.structs.replace(self._envelope.extra or NO_EXTRA, reason="", expires_at=0)
        if keep_failures:
            return self.again(redelivered=False, deliveries=0, extra=extra, **changes)
        extra = msgspec.structs.replace(extra, errors=())
        extra_left = None if extra == NO_EXTRA else extra
        return self.again(redelivered=False, deliveries=0, failures=0, extra=extra_left, **changes)

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self.queue}: {self.size} bytes, failures={self.failures}>"


class _Opened(Message):
    """A message with its body, beside the one without that its consumer holds: the body goes when the handler ends."""

    __slots__ = ("_held", "_lost")

    def __init__(self, held: Message, envelope: Envelope, body: bytes) -> None:  # Message's would take twice as long
        self._held = held
        self._lost = False
        self._headers = None
        self._body = body
        self._envelope = envelope
        self.queue, self.element, self.reference, self.holder = held.queue, held.element, held.reference, held.holder
        self.doubtful = held.doubtful

    @property
    def lost(self) -> bool:
        return self._lost or self._held.lost

    @lost.setter
    def lost(self, lost: bool) -> None:
        self._lost = lost


def _check_reference(element: bytes, envelope: Envelope) -> None:
    """Raise Undecodable unless an element without body says, at its end, where the body is."""
    reference = (envelope.extra or NO_EXTRA).apart
    whole = envelope.version == APART and len(reference) == BODY_REFERENCE and not envelope.body
    if not whole or not element.endswith(_REFERENCE_HEAD + reference):
        raise Undecodable("the reference to its body is not where scripts look for it")


def wrapped(raw: bytes) -> tuple[str, bytes]:
    """Wrap bytes that do not decode into a dead letter; return its new id and its element."""
    identity = new_id()
    return identity, first_element(identity, time.time_ns() // 1_000_000, {}, raw, Extra(reason="decode"))


def undecodable_letter(raw: bytes) -> tuple[str, bytes]:
    """Return the id and the dead letter to store for bytes that do not decode; bytes too large to wrap stay bare."""
    return (new_id(), raw) if len(raw) > values.MAX_ELEMENT_BYTES else wrapped(raw)


def _capped(errors: tuple[Failure, ...]) -> tuple[Failure, ...]:
    """Return the first failure and the latest ones; of those in between only the first line of the error is kept."""
    if len(errors) > values.ERRORS_KEPT:
        errors = errors[:1] + errors[1 - values.ERRORS_KEPT :]
    between = [msgspec.structs.replace(one, text=cut(classed_gist(one), 200)) for one in errors[1:-1]]
    return errors[:1] + tuple(between) + errors[1:][-1:]
