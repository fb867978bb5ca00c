"""What a consumer knows of a message beyond its element: whether it was cancelled, and what its handler reports."""

from collections.abc import Awaitable, Coroutine, Iterator
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, Protocol

import msgspec

from reliq.errors import InvalidMessage

MAX_STATE_BYTES = 1024 * 1024
MAX_TEXT_BYTES = 1000
EVERY = 0.1  #: seconds between two reports of a message's progress; those in between are not sent

_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


class Life:
    """What is known of one held message."""

    __slots__ = ("book", "calls", "cancelled", "charged", "reported_at", "state", "stored", "to_await")

    def __init__(self, state: bytes | None = None, stored: bool = False) -> None:
        self.cancelled = self.charged = False
        self.state = state  #: the latest checkpoint, MessagePack
        self.stored = stored  #: whether Redis has a report of the message
        self.reported_at = float("-inf")  #: by time.monotonic()
        self.book: Any = None  #: what a feature knows of the record of the message
        self.calls: Iterator[str] | None = None  #: tokens of its handler's calls that append something
        self.to_await: list[tuple[str, Coroutine[Any, Any, Any]]] = []  #: with the method of the message

    def note_call(self, method: str, call: Coroutine[Any, Any, Any]) -> None:
        """Note a call that an async handler is to await; of those before, the oldest that it awaits are forgotten."""
        while self.to_await and getcoroutinestate(self.to_await[0][1]) != CORO_CREATED:
            self.to_await.pop(0)
        self.to_await.append((method, call))

    def check_awaited(self) -> None:
        """Raise TypeError if a handler that has ended has left out an await: an ack would lose what it asked for."""
        left = [(method, call) for method, call in self.to_await if getcoroutinestate(call) == CORO_CREATED]
        for _, call in left:
            call.close()
        if left:
            method, _ = left[0]
            raise TypeError(f"the handler does not await message.{method}(), which has not run: write await before it")


class Report:
    """What a handler reports: how far it is, and what it can go on from."""

    __slots__ = ("fraction", "state", "text")

    def __init__(self, fraction: float | None = None, text: str = "", state: bytes | None = None) -> None:
        self.fraction = fraction
        self.text = text
        self.state = state


class Lives(Protocol):
    """The lives of held messages, by element; most of them have none."""

    def get(self, element: bytes, /) -> Life | None: ...


class Holder(Protocol):
    """The consumer of a message."""

    @property
    def lives(self) -> Lives: ...

    def report(self, message: Any, report: Report) -> Awaitable[None]:
        """Store a report; raises LeaseLost if the message is not this consumer's any more. None in sync handlers."""

    def act(self, message: Any, asked: Any) -> Any:
        """Do what a handler asks of a feature; to be awaited in async handlers."""


def checked_progress(fraction: object, text: object) -> Report:
    """Return the report; raises InvalidMessage."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
        raise InvalidMessage(f"progress is {fraction!r}: give a number from 0 to 1, such as 0.4 for 40 %")
    if not isinstance(text, str):
        raise InvalidMessage(f"the text of a progress is {text!r}: give a text such as 'page 12 of 30'")
    return Report(float(fraction), text.encode("utf-8", "replace")[:MAX_TEXT_BYTES].decode("utf-8", "ignore"))


def checked_state(state: object) -> Report:
    """Return the report; raises InvalidMessage for a state that is too large, or of a type that is not stored."""
    try:
        encoded = _encode(state)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidMessage(
            f"a checkpoint of type {type(state).__name__} cannot be stored: {error}; use dicts, lists, texts, numbers, "
            "bytes, None"
        ) from None
    if len(encoded) > MAX_STATE_BYTES:
        raise InvalidMessage(
            f"the checkpoint has {len(encoded):,} bytes, the limit is {MAX_STATE_BYTES:,}: store it elsewhere, and a "
            "reference to it here"
        )
    return Report(state=encoded)


def read_state(state: bytes | None) -> Any:
    """Return what was given to checkpoint; None without one."""
    return None if state is None else _decode(state)
