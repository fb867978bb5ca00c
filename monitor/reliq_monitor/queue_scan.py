"""Queue scan: find the queues that need work. Most need none, so one call asks about many of them."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import attrgetter
from typing import TypeVar

from reliq import ops
from reliq.model.keys import SEVERAL, JobKeys, QueueKeys
from reliq.observability.histograms import Measurements
from reliq.ops import Steps
from reliq.runtime.pieces import pieces
from reliq_monitor.attempts import Attempts, Keys
from reliq_monitor.known import Known
from reliq_monitor.leases import Leases
from reliq_monitor.liveness import Vanished

TOGETHER = 100  #: queues per call and per round trip; on a cluster one per call, as they lie on different nodes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gone:
    """A consumer that has vanished, with its messages."""

    keys: QueueKeys
    vanished: Vanished
    seen_at: int  #: ms of the server's clock, when it was found to be gone
    looked_at: float  #: the same moment, by time.monotonic()


@dataclass(frozen=True, slots=True)
class Survey:
    """What a monitor leads, and what its latest look found there."""

    attempts: Attempts
    queues: Sequence[QueueKeys] = ()
    common: Container[str] = ()  #: work that belongs to no queue
    every_name: Sequence[str] = ()  #: all queues, also those that other monitors lead, or that lie on other nodes
    at_once: int = TOGETHER  #: queues that one call may ask about
    away: Callable[[QueueKeys], bool] = lambda _: False  #: whether the node of a queue is away
    known: Known = field(default_factory=Known)
    measurements: Measurements | None = None
    looked_at: float = 0.0  #: by time.monotonic()
    found: Mapping[str, Sequence[QueueKeys]] = field(default_factory=dict)  #: by key sought: the queues that have it
    consumers: Sequence[tuple[QueueKeys, int, Leases]] = ()  #: by queue, with the server's time
    gone: Sequence[Gone] = ()

    @property
    def homes(self) -> list[JobKeys]:
        """The places of staged jobs."""
        return [SEVERAL, *self.queues] if SEVERAL.place in self.common else list(self.queues)

    @property
    def others(self) -> "Survey | None":
        """The queues that other monitors lead; None if a node with some of them is away."""
        led = {keys.queue for keys in self.queues}
        others = [QueueKeys(name) for name in self.every_name if name not in led]
        return None if any(map(self.away, others)) else replace(self, queues=others, known=Known())

    def shared_out(self, queues: Sequence[QueueKeys], common: Container[str]) -> "Survey":
        """Return the survey of another share, with what was found of it."""
        led = {keys.queue for keys in queues}
        return replace(
            self,
            queues=queues,
            common=common,
            found={key: [keys for keys in some if keys.queue in led] for key, some in self.found.items()},
            consumers=[one for one in self.consumers if one[0].queue in led],
            gone=[one for one in self.gone if one.keys.queue in led],
        )

    def having(
        self, duty: str, key: Callable[[Keys], str], homes: Sequence[Keys], but: Container[str] = ()
    ) -> Steps[list[Keys]]:
        """Return those of `homes` for which this key exists.

        The duty has nothing to do for the others, except for the parts `but`.
        """
        [found] = yield from self._having(duty, [key], homes, but)
        return found

    def having_each(self, duty: str, keys: Sequence[str]) -> Steps[dict[str, list[QueueKeys]]]:
        """Return for each of these keys the queues that have it, by as many calls as for one key."""
        found = yield from self._having(duty, [attrgetter(key) for key in keys], self.queues)
        return dict(zip(keys, found, strict=True))

    def _having(
        self, duty: str, keys: Sequence[Callable[[Keys], str]], homes: Sequence[Keys], but: Container[str] = ()
    ) -> Steps[list[list[Keys]]]:
        """Return for each key those of `homes` that have it; the server is asked about those that are not known."""
        answers = [self.known.of([key(home) for home in homes]) for key in keys]  # by key; None: to be asked
        unknown: dict[Keys, int] = {}
        if any(None in of_key for of_key in answers):
            unknown = {homes[at]: at for at, row in enumerate(zip(*answers, strict=True)) if None in row}

        def ask(some: Sequence[Keys]) -> Steps[list[Sequence[bool]]]:
            groups = [[key(one) for one in group for key in keys] for group in self.groups(some)]
            return [*pieces((yield from self._exist(groups, mostly=len(keys) > 1)), len(keys))]

        for home, found in (yield from self.attempts.together(duty, list(unknown), ask, "exists")) if unknown else ():
            for key, of_key, exists in zip(keys, answers, found, strict=True):
                of_key[unknown[home]] = exists
                self.known.note(key(home), exists)
        if self.attempts.any_failing:
            rows = zip(homes, zip(*answers, strict=True), strict=True)
            idle = (home for home, row in rows if all(exists is False for exists in row))
            self.attempts.nothing_to_do(duty, idle, but)
        return [list(compress(homes, of_key)) for of_key in answers]

    def _exist(self, groups: Sequence[Sequence[str]], *, mostly: bool) -> Steps[list[bool]]:
        """Return for each name whether it exists; a call may ask about one group. `mostly`: of most groups some do."""
        some = [True] * len(groups)
        if self.at_once > 1 and not mostly:  # one command says that none exists
            some = yield [ops.any_exists(group) for group in groups]
        asked = list(compress(groups, some))
        answers = iter((yield [ops.existing(group) for group in asked]) if asked else ())
        return flags(groups, [next(answers) if any_of_it else () for any_of_it in some])

    def groups(self, homes: Sequence[T]) -> list[Sequence[T]]:
        """Group `homes` by what one call may ask about."""
        return [*pieces(homes, self.at_once)]


def flags(groups: Sequence[Sequence[object]], answers: Sequence[Sequence[int]]) -> list[bool]:
    """Return for each member of the groups whether its position, from 1, is in the answer about its group."""
    found: list[bool] = []
    for group, places in zip(groups, answers, strict=True):
        some = [False] * len(group)
        for place in places:
            some[place - 1] = True
        found += some
    return found


def pages(homes: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split `homes` into pages for one round trip each."""
    return pieces(homes, TOGETHER)
