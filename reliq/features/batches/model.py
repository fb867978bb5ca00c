"""Batches: messages that are counted together, so that one message follows when all of them have ended."""

import base64
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import msgspec

from reliq.errors import InvalidMessage, InvalidSetting
from reliq.model.keys import check_name
from reliq.model.outgoing import Body, NewMessage
from reliq.model.upgrades import stamp

MAX_END_BYTES = 64 * 1024  #: of the body of the message at the end


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a batch in one queue, or of all of them."""

    open: int = 0
    sent: int = 0
    dead: int = 0
    cancelled: int = 0

    @property
    def handled(self) -> int:
        return self.sent - self.open - self.dead - self.cancelled

    def all_cancelled(self) -> "Counts":
        """Return the counts after the cancellation of all messages that have not ended."""
        return Counts(0, self.sent, self.dead, self.cancelled + self.open)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.open + other.open, self.sent + other.sent, self.dead + other.dead, self.cancelled + other.cancelled
        )


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How far a batch is: how many of its messages were sent, and how they ended. `opened_at`: ms since the epoch."""

    id: str
    state: str  #: open (its producer may add messages), closed or abandoned
    opened_at: int  #: ms since the epoch, the Redis server's clock
    sent: int
    handled: int
    dead: int
    cancelled: int
    batches: int  #: of its own that have not ended

    @property
    def open(self) -> int:
        """How many messages have not ended."""
        return self.sent - self.handled - self.dead - self.cancelled

    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON, with `open`."""
        return {**asdict(self), "open": self.open}


class End(msgspec.Struct, array_like=True, frozen=True):
    """The message that is sent when a batch has ended."""

    queue: str
    id: str
    headers: dict[str, str]
    body: bytes


State = Literal["open", "closed", "abandoned"]
OPEN, CLOSED, ABANDONED = get_args(State)
Target = tuple[str, Body | NewMessage]  #: a queue, and what is sent there

encode_end = msgspec.msgpack.Encoder().encode
decode_end = msgspec.msgpack.Decoder(End).decode


def new_batch_id() -> str:
    """Return about 72 random bits, as 12 characters."""
    text = base64.urlsafe_b64encode(secrets.token_bytes(9)).decode()
    return "0" + text[1:] if text.startswith("-") else text  # a command would read it as an option


def checked_end(target: Target | None, what: str, versions: Mapping[str, int]) -> bytes:
    """Return the message at the end as it is stored; empty without one. Raises InvalidSetting and InvalidMessage.

    `versions`: of the bodies that the application sends, by queue.
    """
    if target is None:
        return b""
    if not (isinstance(target, tuple) and len(target) == 2):
        raise InvalidSetting(f'{what} is {target!r}: give a queue and a body, such as ("reports", {{"month": 11}})')
    queue, body = target
    message = body if isinstance(body, NewMessage) else NewMessage(body)
    if message.placed or message.ttl is not None:
        raise InvalidMessage(f"{what} has options of a send: it may have a body, headers and an id")
    if len(message.body) > MAX_END_BYTES:
        raise InvalidMessage(f"the body of {what} has {len(message.body):,} bytes, the limit is {MAX_END_BYTES:,}")
    stamp([message], versions.get(queue, 1))
    return encode_end(End(check_name(queue), message.id, message.headers, message.body))
