"""A message as a list shows it: with its body, or with the first bytes of it and its size."""

from dataclasses import dataclass
from typing import Any, Self

from reliq.contract.values import MAX_ELEMENT_BYTES
from reliq.errors import ReliqError
from reliq.model.element import Failure, Undecodable
from reliq.model.message import Message, wrapped

_START = 1024  #: bytes shown of an element that is larger than any message

_BY_HAND = ("Dead", "Retry")  #: what a consumer by hand writes into the history


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What a script reads of an element for a list (reliq/lua/shared/glimpse.lua)."""

    element: bytes
    size: int = 0  #: 0: it is whole; bytes of the body of which only a part is left; minus the bytes of no element
    score: bytes = b"0"


class ListedMessage(Message):
    """A message of a sorted set, with its score."""

    __slots__ = ("_whole_size", "readable", "score")

    readable: bool  #: False if its bytes do not decode as a message of this version: `body` then holds those bytes
    score: str
    _whole_size: int  #: bytes of the body if only a part of it was read, else 0

    @classmethod
    def read(cls, queue: str, glimpse: Glimpse) -> Self:
        """Read what a script has read."""
        message = cls._decoded(queue, glimpse)
        readable = message is not None
        if message is None:  # written by another program, or by a newer version
            message = cls._of_bytes(queue, glimpse.element)
        message.readable = readable
        message._whole_size = abs(glimpse.size) or (0 if readable else len(glimpse.element))  # noqa: SLF001  its own
        message.score = glimpse.score.decode()
        return message

    @classmethod
    def _decoded(cls, queue: str, glimpse: Glimpse) -> Self | None:
        if glimpse.size < 0:
            return None
        try:
            return cls.decode(queue, glimpse.element)
        except Undecodable:
            return None

    @classmethod
    def _of_bytes(cls, queue: str, raw: bytes) -> Self:
        """Return a message with these bytes as its body, or with their start if they are larger than any message."""
        shown = raw if len(raw) < MAX_ELEMENT_BYTES - _START else raw[:_START]
        message = cls.decode(queue, wrapped(shown)[1])
        message.element = raw
        return message

    @property
    def size(self) -> int:
        """The bytes of the body, also if it was not read, or only a part of it."""
        return self._whole_size or super().size

    @property
    def preview(self) -> bytes:
        """The part of the body that was read, from its start on."""
        return self._body or b""

    @property
    def body(self) -> bytes:
        """The body; raises ReliqError if only a part of it was read."""
        if len(self.preview) < self.size:
            raise ReliqError(
                f"the body of message {self.id} ({self.size:,} bytes) was not read, only its first "
                f"{len(self.preview):,} bytes: list with bodies=True"
            )
        return self.preview

    def again(self, **changes: Any) -> bytes:
        # A message without its body must not be pushed again; one whose body is stored apart never has it.
        assert self.reference or self.body is not None  # noqa: S101
        return super().again(**changes)

    @property
    def last_error(self) -> Failure | None:
        return self.errors[-1] if self.errors else None

    def failed_with(self, error_class: str) -> bool:
        """Whether its last error is of this class, given with or without its module; reliq's own as users import it."""
        if self.last_error is None:
            return False
        whole = self.last_error.error_class
        name = whole.rpartition(".")[2]
        own = whole.startswith("reliq.") or whole in _BY_HAND
        return error_class in ((whole, name, f"reliq.{name}") if own else (whole, name))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue}: {self.size} bytes, failures={self.failures}>"


def summarized(message: ListedMessage, *names: str) -> dict[str, Any]:
    """Return these attributes of a message, and what its last error was, as a dict for JSON."""
    last = message.last_error
    error = {"error_class": last.error_class if last else "", "error": last.text if last else ""}
    return {**{name: getattr(message, name) for name in names}, **error}
