"""The steps that read a page of a sorted set of messages, in calls that keep Redis busy for a short time only."""

import re
from collections.abc import Callable
from typing import Literal, TypeVar

from reliq import ops
from reliq.errors import InvalidSetting
from reliq.model.keys import QueueKeys
from reliq.model.listed_message import Glimpse, ListedMessage
from reliq.model.settings import whole
from reliq.ops import Steps
from reliq.protocol.bodies import read_bodies

STEP = 250  #: messages read in one call: under 1 ms for Redis
_STEP_LEAST = 50
_PAGE_BYTES = 64 * 1024 * 1024  #: of bodies on a page, or one larger body
_CURSOR = re.compile(r"(-?(?:inf|\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)):(\d{1,9})", re.ASCII)

M = TypeVar("M", bound=ListedMessage)


def read_by_id(keys: QueueKeys, zset: str, identity: str, shown: int | None = None) -> Steps[Glimpse | None]:
    """Read the entry of a message through the index; None if there is none. `shown`: bytes of its body; None: all."""
    skip = 0
    while True:
        found = yield ops.find(keys, zset, identity, skip, shown)
        if not isinstance(found, int):
            return found  # type: ignore[no-any-return]
        skip = found


def _read_cursor(cursor: str) -> tuple[str, int]:
    """Return the score and the number of messages of that score to skip; raises InvalidSetting."""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise InvalidSetting(f"after is {cursor!r}: give the `next` of the page before")
    return found[1], int(found[2])


def read_page(
    kind: type[M],
    keys: QueueKeys,
    zset: str,
    order: Literal["up", "down"],
    scores: tuple[str, str],
    limit: int,
    cursor: str | None,
    bodies: bool,
    wanted: Callable[[M], bool] | None = None,
) -> Steps[tuple[list[M], str | None]]:
    """Read up to `limit` wanted messages and the cursor of the next page, None at the end.

    Without `bodies`, large bodies stay in Redis. With them, a page ends before `limit` when it has 64 MiB of them, and
    the body of a message that is not wanted is not read.
    """
    whole(limit, "limit", 1, 100_000)
    edge, skip = scores[order == "down"], 0  # the cursor: the latest score, and how many messages of it were read
    if cursor is not None:
        edge, skip = _read_cursor(cursor)
    first_look = None if bodies and wanted is None else 0
    look, step = first_look, min(STEP, max(_STEP_LEAST, limit))
    found: list[M] = []
    size, following, more = 0, None, True
    while more:
        low, high = (edge, scores[1]) if order == "up" else (scores[0], edge)
        browsed = yield ops.browse(zset, order, low, high, step, skip, look)
        read_whole, look, step = look is None, first_look, min(STEP, max(_STEP_LEAST, limit))
        for glimpse in browsed.found:
            message = kind.read(keys.queue, glimpse)
            selected = wanted is None or wanted(message)
            if selected and bodies and glimpse.size and not read_whole:
                look, step = None, 1  # read this one again, with its body
                break
            skip = skip + 1 if message.score == edge else 1
            edge = message.score
            if selected:
                found.append(message)
                size += message.size
                if len(found) == limit or (bodies and size >= _PAGE_BYTES):
                    following, more = f"{edge}:{skip}", False
                    break
        else:
            more = browsed.more
    if bodies:
        yield from read_bodies(keys, found)  # those that are stored apart
    return found, following
