"""Queue scan: find the queues that need work. Most need none, so one call asks about many of them."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from reliq import ops
from reliq.model.keys import SEVERAL, JobKeys, QueueKeys
from reliq.ops import Steps
from reliq_monitor.attempts import Attempts

TOGETHER = 100  #: queues per call and per round trip; on a cluster one per call, as they lie on different nodes

Home = TypeVar("Home", bound=JobKeys)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Survey:
    """The queues known to a monitor, and the failures of its duties."""

    attempts: Attempts
    queues: Sequence[QueueKeys] = ()
    at_once: int = TOGETHER  #: queues that one call may ask about
    several: bool = True  #: whether the jobs of several queues are looked after, too

    @property
    def homes(self) -> list[JobKeys]:
        """The places of staged jobs."""
        return [SEVERAL, *self.queues] if self.several else list(self.queues)

    def having(self, duty: str, key: Callable[[Home], str], homes: Sequence[Home]) -> Steps[list[Home]]:
        """Return those of `homes` for which this key exists."""
        if not homes:
            return []

        def find() -> Steps[list[Home]]:
            groups = self.groups(homes)
            if self.at_once > 1:  # mostly none exists, and one command says so
                some = yield [ops.any_exists([key(one) for one in group]) for group in groups]
                groups = list(itertools.compress(groups, some))
                if not groups:
                    return []
            answers = yield [ops.existing([key(one) for one in group]) for group in groups]
            pairs = zip(groups, answers, strict=True)
            return [group[place - 1] for group, places in pairs for place in places]

        def ask(some: Sequence[Home]) -> Steps[list[bool]]:
            groups = self.groups(some)
            answers = yield [ops.existing([key(one) for one in group]) for group in groups]
            return flags(groups, answers)

        if not self.attempts.any_failing:
            try:
                return (yield from find())
            except Exception as error:  # the following calls find out for which of them
                if self.attempts.is_outage(error):
                    raise
        found = yield from self.attempts.together(duty, homes, ask, "exists")
        self.attempts.nothing_to_do(duty, (home for home, there in found if not there))
        return [home for home, there in found if there]

    def having_each(
        self, duty: str, keys: Sequence[Callable[[Home], str]], homes: Sequence[Home]
    ) -> Steps[list[list[Home]]]:
        """Return for each kind of key those of `homes` for which it exists, by as many calls as for one kind."""

        def names_of(group: Sequence[Home]) -> list[str]:
            return [key(one) for key in keys for one in group]

        def ask(some: Sequence[Home]) -> Steps[list[list[bool]]]:
            groups = self.groups(some)
            answers = yield [ops.existing(names_of(group)) for group in groups]
            found: list[list[bool]] = []
            for group, places in zip(groups, answers, strict=True):
                there = set(places)
                found += [
                    [1 + at + kind * len(group) in there for kind in range(len(keys))] for at in range(len(group))
                ]
            return found

        found = (yield from self.attempts.together(duty, homes, ask, "exists")) if homes else []
        self.attempts.nothing_to_do(duty, (home for home, there in found if not any(there)))
        return [[home for home, there in found if there[kind]] for kind in range(len(keys))]

    def groups(self, homes: Sequence[T]) -> list[Sequence[T]]:
        """Group `homes` by what one call may ask about."""
        return [homes[start : start + self.at_once] for start in range(0, len(homes), self.at_once)]


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
    return (homes[start : start + TOGETHER] for start in range(0, len(homes), TOGETHER))
