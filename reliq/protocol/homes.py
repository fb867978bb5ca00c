"""The homes of a queue: which there are, which message goes to which, and calls that concern all of them.

Most queues have one home. One with partitions has as many; what is above this module knows no more of them.
"""

import itertools
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from reliq import ops
from reliq.errors import RedisUnavailable, ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.model.partitions import Layout, bucket_of, bucket_of_name, read_layout
from reliq.ops import Steps, Together, at_most
from reliq.protocol.claiming import Failing, ReadyCounts
from reliq.protocol.done_in_part import done_everywhere
from reliq.protocol.home import ANNOUNCE_EVERY, Home
from reliq.protocol.producer import ProducerPool
from reliq.runtime.looking import unseen

T = TypeVar("T")

_OFFER_AGAIN_AFTER = 0.05  #: seconds before a message is offered again to homes that all refused it
_OFFER_FOR = 10.0  #: seconds for which a call offers messages to homes that all refuse them; docs say it
_FRESH = 2.0  #: seconds for which an operator's call trusts the layout that was read last
_AWAY = 5.0  #: seconds for which messages without a key avoid a home that could not be reached
_LOOKS = 3  #: reads of counters, while the homes change
_UNLIMITED = 2**53  #: messages


class QueueHomes:
    """The homes of one queue, for one application."""

    def __init__(self, queue: str, pool: ProducerPool) -> None:
        self.queue = queue
        self._pool = pool
        self._turn = itertools.count(random.randrange(1000))
        self.forget()
        pool.learners.add(self)

    def forget(self) -> None:
        """Forget what was read of the homes."""
        self.first = Home(self.queue, self._pool)
        self.layout = Layout()
        self._text: str | None = None
        self._read_at = float("-inf")
        self._known = {self.queue: self.first}
        self._away: dict[str, float] = {}  #: by queue of a home: until when it is avoided
        self.failing = Failing()  #: those that claims leave out
        self.ready_counts = ReadyCounts()  #: by the latest look of a claim

    # --- which there are ---

    def named(self, name: str) -> Home:
        """Return the home that is this queue."""
        home = self._known.get(name)
        if home is None:
            home = self._known[name] = Home(name, self._pool)
        return home

    def _note(self, text: str | None) -> Layout:
        if text != self._text:
            self.layout, self._text = read_layout(text), text
        self._read_at = time.monotonic()
        return self.layout

    def read(self, retries: int | None = None) -> Steps[Layout]:
        """Read the layout."""
        self.first.layout = yield at_most(ops.stored_layout(self.first.keys), retries)
        return self._note(self.first.layout)

    def look_when_full(self) -> Steps[None]:
        """Read the layout again, unless it is fresh: a home is full, and there may be others since, with room."""
        if not self.fresh:
            with suppress(ReliqError):  # the caller is told of the refusal
                yield from self.read(retries=1)

    def read_again(self) -> Steps[None]:
        """Read the layout again, a little later: a home that it names has refused a message."""
        yield ops.Sleep(_OFFER_AGAIN_AFTER)
        yield from self.read()

    def current(self) -> Layout | None:
        """Return the layout for a send, as the first home told it with its introduction; None: it is to be read.

        That of several homes is read once a minute.
        """
        if self.first.layout != self._text:
            self._note(self.first.layout)
        known = self.layout.count == 1 or time.monotonic() - self._read_at <= ANNOUNCE_EVERY
        return self.layout if known else None

    def every(self, fresh: float = _FRESH, *, complete: bool = False) -> Steps[list[Home]]:
        """Return all homes that may have messages, by a layout that was read at most `fresh` seconds ago.

        While the first of several homes, which has the layout, is away: by the layout that was read last. `complete`:
        of a call that must leave none out: it asks a first home again that was away a short while ago.
        """
        several = self.layout.several
        avoided = several and not complete and self.is_away(self.queue)
        if time.monotonic() - self._read_at > fresh and not avoided:
            try:
                yield from self.read(retries=1 if several else None)
            except RedisUnavailable:
                if not several:
                    raise
                self.note_away(self.queue)
        return [self.named(name) for name in self.layout.every(self.queue)]

    @property
    def fresh(self) -> bool:
        """Whether the layout was read so shortly ago that a claim trusts it."""
        return time.monotonic() - self._read_at <= _FRESH

    @property
    def awaited(self) -> list[str]:
        """The keys of several homes that exist when a claim may bring messages, but for those that fail."""
        names = self.layout.every(self.queue) if self.layout.several else ()
        return [self.named(name).keys.messages for name in names if name not in self.failing]

    def known(self) -> Steps[list[QueueKeys]]:
        """Return the keys of all homes."""
        return [one.keys for one in (yield from self.every())]

    def each(self, steps: Callable[[QueueKeys], Steps[T]]) -> Steps[list[T]]:
        """Run steps that read for every home, at the same time; raises the first error.

        For an operator who looks, homes that do not answer are left out, unless all of them are.
        """
        homes = yield from self.every()
        if len(homes) == 1:
            return [(yield from steps(self.first.keys))]
        answers = yield Together([steps(one.keys) for one in homes])
        return self.seen(dict(zip((one.keys.queue for one in homes), answers, strict=True)))

    def counted(self, steps: Callable[[QueueKeys], Steps[T]]) -> Steps[list[T]]:
        """Run steps that read counters for every home; again if those of a forgotten home have moved meanwhile."""
        answers: list[T] = []
        for _ in range(_LOOKS):
            yield from self.every()
            layout = self.layout
            answers = yield from self.each(steps)
            if layout.several:
                yield from self.every(fresh=0.0)
            if self.layout.version == layout.version:
                break
        return answers

    def seen(self, answers: Mapping[str, Any]) -> list[Any]:
        """Return what the homes have answered, given by their queues; raises and leaves out as `each`."""
        there = [one for one in answers.values() if not isinstance(one, ReliqError)]
        for name, answer in answers.items():
            if isinstance(answer, ReliqError) and not (there and unseen(f"partition {name}", answer)):
                raise answer
        return there

    def any_of(self, steps: Callable[[QueueKeys], Steps[T]], decides: Callable[[T], bool]) -> Steps[list[T]]:
        """Run steps for every home; raises an error of one of them, unless the answer of another decides."""
        homes = yield from self.every(complete=True)
        if len(homes) == 1:
            return [(yield from steps(self.first.keys))]
        answers = yield Together([steps(one.keys) for one in homes])
        there = [one for one in answers if not isinstance(one, ReliqError)]
        return there if any(map(decides, there)) else checked(answers)

    def act(self, what: str, steps: Callable[[QueueKeys], Steps[T]]) -> Steps[list[T]]:
        """Run steps that change something, and may be repeated, for every home, at the same time.

        Raises DoneInPart if only some of them have come to their end.
        """
        names = [one.keys.queue for one in (yield from self.every(complete=True))]
        if len(names) == 1:
            return [(yield from steps(self.first.keys))]
        answers = yield Together([steps(QueueKeys(name)) for name in names])
        return done_everywhere(what, self.queue, dict(zip(names, answers, strict=True)))

    def home_of(self, message: NewMessage) -> Steps[QueueKeys]:
        """Return the home for a message that waits elsewhere than among the ready ones: of its key, else of its id."""
        layout, bucket = self.current() or (yield from self.read()), bucket_of(message)
        name = self.home_of_id(message.id) if bucket is None else layout.homes(self.queue, bucket)[-1]
        return self.named(name).keys

    def home_of_id(self, identity: str) -> str:
        """Return the queue that is the home of an id, by the layout that was read last."""
        return self.layout.homes(self.queue, bucket_of_name(identity))[-1] if self.layout.count > 1 else self.queue

    def rooms(self) -> Steps[dict[str, int]]:
        """Return how many messages each home that takes some has room for, by its share of `max_length`."""
        names = self.layout.names(self.queue)
        answers = yield Together([room(QueueKeys(name)) for name in names])
        return {name: 0 if isinstance(room, ReliqError) else room for name, room in zip(names, answers, strict=True)}

    def is_away(self, name: str) -> bool:
        return self._away.get(name, 0.0) > time.monotonic()

    def note_away(self, name: str) -> None:
        """Note that a home could not be reached."""
        self._away[name] = time.monotonic() + _AWAY

    def has_others(self, tried: Collection[str]) -> bool:
        """Whether a home may answer that is not among those `tried`, which do not: on a cluster only."""
        return self._pool.sharded and not set(tried).issuperset(self.layout.names(self.queue))

    def open_ones(self) -> list[str]:
        """Return the queues that take messages without a key, in the order of their turns; those away come last."""
        names = self.layout.names(self.queue)
        first = next(self._turn) % len(names)
        in_turn = [*names[first:], *names[:first]]
        return sorted(in_turn, key=self.is_away) if self._away else in_turn


class LayoutWait:
    """One call's wait for a change of the number of homes: those that it knows all refuse messages until then."""

    def __init__(self, homes: QueueHomes) -> None:
        self._homes = homes
        self._until: float | None = None  #: by time.monotonic()

    def look_again(self, messages: int) -> Steps[None]:
        """Read the layout again, the first time at once, then after a pause each.

        `messages`: how many are refused. Raises RedisUnavailable ten seconds after the first time.
        """
        if self._until is None:
            self._until = time.monotonic() + _OFFER_FOR
            yield from self._homes.read()
        elif time.monotonic() < self._until:
            yield from self._homes.read_again()
        else:
            raise RedisUnavailable(
                f"the partitions of queue {self._homes.queue!r} refuse {messages} messages: the change of their number "
                "does not take effect; see `reliq queue partitions`"
            )


def room(keys: QueueKeys) -> Steps[int]:
    """Return how many messages a home has room for, by its share of `max_length`."""
    (most, _), *lengths = yield [ops.limits(keys), *ops.lengths(keys)]
    return _UNLIMITED if most is None else max(0, most - sum(lengths))


def checked(answers: Sequence[Any]) -> list[Any]:
    """Return the answers to steps that ran together; raises the first error among them."""
    for one in answers:
        if isinstance(one, ReliqError):
            raise one
    return list(answers)
