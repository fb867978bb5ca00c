"""The steps that list delayed messages, and make them due."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reliq import ops
from reliq.contract.values import check_id, unicode_text, yes_or_no
from reliq.errors import InvalidSetting
from reliq.model.delayed_message import DelayedMessage
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.protocol.done_in_part import counted
from reliq.protocol.homes import QueueHomes
from reliq.protocol.listing import Part, check_headers, merged_page, read_page, walk
from reliq.protocol.progress import Progress
from reliq.runtime.pieces import pieces

_RUN = "the run of delayed messages"
_HASTENED = 100  #: messages in one call: about 1 ms for Redis


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of delayed messages; an empty one selects all of them."""

    failed: bool = False  #: only those that wait for a retry
    error_class: str | None = None  #: of the last error, with or without its module
    headers: Mapping[str, str] | None = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "failed", yes_or_no(self.failed, "failed"))
        object.__setattr__(self, "headers", check_headers(self.headers))
        if self.error_class is not None:
            unicode_text(self.error_class, "error_class")

    @property
    def empty(self) -> bool:
        return self == Selection()

    def matches(self, message: DelayedMessage) -> bool:
        if self.failed and not message.failures:
            return False
        if self.error_class is not None and not message.failed_with(self.error_class):
            return False
        return all(message.headers.get(name) == value for name, value in (self.headers or {}).items())


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


def delayed_of_queue(
    homes: QueueHomes, limit: int, cursor: str | None, wanted: Selection, bodies: bool
) -> Steps[DelayedPage]:
    """Read up to `limit` messages of all homes of a queue, from `cursor` on."""
    matches = None if wanted.empty else wanted.matches

    def read(keys: QueueKeys, limit: int, cursor: str | None, bodies: bool) -> Steps[Part[DelayedMessage]]:
        always = ("-inf", "+inf")
        return read_page(DelayedMessage, keys, keys.delayed, "up", always, limit, cursor, bodies, matches)

    messages, following = yield from merged_page(homes, read, "up", limit, cursor, bodies)
    return DelayedPage(messages, following)


def run_by_id(homes: QueueHomes, ids: Sequence[str]) -> Steps[int]:
    """Make the delayed messages with these ids due now; return how many there were."""
    for identity in ids:
        check_id(identity)

    def run(keys: QueueKeys) -> Steps[int]:
        count = 0
        with counted(_RUN, keys, lambda: count):
            for some in pieces(ids, _HASTENED):
                count += yield ops.hasten(keys, some)
        return count

    return sum((yield from homes.act(_RUN, run)))


def run_selected(
    homes: QueueHomes, wanted: Selection, everything: bool, dry_run: bool, progress: Progress
) -> Steps[int]:
    """Make the selected messages that are not due yet due now; return how many. Raises InvalidSetting."""
    everything, dry_run = yes_or_no(everything, "all"), yes_or_no(dry_run, "dry_run")
    if wanted.empty and not everything:
        raise InvalidSetting("running delayed messages needs ids, a filter, or all")
    total = 0

    def run(keys: QueueKeys) -> Steps[int]:
        count = 0

        def act(messages: list[DelayedMessage]) -> Steps[bool]:
            nonlocal count, total
            for part in pieces(messages, _HASTENED):
                some = len(part) if dry_run else (yield ops.hasten(keys, [one.id for one in part]))
                count, total = count + some, total + some
                progress(total)
            return True

        with counted(_RUN, keys, lambda: 0 if dry_run else count):
            later = (yield ops.server_time()) + 1
            not_due = (str(later), "+inf")
            yield from walk(DelayedMessage, keys, keys.delayed, not_due, wanted.matches, act, not dry_run, shown=0)
        return count

    return sum((yield from homes.act(_RUN, run)))
