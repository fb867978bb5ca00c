"""Attempts: each duty of each queue fails alone, is logged once, counted, and tried again after a pause of its own."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TypeVar

from reliq.errors import OutcomeUnknown, RedisUnavailable, RedisUnsuitable
from reliq.model.keys import JobKeys, QueueKeys
from reliq.ops import Steps
from reliq.runtime.outage_log import OutageLog

log = logging.getLogger("reliq.monitor")

T = TypeVar("T")
Home = TypeVar("Home", bound=JobKeys)

_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  #: seconds; the last one repeats
_SHARE = 5.0  #: a pause is at least so many times as long as the attempt: an unreachable node costs timeouts
_FORGOTTEN = 60.0  #: seconds after which what is not tried any more fails no more: its queue or job is gone

_MOVING = ("reclaim", "promote", "staged", "prepared")  #: duties that move messages: counted from 0, for Prometheus

Failing = tuple[str, str, str]  #: the duty, the queue (or node), and what of it: a step, a job, a consumer


def name_of(home: JobKeys) -> str:
    """The queue; for jobs of several queues, the name of their place."""
    return home.queue if isinstance(home, QueueKeys) else "@several"


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
    """What the duties of one monitor fail at."""

    def __init__(self, node_of: Callable[[JobKeys], str], sharded: bool) -> None:
        """`node_of` names the node of a cluster that a queue is on; empty: not known, or there is but one server."""
        self._node_of = node_of
        self._sharded = sharded
        self._failing: dict[Failing, _Failure] = {}
        self.failures: Counter[str] = Counter(dict.fromkeys(_MOVING, 0))  #: by duty, since the start

    @property
    def any_failing(self) -> bool:
        return bool(self._failing)

    @property
    def failing(self) -> set[tuple[str, str]]:
        """The duties that fail now, each with its queue; an empty text: for all queues."""
        return {(duty, queue) for duty, queue, _ in list(self._failing)}

    def prune(self) -> None:
        """Forget failures of what is not there any more."""
        latest = time.monotonic() - _FORGOTTEN
        for what in [what for what, failure in self._failing.items() if failure.next_at < latest]:
            del self._failing[what]

    def nothing_to_do(self, duty: str, homes: Iterable[JobKeys], but: Container[str] = ()) -> None:
        """There is nothing (more) of this duty in these queues, so it fails at nothing. `but`: these parts of it."""
        if not self._failing:
            return
        names = {name_of(home) for home in homes}
        for what in list(self._failing):
            if what[0] == duty and what[1] in names and what[2] not in but:
                self._failing.pop(what).outage.over()

    def due(self, duty: str, home: JobKeys, item: str) -> bool:
        """Whether this part of a queue's duty may be tried now."""
        if not self._failing:
            return True
        node = self._node_of(home)
        return self._due((duty, name_of(home), item)) and (not node or self._due(("node", node, "")))

    def of_all(self, duty: str, steps: Steps[T], otherwise: T) -> Steps[T]:
        """Do what is no single queue's; answers `otherwise` where it fails, and while it pauses."""
        return (yield from self._try((duty, "", ""), "", steps, otherwise))

    def of_queue(self, duty: str, home: JobKeys, steps: Steps[T], otherwise: T, item: str = "") -> Steps[T]:
        """Do one queue's share; answers `otherwise` where it fails, and while it pauses. `item` fails by itself."""
        if not self.due(duty, home, item):
            return otherwise
        return (yield from self._try((duty, name_of(home), item), self._node_of(home), steps, otherwise))

    def together(
        self, duty: str, homes: Sequence[Home], ask: Callable[[Sequence[Home]], Steps[Sequence[T]]], step: str = "look"
    ) -> Steps[list[tuple[Home, T]]]:
        """Ask about many queues in one trip. Where that fails, ask half of them at a time, until it is clear which."""
        some = [home for home in homes if self.due(duty, home, step)] if self._failing else homes
        if not some:
            return []
        if len(some) == 1:
            answer = yield from self.of_queue(duty, some[0], ask(some), None, step)
            return [] if answer is None else [(some[0], answer[0])]
        try:
            answers = yield from ask(some)
        except Exception as error:
            if self._is_outage(error):
                raise
            middle = len(some) // 2
            first = yield from self.together(duty, some[:middle], ask, step)
            return first + (yield from self.together(duty, some[middle:], ask, step))
        for home in some if self._failing else ():
            self._succeeded((duty, name_of(home), step), self._node_of(home))
        return list(zip(some, answers, strict=True))

    def _due(self, what: Failing) -> bool:
        failure = self._failing.get(what)
        return failure is None or time.monotonic() >= failure.next_at

    def _try(self, what: Failing, node: str, steps: Steps[T], otherwise: T) -> Steps[T]:
        if not self._due(what):
            return otherwise
        began = time.monotonic()
        try:
            answer = yield from steps
        except Exception as error:
            if self._is_outage(error):
                raise
            if node and _unreachable(error):
                what = ("node", node, "")
            self._failed(what, error, time.monotonic() - began)
            return otherwise
        self._succeeded(what, node)
        return answer

    def _is_outage(self, error: Exception) -> bool:
        """Whether the only server there is cannot be reached: then no other duty can be done either."""
        return not self._sharded and _unreachable(error)

    def _failed(self, what: Failing, error: Exception, took: float) -> None:
        self.failures[what[0]] += 1
        if what not in self._failing:
            self._failing[what] = _Failure(" ".join(_described(what)))
        self._failing[what].again(error, took)

    def _succeeded(self, what: Failing, node: str) -> None:
        for one in (what, ("node", node, "")):
            if failure := self._failing.pop(one, None):
                failure.outage.over()


def _unreachable(error: Exception) -> bool:
    return isinstance(error, (RedisUnavailable, OutcomeUnknown)) and not isinstance(error, RedisUnsuitable)


def _described(what: Failing) -> Iterator[str]:
    duty, queue, item = what
    yield f"duty={duty}"
    if queue:
        yield f"node={queue}" if duty == "node" else f"queue={queue}"
    if item:
        yield f"at={item}"
