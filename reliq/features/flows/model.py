"""A flow as its producer knows it: messages, and which of them wait for which."""

from collections.abc import Iterable
from typing import NamedTuple

from reliq.errors import InvalidSetting
from reliq.features.flows.ops import line_key
from reliq.model.outgoing import NewMessage

MOST_BEHIND = 1000  #: messages that may wait for one: its ack releases all of them


class Member(NamedTuple):
    """A message of a flow; others name it in `after`."""

    queue: str
    id: str


class Plan:
    """The messages of a flow, before they are sent."""

    def __init__(self) -> None:
        self.queue = ""
        self.first: list[NewMessage] = []  #: those that wait for none
        self.waiting: list[tuple[NewMessage, list[str]]] = []
        self._ids: set[str] = set()
        self._behind: dict[str, int] = {}

    def add(self, queue: str, message: NewMessage, after: Iterable[Member]) -> Member:
        """Add a message; raises InvalidSetting. What it waits for was added before, so there is no cycle."""
        before = list(dict.fromkeys(after))
        if self.queue not in ("", queue):
            raise InvalidSetting(f"a flow has messages of one queue, this one those of {self.queue!r}, not {queue!r}")
        for one in before:
            if one.id not in self._ids:
                raise InvalidSetting(f"after names message {one.id}, which is not of this flow: send it in this block")
            self._behind[one.id] = self._behind.get(one.id, 0) + 1
            if self._behind[one.id] > MOST_BEHIND:
                raise InvalidSetting(f"more than {MOST_BEHIND:,} messages wait for {one.id}: put one between them")
        if before and (message.key or message.limit_key or message.replace or message.delay):
            raise InvalidSetting("a message that waits in a flow has no key, limit_key, replace or delay of its own")
        self.queue = queue
        self._ids.add(message.id)
        if before:
            message.key = line_key(message.id)
            message.headers["after"] = " ".join(one.id for one in before)
            self.waiting.append((message, [one.id for one in before]))
        else:
            self.first.append(message)
        return Member(queue, message.id)
