"""Delayed messages: list what waits for its first delivery or for a retry, with the error it waits for.

The set is read in bounded pages, so that no call blocks Redis, however many there are.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reliq import ops
from reliq.dead_letters import read_cursor
from reliq.keys import QueueKeys
from reliq.message import Failure, Message, Undecodable, wrapped
from reliq.ops import Steps
from reliq.settings import whole
from reliq.store import Store

if TYPE_CHECKING:
    from reliq.aiostore import AioStore

_PAGE = 500
_STEP_LEAST = 50
_LATEST = 2**53  #: ms; a score beyond it was put there by another program


class DelayedMessage(Message):
    """A message that waits until it is due."""

    __slots__ = ("due_at", "readable", "score")

    due_at: int  #: ms since the epoch, the Redis server's clock
    readable: bool  #: False when its bytes are no message of this version: then `body` has them
    score: str

    @classmethod
    def read(cls, queue: str, element: bytes, score: bytes) -> "DelayedMessage":
        """Read an element of the delayed set with its score."""
        try:
            message = cls.decode(queue, element)
            message.readable = True
        except Undecodable:  # put there by another program, or by a newer version
            message = cls.decode(queue, wrapped(element)[1])
            message.readable = False
        message.score = score.decode()
        due = float(score)
        message.due_at = int(due) if math.isfinite(due) and abs(due) <= _LATEST else _LATEST
        return message

    @property
    def last_error(self) -> Failure | None:
        return self.errors[-1] if self.errors else None

    def summary(self) -> dict[str, Any]:
        """What a program or a page shows of it, without the body."""
        last = self.last_error
        return {
            "id": self.id if self.readable else "",
            "queue": self.queue,
            "routing_key": self.routing_key,
            "key": self.key,
            "due_at": self.due_at,
            "enqueued_at": self.enqueued_at,
            "failures": self.failures,
            "deliveries": self.deliveries,
            "headers": self.headers,
            "size": len(self.body),
            "error_class": last.error_class if last else "",
            "error": last.text if last else "",
            "failed_at": last.at if last else None,
        }


@dataclass(frozen=True, slots=True)
class DelayedPage:
    """Some delayed messages, due soonest first; `next` continues behind them, None at the end."""

    messages: list[DelayedMessage]
    next: str | None

    def __iter__(self) -> Iterator[DelayedMessage]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, place: int) -> DelayedMessage:
        return self.messages[place]


def delayed_page(keys: QueueKeys, limit: int, cursor: str | None, failed: bool) -> Steps[DelayedPage]:
    """Read up to `limit` messages behind `cursor`; with `failed` only those that a handler has failed on."""
    whole(limit, "limit", 1, 100_000)
    earliest, skip = ("-inf", 0) if cursor is None else read_cursor(cursor)
    messages: list[DelayedMessage] = []
    step = max(_STEP_LEAST, min(_PAGE, limit))  # bodies may be large: not many more than are wanted
    while True:
        reply = yield ops.command(
            "ZRANGEBYSCORE", keys.delayed, earliest, "+inf", "WITHSCORES", "LIMIT", skip, step
        )  # fmt: skip
        for element, score in zip(reply[::2], reply[1::2], strict=True):
            message = DelayedMessage.read(keys.queue, element, score)
            skip = skip + 1 if message.score == earliest else 1
            earliest = message.score
            if message.failures or not failed:
                messages.append(message)
                if len(messages) == limit:
                    return DelayedPage(messages, f"{earliest}:{skip}")
        if len(reply) < 2 * step:
            return DelayedPage(messages, None)


class Delayed:
    """The delayed messages of one queue: `queue.delayed`."""

    def __init__(self, store: Store, keys: QueueKeys) -> None:
        self._store = store
        self._keys = keys

    def list(self, *, limit: int = 50, after: str | None = None, failed: bool = False) -> DelayedPage:
        """Delayed messages, due soonest first; `after` is the `next` of the page before.

        `failed`: only messages that wait for a retry; `last_error` says why.
        """
        return self._store.run(delayed_page(self._keys, limit, after, failed))


class AioDelayed:
    """The delayed messages of one queue; see Delayed."""

    def __init__(self, store: "AioStore", keys: QueueKeys) -> None:
        self._store = store
        self._keys = keys

    async def list(self, *, limit: int = 50, after: str | None = None, failed: bool = False) -> DelayedPage:
        return await self._store.run(delayed_page(self._keys, limit, after, failed))
