"""Looking: which of all queues need something done. Most need nothing, so they are asked about many at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from reliq import ops
from reliq.keys import JobKeys, QueueKeys
from reliq.ops import Steps

TOGETHER = 100  #: queues in one call, and in one round trip; on a cluster one a call, they lie on different nodes

Home = TypeVar("Home", bound=JobKeys)
T = TypeVar("T")
Groups = Sequence[Sequence[QueueKeys]]  #: queues, by what one call may ask about


def having(groups: Sequence[Sequence[Home]], key: Callable[[Home], str]) -> Steps[list[list[Home]]]:
    """Those for which this key exists, in their groups."""
    if not groups:
        return []
    answers = yield [ops.existing([key(one) for one in group]) for group in groups]
    return [[group[place - 1] for place in some] for group, some in zip(groups, answers, strict=True) if some]


def pages(groups: Sequence[Sequence[T]]) -> Iterator[list[T]]:
    """All of them, by what one round trip may ask about."""
    every = [one for group in groups for one in group]
    return (every[start : start + TOGETHER] for start in range(0, len(every), TOGETHER))
