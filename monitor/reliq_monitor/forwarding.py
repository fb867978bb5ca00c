"""Forwarding: send dead letters on to the queue of `dead_to`."""

from collections.abc import Container

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.protocol.forwarding import Sweep, forward
from reliq.protocol.producer import ProducerPool
from reliq_monitor.attempts import each
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey
from reliq_monitor.rotation import Rotation

_EVERY = 0.5  #: seconds between two turns
_AT_ONCE = 1000  #: dead letters of a queue in a turn


class Forwarding(Duty[int]):
    """Sends dead letters on."""

    name = "forward"
    effect = "dead letters of queues with `dead_to` stay where they are"
    interval = _EVERY
    seeks = "dead"

    def __init__(self) -> None:
        self._pool = ProducerPool()
        self._sweeps: dict[str, Sweep] = {}  #: by home, while letters are left
        self._rotation = Rotation[tuple[QueueKeys, str]](lambda target: target[0].queue)

    def keep(self, queues: Container[str]) -> None:
        """Forget the sweeps of all other queues."""
        self._sweeps = {queue: one for queue, one in self._sweeps.items() if queue in queues}

    @property
    def pause(self) -> float:
        return 0.0 if self._rotation.unfinished else super().pause

    def turn(self, survey: Survey) -> Steps[int]:
        """Send dead letters of these queues on for a short time; return how many. The rest waits."""
        attempts, sent = survey.attempts, 0
        queues = survey.found.get(self.seeks, ())
        answers = yield from attempts.together(self.name, queues, each(ops.dead_to))
        for keys, to in self._rotation.turn([(keys, to) for keys, to in answers if to]):
            sweep = self._sweeps.pop(keys.queue, None) or Sweep()
            steps = forward(keys, to, self._pool, _AT_ONCE, sweep)
            sent += yield from attempts.of_queue(self.name, keys, steps, 0, other_server=True)
            if sweep.start is not None:
                self._sweeps[keys.queue] = sweep
        return sent
