"""Instances: the queues of broadcasts go with the worker processes that they belong to."""

import logging
import time

from reliq import ops
from reliq.model.keys import QUEUES, TOPICS, QueueKeys, instance_of
from reliq.ops import Steps

log = logging.getLogger("reliq.monitor")

_GRACE = 3.0  #: seconds; producers use bindings unasked for half a second, and a starting worker needs a moment too


class BroadcastCleanup:
    """Remembers since when an instance's queue has had no consumer.

    A name is no proof: only a queue with the policy that every running instance keeps up (`overflow drop`) is dropped.
    """

    def __init__(self) -> None:
        self._alone_since: dict[str, float] = {}

    def look(self, keys: QueueKeys, alone: bool) -> Steps[None]:
        """Unbind the queue of an instance that is gone, and a while later drop it. `alone`: it has no consumers."""
        queue = keys.queue
        if not alone or instance_of(queue) is None:
            self._alone_since.pop(queue, None)
            return
        since = self._alone_since.setdefault(queue, time.monotonic())
        if time.monotonic() - since < _GRACE:
            return
        if (yield ops.command("HGET", keys.config, "overflow")) != b"drop":  # no broadcast made it
            return
        bindings = [one for one in (yield ops.read_hash(TOPICS)) if one.startswith(queue + " ")]
        if bindings:
            self._alone_since[queue] = time.monotonic()  # producers may still use them
            yield ops.bind("unbind", bindings)
            return
        yield [ops.command("UNLINK", *keys.everything), ops.command("SREM", QUEUES, queue)]
        del self._alone_since[queue]
        log.info("dropped queue=%s: its instance is gone", queue)
