"""The op that looks for a text in a part of one place of a queue."""

from dataclasses import dataclass
from typing import Any

from reliq.features.tracking import signatures
from reliq.model.keys import QueueKeys
from reliq.model.listed_message import Glimpse
from reliq.ops.browse import GROUP_AND_TURN
from reliq.ops.request import Op, scripted

SEARCH = 500  #: entries that one call looks at: 1 ms for Redis, where they are small
SEARCH_BYTES = 1024 * 1024  #: of entries and bodies, after which a call looks at no more
SEARCH_BODY = 256 * 1024  #: the largest body apart from its element that is looked at
_AROUND = 60  #: bytes before and after the text that a match has


@dataclass(frozen=True, slots=True)
class SearchPage:
    """The reply of the search script: what a part of a place has, and where the next begins, None at the end.

    `matches`: what contains the text, each with the part of its body apart that does. `unread`: bodies too large.
    """

    following: int | None
    looked: int
    read: int  #: bytes
    unread: int
    matches: list[tuple[Glimpse, bytes]]


def search(keys: QueueKeys, place: str, start: int, text: bytes, most: int, shown: int) -> Op[SearchPage]:
    """Look for a text in up to `most` entries of a list or sorted set, from the newest on, after the first `start`."""
    call = signatures.search(
        keys,
        key=place,
        start=start,
        most=min(most, SEARCH),
        most_bytes=SEARCH_BYTES,
        before=GROUP_AND_TURN if place == keys.waiting else 0,
        text=text,
        shown=shown,
        largest=SEARCH_BODY,
        around=_AROUND,
        sorted=place in (keys.waiting, keys.delayed, keys.dead),
    )
    return scripted(call, _read_seen)


def _read_seen(reply: list[Any]) -> SearchPage:
    following, looked, read, unread, *rest = reply
    rows = zip(rest[::4], rest[1::4], rest[2::4], rest[3::4], strict=True)
    matches = [(Glimpse(part, size, score), excerpt) for score, size, part, excerpt in rows]
    return SearchPage(None if following < 0 else following, looked, read, unread, matches)
