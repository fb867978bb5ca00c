"""Partitions: bring changes of their number to their end, and take messages to the home of their key."""

import logging
import time
from collections.abc import Container
from dataclasses import dataclass, field

from reliq import ops
from reliq.model.keys import QueueKeys, is_partition, logical_name
from reliq.model.partitions import Layout
from reliq.ops import Steps
from reliq.protocol.in_parts import InParts
from reliq.protocol.producer import ProducerPool
from reliq.protocol.relocation import send_strays
from reliq.protocol.resizing import apply_layout, forget_retired, try_to_finish
from reliq.protocol.resting import rest
from reliq.protocol.shares import finish_change, share_again
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey

log = logging.getLogger("reliq.monitor")

_A_TURN = 0.5  #: seconds after which a turn begins nothing more: what else is due waits meanwhile


@dataclass(slots=True)
class _Left:
    """What a turn has left to the next one."""

    #: Steps of a queue: by the version of the layout that they tell, or the token of the change that they finish.
    begun: dict[tuple[str, int | str], InParts[bool]] = field(default_factory=dict)
    starts: dict[str, bytes] = field(default_factory=dict)  #: by partition with strays: where to go on

    def __bool__(self) -> bool:
        return bool(self.begun or self.starts)


class Spreading(Duty[int]):
    """The queues with partitions, as one monitor knows them."""

    name = "partitions"
    effect = (
        "a change of the number of a queue's [partitions](../how-to/partitions.md) does not end, and messages whose "
        "key has a new home wait"
    )

    def __init__(self) -> None:
        self._pool = ProducerPool()
        self._effective: dict[str, int] = {}  #: by queue: the version of the layout that all its partitions know
        self._until = 0.0  #: by time.monotonic(): when this turn should have ended
        self._left = _Left()
        self._before = _Left()  #: by the turn before

    def keep(self, queues: Container[str]) -> None:
        """Forget the layouts of all other queues: one of the same name begins anew."""
        self._effective = {queue: version for queue, version in self._effective.items() if queue in queues}

    @property
    def pause(self) -> float:
        return 0.0 if self._left else super().pause

    def turn(self, survey: Survey) -> Steps[int]:
        """Do what is to be done for these queues now; return how many messages were taken to their home."""
        self._until = time.monotonic() + _A_TURN
        self._before, self._left = self._left, _Left()
        partitioned = {logical_name(name) for name in survey.every_name if is_partition(name)}
        if not partitioned:
            return 0
        for keys in survey.queues:
            if keys.queue in partitioned:
                yield from survey.attempts.of_queue(self.name, keys, self._continue_change(survey, keys), None)
        parts = [keys for keys in survey.queues if logical_name(keys.queue) in partitioned]
        sent, layouts = 0, dict[str, Layout]()
        for keys in (yield from survey.having(self.name, lambda one: one.waiting, parts, but={""})):
            steps = self._send_strays(keys, layouts)
            sent += yield from survey.attempts.of_queue(self.name, keys, steps, 0, "strays")
        return sent

    def _continue_change(self, survey: Survey, first: QueueKeys) -> Steps[None]:
        """Bring a change to its end."""
        queue, known = first.queue, survey.known
        layout: Layout | None = known.get(first.config, self.name)
        if layout is None:
            layout, token = yield [ops.layout(first), ops.unfinished_change(first)]
            if token:
                if (yield from self._go_on((queue, token), finish_change(queue, layout, token))) is None:
                    return
                log.info("queue=%s a change of its policy has reached all partitions", queue)
            known.note(first.config, layout, self.name)
        if not (yield from self._take_effect(first, layout)):
            return
        if layout.moving:
            if (yield from try_to_finish(queue, layout)):
                text = "queue=%s has %d partitions, %d before: all keys are in their home"
                log.info(text, queue, layout.count, layout.before)
        elif (yield from rest(queue, layout, survey.away)):
            log.info("queue=%s closed partitions without messages leave their share of its limits to the others", queue)
        elif (yield from forget_retired(queue, layout)):
            log.info("queue=%s partition=%s is empty and closed", queue, layout.retired[-1])

    def _take_effect(self, first: QueueKeys, layout: Layout) -> Steps[bool]:
        """Tell all partitions of the layout, in several turns if that takes long; return whether they know it."""
        queue, version = first.queue, layout.version
        is_new = self._effective.get(queue) != version
        if not is_new and not layout.moving:
            return True
        # Again while keys move: a restart may have undone it.
        telling = share_again(queue, layout) if is_new else apply_layout(queue, layout)
        is_known = yield from self._go_on((queue, version), telling)
        if is_known:
            self._effective[queue] = version
        return bool(is_known)

    def _go_on(self, key: tuple[str, int | str], steps: Steps[bool]) -> Steps[bool | None]:
        """Go on with steps that one turn may not end; return their result, None until then. `steps`: as they begin."""
        left, before = self._left.begun, self._before.begun
        begun = left.pop(key, None) or before.pop(key, None) or InParts(steps)
        if (yield from begun.go_on(until=self._until)):
            return begun.result
        left[key] = begun
        return None

    def _send_strays(self, keys: QueueKeys, layouts: dict[str, Layout]) -> Steps[int]:
        """Take what waits in a partition, and has its home in another one, there. `layouts`: read in this turn."""
        first = QueueKeys(logical_name(keys.queue))
        if first.queue not in layouts:
            layouts[first.queue] = yield ops.layout(first)
        layout = layouts[first.queue]
        if not (yield from self._take_effect(first, layout)):
            return 0
        start = self._before.starts.get(keys.queue, b"")
        sent = yield from send_strays(layout, keys, self._pool, start, self._until)
        if sent.start:
            self._left.starts[keys.queue] = sent.start
        return sent.moved
