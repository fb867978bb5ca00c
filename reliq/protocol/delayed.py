"""The steps that list delayed messages."""

from collections.abc import Iterator
from dataclasses import dataclass

from reliq.model.delayed_message import DelayedMessage
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.protocol.listing import Part, merged_page, read_page
from reliq.protocol.partitions import Partitions


@dataclass(frozen=True, slots=True)
class DelayedPage:
    """A page of delayed messages, soonest first; `next` is the cursor of the following page, None at the end."""

    messages: list[DelayedMessage]
    next: str | None

    def __iter__(self) -> Iterator[DelayedMessage]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, place: int) -> DelayedMessage:
        return self.messages[place]


def delayed_page(keys: QueueKeys, limit: int, cursor: str | None, failed: bool, bodies: bool) -> Steps[DelayedPage]:
    """Read up to `limit` messages from `cursor` on; with `failed`, only those with a failed run."""
    wanted = _has_failed if failed else None
    messages, following = yield from read_page(
        DelayedMessage, keys, keys.delayed, "up", ("-inf", "+inf"), limit, cursor, bodies, wanted
    )
    return DelayedPage(messages, following)


def delayed_of_queue(
    partitions: Partitions, limit: int, cursor: str | None, failed: bool, bodies: bool
) -> Steps[DelayedPage]:
    """Read up to `limit` messages of all partitions of a queue, from `cursor` on."""

    def read(keys: QueueKeys, limit: int, cursor: str | None, bodies: bool) -> Steps[Part[DelayedMessage]]:
        page = yield from delayed_page(keys, limit, cursor, failed, bodies)
        return page.messages, page.next

    messages, following = yield from merged_page(partitions, read, "up", limit, cursor, bodies)
    return DelayedPage(messages, following)


def _has_failed(message: DelayedMessage) -> bool:
    return message.failures > 0
