"""Attempts: each duty of each queue fails alone, is logged once, counted, and retried after its own pause."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from reliq.errors import OutcomeUnknown, RedisUnavailable, RedisUnsuitable
from reliq.model.keys import JobKeys, QueueKeys
from reliq.ops import Op, Steps
from reliq.runtime.outage_log import OutageLog

log = logging.getLogger("reliq.monitor")

T = TypeVar("T")
Keys = TypeVar("Keys", bound=JobKeys)

_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  #: seconds; the last one repeats
_SHARE = 5.0  #: a pause is at least this many times as long as the attempt: an unreachable node costs timeouts
_FORGOTTEN = 60.0  #: seconds after which a failure that is not retried is forgotten: its queue or job is gone

_NODE = "node"  #: in the place of a duty: all work on a node


class Part(NamedTuple):
    """What fails alone."""

    duty: str
    queue: str  #: or the node; empty: all queues
    item: str = ""  #: a step, a job, a consumer


def name_of(home: JobKeys) -> str:
    """Return the queue; for jobs of several queues, the tag of their keys."""
    return home.queue if isinstance(home, QueueKeys) else home.place


def each(op: Callable[[Keys], Op[T]]) -> Callable[[Sequence[Keys]], Steps[list[T]]]:
    """Return what asks this of many queues, for `Attempts.together`."""

    def ask(homes: Sequence[Keys]) -> Steps[list[T]]:
        answers: list[T] = yield [op(home) for home in homes]
        return answers

    return ask


class _Failure:
    """A duty that fails now."""

    def __init__(self, what: str) -> None:
        self.outage = OutageLog(log, what)
        self._count = 0
        self.next_at = 0.0

    def again(self, error: Exception, took: float) -> None:
        self.outage.failed(error)
        pause = max(_PAUSES[min(self._count, len(_PAUSES) - 1)], _SHARE * took)
        self.next_at = time.monotonic() + pause
        self._count += 1


class Attempts:
    """The failures and pauses of one monitor's duties."""

    def __init__(
        self,
        node_of: Callable[[JobKeys], str],
        sharded: bool,
        one_of_many: bool = False,
        duties: Iterable[str] = (),
    ) -> None:
        """`node_of` returns the node of a queue in a cluster; empty: unknown, or a single server.

        `sharded`: the queues lie on many servers. `one_of_many`: they lie on one of them, and steps that are given as
        `other_server` may go to another one, which says nothing about this one if it fails. `duties`: those with
        counters that start at 0, for Prometheus.
        """
        self._node_of = node_of
        self._sharded = sharded
        self._one_of_many = one_of_many
        self._failing: dict[Part, _Failure] = {}
        self._set_aside: dict[Part, _Failure] = {}  #: those in queues that other monitors lead now
        self.failures: Counter[str] = Counter(dict.fromkeys(duties, 0))  #: by duty, since the start

    @property
    def any_failing(self) -> bool:
        return bool(self._failing)

    @property
    def failing(self) -> set[tuple[str, str]]:
        """The duties that fail now, each with its queue; an empty text means all queues."""
        return {(part.duty, part.queue) for part in list(self._failing)}

    def prune(self) -> None:
        """Forget failures of queues, jobs and consumers that no longer exist."""
        latest = time.monotonic() - _FORGOTTEN
        for failures in (self._failing, self._set_aside):
            for part in [part for part, failure in failures.items() if failure.next_at < latest]:
                del failures[part]

    def keep(self, queues: Container[str]) -> None:
        """Set aside the failures in all other queues: other monitors lead them.

        A monitor that was late leads them again a moment later, and does not log a second time what it knew.
        """
        here: dict[Part, _Failure] = {}
        set_aside: dict[Part, _Failure] = {}
        for part, failure in (self._set_aside | self._failing).items():
            is_here = part.duty == _NODE or not part.queue or part.queue in queues
            if is_here and part in self._set_aside:
                failure.next_at = min(failure.next_at, time.monotonic())  # who led it meanwhile may have mended it
            (here if is_here else set_aside)[part] = failure
        self._failing, self._set_aside = here, set_aside

    def nothing_to_do(self, duty: str, homes: Iterable[JobKeys], but: Container[str] = ()) -> None:
        """Note that this duty has nothing to do in these queues, except for the parts `but`: its failures are over."""
        if not self._failing:
            return
        names = {name_of(home) for home in homes}
        for part in list(self._failing):
            if part.duty == duty and part.queue in names and part.item not in but:
                self._failing.pop(part).outage.over()

    def nothing_for_all(self, duty: str) -> None:
        """Note that this duty has nothing to do for all queues together: its failure is over."""
        if failure := self._failing.pop(Part(duty, ""), None):
            failure.outage.over()

    def due(self, duty: str, home: JobKeys, item: str) -> bool:
        """Whether this part of a queue's duty may be tried now."""
        if not self._failing:
            return True
        node = self._node_of(home)
        return self._due(Part(duty, name_of(home), item)) and (not node or self._due(Part(_NODE, node)))

    def of_all(self, duty: str, steps: Steps[T], otherwise: T, item: str = "", other_server: bool = False) -> Steps[T]:
        """Perform a duty for all queues; return `otherwise` if it fails, and during its pause. `item` fails alone."""
        return (yield from self._try(Part(duty, "", item), "", steps, otherwise, other_server))

    def of_queue(
        self, duty: str, home: JobKeys, steps: Steps[T], otherwise: T, item: str = "", other_server: bool = False
    ) -> Steps[T]:
        """Perform a duty for one queue; return `otherwise` if it fails, and during its pause. `item` fails alone."""
        if not self.due(duty, home, item):
            return otherwise
        return (
            yield from self._try(Part(duty, name_of(home), item), self._node_of(home), steps, otherwise, other_server)
        )

    def together(
        self, duty: str, homes: Sequence[Keys], ask: Callable[[Sequence[Keys]], Steps[Sequence[T]]], step: str = "look"
    ) -> Steps[list[tuple[Keys, T]]]:
        """Ask about many queues in one trip; after a failure, about half of them at a time, to find the failing one."""
        some = [home for home in homes if self.due(duty, home, step)] if self._failing else homes
        if not some:
            return []
        if len(some) == 1:
            answer = yield from self.of_queue(duty, some[0], ask(some), None, step)
            return [] if answer is None else [(some[0], answer[0])]
        try:
            answers = yield from ask(some)
        except Exception as error:
            if self.is_outage(error):
                raise
            middle = len(some) // 2
            first = yield from self.together(duty, some[:middle], ask, step)
            return first + (yield from self.together(duty, some[middle:], ask, step))
        for home in some if self._failing else ():
            self._succeeded(Part(duty, name_of(home), step), self._node_of(home))
        return list(zip(some, answers, strict=True))

    def _due(self, part: Part) -> bool:
        failure = self._failing.get(part)
        return failure is None or time.monotonic() >= failure.next_at

    def _try(self, part: Part, node: str, steps: Steps[T], otherwise: T, other_server: bool) -> Steps[T]:
        if not self._due(part):
            return otherwise
        began = time.monotonic()
        try:
            answer = yield from steps
        except Exception as error:
            if self.is_outage(error) and not (other_server and self._one_of_many):
                raise
            if node and _unreachable(error):
                part = Part(_NODE, node)
            self._failed(part, error, time.monotonic() - began)
            return otherwise
        self._succeeded(part, node)
        return answer

    def is_outage(self, error: Exception) -> bool:
        """Whether the only server is unreachable, or refuses all: then no other duty can succeed either."""
        return not self._sharded and _unreachable(error)

    def _failed(self, part: Part, error: Exception, took: float) -> None:
        self.failures[part.duty] += 1
        if part not in self._failing:
            self._failing[part] = _Failure(" ".join(_described(part)))
        self._failing[part].again(error, took)

    def _succeeded(self, part: Part, node: str) -> None:
        for one in (part, Part(_NODE, node)):
            if failure := self._failing.pop(one, None):
                failure.outage.over()


def _unreachable(error: Exception) -> bool:
    """Whether the server gave no answer, or can serve nothing; not if a key has a wrong type, or its slot is moving."""
    if isinstance(error, RedisUnsuitable):
        return error.of_server
    if isinstance(error, RedisUnavailable):
        return not error.moving
    return isinstance(error, OutcomeUnknown)


def _described(part: Part) -> Iterator[str]:
    duty, queue, item = part
    yield f"duty={duty}"
    if queue:
        yield f"node={queue}" if duty == _NODE else f"queue={queue}"
    if item:
        yield f"at={item}"
