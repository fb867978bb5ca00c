"""The steps that list delayed messages."""

from collections.abc import Iterator
from dataclasses import dataclass

from reliq import ops
from reliq.model.delayed_message import DelayedMessage
from reliq.model.keys import QueueKeys
from reliq.model.settings import whole
from reliq.ops import Steps
from reliq.protocol.dead_letters import read_cursor

_PAGE = 500
_STEP_LEAST = 50


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


def delayed_page(keys: QueueKeys, limit: int, cursor: str | None, failed: bool) -> Steps[DelayedPage]:
    """Read up to `limit` messages from `cursor` on; with `failed`, only those with a failed run."""
    whole(limit, "limit", 1, 100_000)
    earliest, skip = ("-inf", 0) if cursor is None else read_cursor(cursor)
    messages: list[DelayedMessage] = []
    step = max(_STEP_LEAST, min(_PAGE, limit))  # bodies may be large: not many more than wanted
    while True:
        found = yield ops.by_score(keys.delayed, earliest, "+inf", step, skip)
        for element, score in found:
            message = DelayedMessage.read(keys.queue, element, score)
            skip = skip + 1 if message.score == earliest else 1
            earliest = message.score
            if message.failures or not failed:
                messages.append(message)
                if len(messages) == limit:
                    return DelayedPage(messages, f"{earliest}:{skip}")
        if len(found) < step:
            return DelayedPage(messages, None)
