"""Kinds of values: how each is checked, written as text, and kept in Redis. A surface shows a value by its kind."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from reliq.contract import values
from reliq.errors import InvalidMessage


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. `check` raises InvalidSetting, InvalidMessage or InvalidName, naming the value."""

    noun: ClassVar[str]
    annotation: ClassVar[str] = "str"  #: what a caller in Python may give, None aside
    held: ClassVar[str] = "str"  #: what the library keeps of it

    @property
    def choices(self) -> tuple[str, ...]:
        """The words of which a value is one; empty for kinds with any other values."""
        return ()

    def check(self, value: Any, what: str) -> Any:
        raise NotImplementedError

    def text(self, value: Any) -> str:
        """Write a checked value as a person types it."""
        return str(value)

    def typed(self, text: str) -> int | str:
        """Return what a person has typed, or a header says, as `check` takes it."""
        return text

    def stored(self, value: Any) -> int | float | str:
        """Return a checked value as it is kept in Redis."""
        return value  # type: ignore[no-any-return]

    def loaded(self, text: str) -> Any:
        """Read what `stored` has written; raises ValueError for what another program has written."""
        return text


@dataclass(frozen=True, slots=True)
class Duration(Kind):
    """A length of time, kept in seconds."""

    shortest: float = 0.0
    longest: float = values.MAX_DELAY_SECONDS

    noun, annotation, held = "a number", "Duration", "float"

    def check(self, value: Any, what: str) -> float:
        return values.seconds(value, what, self.shortest, self.longest)

    def text(self, value: float) -> str:
        for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
            if value and value % length == 0:
                return f"{value // length:.0f}{unit}"
        return f"{value:g}s"

    def loaded(self, text: str) -> float:
        return float(text)


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """A whole number."""

    smallest: int
    largest: int

    noun, annotation, held = "a number", "int", "int"

    def check(self, value: Any, what: str) -> int:
        return values.whole(value, what, self.smallest, self.largest)

    def typed(self, text: str) -> int | str:
        digits = text.strip()
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else text

    def loaded(self, text: str) -> int:
        return int(text)


@dataclass(frozen=True, slots=True)
class Bytes(Kind):
    """A number of bytes, or a text such as "8MiB"."""

    smallest: int
    largest: int

    noun, annotation, held = "a number of bytes", "Size", "int"

    def check(self, value: Any, what: str) -> int:
        return values.size(value, what, self.smallest, self.largest)

    def loaded(self, text: str) -> int:
        return int(text)


@dataclass(frozen=True, slots=True)
class Tokens(Whole):
    """A whole number of tokens of a rate."""


@dataclass(frozen=True, slots=True)
class Rate(Kind):
    """A number of messages in a unit of time, such as "100/s"."""

    noun = "a rate"
    check = staticmethod(values.rate)


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """Yes or no. In Redis, a flag that is off is not there."""

    noun, annotation, held = "true or false", "bool", "bool"

    @property
    def choices(self) -> tuple[str, ...]:
        return "false", "true"

    check = staticmethod(values.yes_or_no)

    def text(self, value: bool) -> str:
        return "true" if value else "false"

    def stored(self, value: bool) -> int:
        return int(value)

    def loaded(self, text: str) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Weights(Kind):
    """Whole numbers from 1 to 100 by limit key."""

    noun, annotation, held = "weights by key", "Mapping[str, int]", "dict[str, int]"

    check = staticmethod(values.weights)

    def text(self, value: Mapping[str, int]) -> str:
        return ",".join(f"{key}:{weight}" for key, weight in value.items())

    def stored(self, value: Mapping[str, int]) -> str:
        return json.dumps(value)

    def loaded(self, text: str) -> dict[str, int]:
        return values.weights(json.loads(text), "weights")


@dataclass(frozen=True, slots=True)
class Durability(Kind):
    """Where a message must be stored before its send returns."""

    noun = "a durability"
    check = staticmethod(values.durability)


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A text of at most so many bytes of UTF-8. `longest=None`: as long as a body may be."""

    longest: int | None = values.MAX_KEY_BYTES

    noun = "a text"

    def check(self, value: Any, what: str) -> str:
        """Return the text; without a limit, only what is no text or empty is refused."""
        if self.longest is None:
            if isinstance(value, str) and value:
                return value
            raise InvalidMessage(f"{what} is {value!r}: it must be a text that is not empty")
        try:
            if isinstance(value, str) and 0 < len(value.encode()) <= self.longest:
                return value
        except UnicodeEncodeError:
            pass
        raise InvalidMessage(f"{what} is {values.cut(repr(value), 80)}: a text of 1 to {self.longest} bytes of UTF-8")


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of some words."""

    words: tuple[str, ...]

    noun = "a choice"

    @property
    def choices(self) -> tuple[str, ...]:
        return self.words

    def check(self, value: Any, what: str) -> str:
        if value in self.words:
            return value  # type: ignore[no-any-return]
        raise InvalidMessage(f"{what} is {value!r}: it is one of {', '.join(self.words)}")


@dataclass(frozen=True, slots=True)
class Identity(Kind):
    """The id of a message."""

    noun = "an id"

    def check(self, value: Any, what: str = "message id") -> str:
        return values.check_id(value)


def _no_texts(headers: Any) -> str:
    """Return which part of headers is no text; it quotes names, no values."""
    if not isinstance(headers, Mapping):
        return f"they are of type {type(headers).__name__}"
    for name, value in headers.items():
        if not isinstance(name, str):
            return f"the name {values.cut(repr(name), 80)} is of type {type(name).__name__}"
        if not isinstance(value, str):
            return f"the value of {values.cut(repr(name), 80)} is of type {type(value).__name__}"
    return "one has half of a surrogate pair"


@dataclass(frozen=True, slots=True)
class Headers(Kind):
    """Texts by name."""

    noun, annotation, held = "headers", "Mapping[str, str]", "dict[str, str]"

    def check(self, value: Any, what: str = "headers") -> dict[str, str]:
        try:
            checked: dict[str, str] = {**value}
            size = sum(len(name.encode()) + len(text.encode()) for name, text in checked.items())
        except (AttributeError, TypeError, ValueError):
            raise InvalidMessage(
                f"headers must map texts to texts, all of them valid Unicode; {_no_texts(value)}"
            ) from None
        if "" in checked:
            raise InvalidMessage("a header has an empty name")
        if size > values.MAX_HEADERS_BYTES:
            raise InvalidMessage(f"the headers take {size} bytes, the limit is {values.MAX_HEADERS_BYTES}")
        return checked
