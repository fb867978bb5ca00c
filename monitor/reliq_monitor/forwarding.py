"""Forwarding: send dead letters on to the queue of `dead_to`."""

import time
from collections.abc import Container, Sequence

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.protocol.forwarding import Round, forward
from reliq.protocol.producer import ProducerPool
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey

_EVERY = 0.5  #: seconds between two turns
_AT_ONCE = 1000  #: dead letters of a queue in a turn
_A_TURN = 0.1  #: seconds for sending them on before the other duties have their turn


class Forwarding(Duty[int]):
    """Sends dead letters on."""

    name = "forward"
    effect = "dead letters of queues with `dead_to` stay where they are"
    interval = _EVERY
    seeks = "dead"

    def __init__(self) -> None:
        self._pool = ProducerPool()
        self._rounds: dict[str, Round] = {}  #: by home, as far as letters are left
        self._latest = ""  #: the queue that had its turn last
        self._unfinished = False  #: whether other queues have had no turn yet

    def keep(self, queues: Container[str]) -> None:
        """Forget the rounds of all other queues."""
        self._rounds = {queue: one for queue, one in self._rounds.items() if queue in queues}

    @property
    def pause(self) -> float:
        return 0.0 if self._unfinished else super().pause

    def turn(self, survey: Survey) -> Steps[int]:
        """Send dead letters of these queues on for a short time; return how many. The rest waits."""
        attempts, sent, self._unfinished = survey.attempts, 0, False
        queues = survey.found.get(self.seeks, ())
        answers = yield from attempts.together(self.name, queues, _targets)
        targets = self._in_turn([(keys, to) for keys, to in answers if to])
        until = time.monotonic() + _A_TURN
        for place, (keys, to) in enumerate(targets, 1):
            round_ = self._rounds.pop(keys.queue, None) or Round()
            steps = forward(keys, to, self._pool, _AT_ONCE, round_)
            some = yield from attempts.of_queue(self.name, keys, steps, 0, elsewhere=True)
            if round_.start is not None:
                self._rounds[keys.queue] = round_
            self._latest, sent = keys.queue, sent + some
            if time.monotonic() >= until:
                self._unfinished = sent > 0 and place < len(targets)
                break
        return sent

    def _in_turn(self, targets: list[tuple[QueueKeys, str]]) -> list[tuple[QueueKeys, str]]:
        """Return the queues, beginning behind the one that had its turn last."""
        first = next((place for place, (keys, _) in enumerate(targets, 1) if keys.queue == self._latest), 0)
        return targets[first:] + targets[:first]


def _targets(queues: Sequence[QueueKeys]) -> Steps[list[str | None]]:
    targets: list[str | None] = yield [ops.dead_to(keys) for keys in queues]
    return targets
