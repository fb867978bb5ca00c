"""The messages of a queue that contain a text, and how much of the queue was looked at."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reliq.features.tracking.model import Found
from reliq.model.listed_message import ListedMessage

_AROUND = 60  #: characters before and after the text


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that contains the text."""

    found: Found  #: the message without its body, and its place
    where: str  #: the first of these that has the text: id, header, key, routing key, error, body
    excerpt: str  #: the text with what is around it, in one line; empty if it lies deep in a large body

    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON."""
        return {"where": self.where, "excerpt": self.excerpt, **self.found.summary()}


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search has found. Iterate over it for the hits."""

    hits: list[Hit]
    looked: int  #: messages that were looked at
    total: int  #: messages in the places that were searched
    unread: int  #: messages of which the body was too large to be looked at

    @property
    def complete(self) -> bool:
        """Whether all messages were looked at, with their bodies."""
        return self.looked >= self.total and not self.unread

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def sentence(self) -> str:
        """Say how much of the queue was looked at."""
        text = f"looked through {self.looked:,} of {self.total:,} messages"
        if self.looked < self.total:
            text += ", the newest of each place"
        too_large = f"; the bodies of {self.unread:,} were not, because they are larger than 256 KiB"
        return text + too_large if self.unread else text

    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON."""
        hits = [one.summary() for one in self.hits]
        about = {"looked": self.looked, "total": self.total, "unread_bodies": self.unread, "complete": self.complete}
        return {"messages": hits, **about}


def where_is(text: str, message: ListedMessage, apart: bytes) -> tuple[str, str] | None:
    """Return what of a message has the text, and the excerpt; None if none of what a user has given it does.

    `apart`: the part of its body that has the text, if that is stored apart.
    """
    for where, value in _fields(message):
        if text in value:
            return where, _around(text, value)
    body = (apart or message.preview).decode("utf-8", "replace")
    if text in body:
        return "body", _around(text, body)
    return ("body", "") if not message.reference and len(message.preview) < message.size else None


def _fields(message: ListedMessage) -> Iterator[tuple[str, str]]:
    if not message.readable:
        return
    yield "id", message.id
    for name, value in message.headers.items():
        yield "header", f"{name}={value}"
    yield "key", message.key or message.limit_key
    yield "routing key", message.routing_key
    for error in message.errors:
        yield "error", error.text


def _around(text: str, value: str) -> str:
    at = value.index(text)
    start, end = max(0, at - _AROUND), at + len(text) + _AROUND
    return " ".join(("…" * (start > 0) + value[start:end] + "…" * (end < len(value))).split())
