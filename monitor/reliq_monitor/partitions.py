"""Partitions: bring changes of their number to their end, and take messages to the home of their key."""

import logging
from collections.abc import Container

from reliq import ops
from reliq.model.keys import QueueKeys, is_partition, logical_name
from reliq.model.partitions import Layout
from reliq.ops import Steps
from reliq.protocol.producer import ProducerPool
from reliq.protocol.relocation import send_strays
from reliq.protocol.resizing import forget_retired, settle, take_in
from reliq.protocol.resting import rest
from reliq.protocol.shares import finish_change, share_again
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey

log = logging.getLogger("reliq.monitor")


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

    def keep(self, queues: Container[str]) -> None:
        """Forget the layouts of all other queues: one of the same name begins anew."""
        self._effective = {queue: version for queue, version in self._effective.items() if queue in queues}

    def turn(self, survey: Survey) -> Steps[int]:
        """Do what is to be done for these queues now; return how many messages were taken to their home."""
        partitioned = {logical_name(name) for name in survey.every_name if is_partition(name)}
        if not partitioned:
            return 0
        for keys in survey.queues:
            if keys.queue in partitioned:
                yield from survey.attempts.of_queue(self.name, keys, self._tend(survey, keys), None)
        parts = [keys for keys in survey.queues if logical_name(keys.queue) in partitioned]
        sent, layouts = 0, dict[str, Layout]()
        for keys in (yield from survey.having(self.name, lambda one: one.waiting, parts, but={""})):
            steps = self._send_strays(keys, layouts)
            sent += yield from survey.attempts.of_queue(self.name, keys, steps, 0, "strays")
        return sent

    def _tend(self, survey: Survey, first: QueueKeys) -> Steps[None]:
        """Bring a change to its end."""
        queue, known = first.queue, survey.known
        layout: Layout | None = known.get(first.config, self.name)
        if layout is None:
            layout, token = yield [ops.layout(first), ops.unfinished_change(first)]
            if token:
                yield from finish_change(queue, layout, token)
                log.info("queue=%s a change of its policy has reached all partitions", queue)
            known.note(first.config, layout, self.name)
        if not (yield from self._take_effect(first, layout)):
            return
        if layout.moving:
            if (yield from settle(queue, layout)):
                text = "queue=%s has %d partitions, %d before: all keys are in their home"
                log.info(text, queue, layout.count, layout.before)
        elif (yield from rest(queue, layout, survey.away)):
            log.info("queue=%s closed partitions without messages leave their share of its limits to the others", queue)
        elif (yield from forget_retired(queue, layout)):
            log.info("queue=%s partition=%s is empty and closed", queue, layout.retired[-1])

    def _take_effect(self, first: QueueKeys, layout: Layout) -> Steps[bool]:
        """Tell all partitions of the layout; return whether they know it."""
        queue, is_known = first.queue, True
        if self._effective.get(queue) != layout.version:
            is_known = yield from share_again(queue, layout)
        elif layout.moving:  # each time: a restart may have undone it
            is_known = yield from take_in(queue, layout)
        if is_known:
            self._effective[queue] = layout.version
        return is_known

    def _send_strays(self, keys: QueueKeys, layouts: dict[str, Layout]) -> Steps[int]:
        """Take what waits in a partition, and has its home in another one, there. `layouts`: read in this turn."""
        first = QueueKeys(logical_name(keys.queue))
        if first.queue not in layouts:
            layouts[first.queue] = yield ops.layout(first)
        layout = layouts[first.queue]
        if not (yield from self._take_effect(first, layout)):
            return 0
        return (yield from send_strays(first.queue, layout, keys, self._pool))
