"""The steps that read a page of a sorted set of messages, in calls that keep Redis busy for a short time only."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Literal, Protocol, TypeVar

from reliq import ops
from reliq.contract.values import whole
from reliq.errors import InvalidMessage, InvalidSetting, ReliqError
from reliq.model.dead_letter import DeadLetter
from reliq.model.keys import QueueKeys
from reliq.model.listed_message import Glimpse, ListedMessage
from reliq.model.outgoing import check_headers as checked_headers
from reliq.ops import Steps, Together
from reliq.protocol.bodies import read_bodies, read_starts
from reliq.protocol.homes import QueueHomes

STEP = 250  #: messages read in one call: under 1 ms for Redis
_STEP_LEAST = 50
_PAGE_BYTES = 64 * 1024 * 1024  #: of bodies on a page, or one larger body
_CURSOR = re.compile(r"(-?(?:inf|\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)):(\d{1,9})", re.ASCII)

M = TypeVar("M", bound=ListedMessage)
Position = tuple[str, int]  #: a score, and how many messages with it lie before
Part = tuple[list[M], str | None]  #: a page of one home, and the cursor of the next one


def read_by_id(keys: QueueKeys, zset: str, identity: str, shown: int | None) -> Steps[Glimpse | None]:
    """Read the entry of a message through the index; None if there is none. `shown`: bytes of its body; None: all."""
    skip = 0
    while True:
        found = yield ops.find(keys, zset, identity, skip, shown)
        if not isinstance(found, int):
            return found  # type: ignore[no-any-return]
        skip = found


def _read_cursor(cursor: object) -> tuple[str, int]:
    """Return the score and the number of messages of that score to skip; raises InvalidSetting."""
    found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise InvalidSetting(f"after is {cursor!r}: give the `next` of the page before")
    return found[1], int(found[2])


def check_headers(headers: object) -> dict[str, str]:
    """Return the headers of a filter; raises InvalidSetting."""
    try:
        return checked_headers({} if headers is None else headers)  # type: ignore[arg-type]
    except InvalidMessage as error:
        raise InvalidSetting(f"a filter by headers: {error}") from None


class ReadPage(Protocol[M]):
    """Reads a page of one home."""

    def __call__(self, keys: QueueKeys, limit: int, cursor: str | None, bodies: bool) -> Steps[Part[M]]: ...


_START, _END = "-", "."  #: of a home, in the cursor of a queue with several


def merged_page(
    homes: QueueHomes,
    read: ReadPage[M],
    order: Literal["up", "down"],
    limit: int,
    cursor: str | None,
    bodies: bool,
) -> Steps[Part[M]]:
    """Read a page of the messages of all homes, and the cursor of the next page: those of the homes.

    `read` takes the keys of a home, the limit, its cursor and `bodies`.
    """
    every = [one.keys for one in (yield from homes.every())]
    if len(every) == 1:
        return (yield from read(every[0], limit, cursor, bodies))
    cursors = str(cursor).split(",") if cursor else [_START] * len(every)
    if len(cursors) != len(every):
        raise InvalidSetting(f"after is {cursor!r}, and the queue has changed since: begin again with the first page")
    unread = [place for place, one in enumerate(cursors) if one != _END]
    starts = {place: None if cursors[place] == _START else cursors[place] for place in unread}
    answers = yield Together([read(every[place], limit, starts[place], bodies) for place in unread])
    homes.seen({every[place].queue: answer for place, answer in zip(unread, answers, strict=True)})
    pages = {place: answer for place, answer in zip(unread, answers, strict=True) if not isinstance(answer, ReliqError)}
    taken = _first_of(pages, order, limit)
    for place, (found, following) in pages.items():
        count = sum(one == place for one, _ in taken)
        if count == len(found):
            cursors[place] = following or _END
        elif count:
            _, following = yield from read(every[place], count, starts[place], bodies=False)
            cursors[place] = following or _END
    more = any(cursors[place] != _END for place in pages)  # a home that does not answer has no next page
    return [message for _, message in taken], ",".join(cursors) if more else None


def _first_of(pages: Mapping[int, Part[M]], order: Literal["up", "down"], limit: int) -> list[tuple[int, M]]:
    """Return the first messages of several pages, each with the place of its page, as far as their order is known."""
    sign = -1 if order == "down" else 1
    marked = [(place, message) for place, (found, _) in pages.items() for message in found]
    marked.sort(key=lambda one: sign * float(one[1].score))
    last = {place: found[-1] for place, (found, following) in pages.items() if found and following is not None}
    for index, (place, message) in enumerate(marked):
        if index + 1 == limit or message is last.get(place):  # what follows on the page after it is not known
            return marked[: index + 1]
    return marked


def read_page(
    kind: type[M],
    keys: QueueKeys,
    zset: str,
    order: Literal["up", "down"],
    scores: tuple[str, str],
    limit: int,
    cursor: str | None,
    bodies: bool,
    wanted: Callable[[M], bool] | None,
    start: int = 0,
) -> Steps[tuple[list[M], str | None]]:
    """Read up to `limit` wanted messages and the cursor of the next page, None at the end.

    Without `bodies`, only the first `start` bytes of each body are read. With them, a page ends before `limit` when it
    has 64 MiB of them, and the body of a message that is not wanted is not read.
    """
    whole(limit, "limit", 1, 100_000)
    edge, skip = scores[order == "down"], 0  # the cursor: the latest score, and how many messages of it were read
    if cursor is not None:
        edge, skip = _read_cursor(cursor)
    first_look = start if not bodies else None if wanted is None else 0
    look, step = first_look, min(STEP, max(_STEP_LEAST, limit))
    found: list[M] = []
    size, following, more = 0, None, True
    while more:
        low, high = (edge, scores[1]) if order == "up" else (scores[0], edge)
        browsed = yield ops.browse(zset, order, low, high, step, skip, look)
        read_whole, look, step = look is None, first_look, min(STEP, max(_STEP_LEAST, limit))
        for glimpse in browsed.found:
            message = kind.read(keys.logical, glimpse)
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
    else:
        yield from read_starts(keys, found, start)
    return found, following


def walk(
    kind: type[M],
    keys: QueueKeys,
    zset: str,
    scores: tuple[str, str],
    wanted: Callable[[M], bool],
    act: Callable[[list[M]], Steps[bool]],
    removing: bool | Collection[bytes],
    shown: int | None = None,
    start: Position | None = None,
) -> Steps[Position | None]:
    """Pass the wanted messages between two scores to `act`, part by part, lowest score first, until it returns False.

    Returns where it may go on (`start`) if others lie behind, else None. `removing`: `act` takes what it is given out
    of these scores; or the elements that it has taken out so far. `shown`: bytes of the bodies that it needs.
    """
    edge, latest = scores
    passed = 0  # messages with the score `edge` that were looked at and are still there
    if start is not None:
        edge, passed = start
    while True:
        browsed = yield ops.browse(zset, "up", edge, latest, STEP, passed, shown)
        found = [kind.read(keys.logical, glimpse) for glimpse in browsed.found]
        matching = [message for message in found if wanted(message)]
        goes_on = not matching or (yield from act(matching))
        if not browsed.more:
            return None
        gone = removing
        if isinstance(gone, bool):
            gone = {message.element for message in matching} if removing else ()
        last = found[-1].score
        staying = sum(message.score == last and message.element not in gone for message in found)
        edge, passed = last, staying + (passed if last == edge else 0)
        if not goes_on:
            return edge, passed


def read_letter(keys: QueueKeys, identity: str) -> Steps[DeadLetter | None]:
    """Return the dead letter with this id, without its body."""
    glimpse = yield from read_by_id(keys, keys.dead, identity, shown=0)
    return None if glimpse is None else DeadLetter.read(keys.logical, glimpse)
