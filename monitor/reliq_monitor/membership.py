"""Membership: the monitors that share the queues of a server, as this server knows them.

Each notes its presence several times a second by the server's clock. One that is killed or paused is missing soon, and
the others lead its queues. Two that lead the same queue for a moment are harmless: every duty is correct with any
number of monitors.
"""

import logging
import secrets
from collections.abc import Sequence

from reliq import ops
from reliq.ops import Steps
from reliq_monitor.shares import leads, share_of

log = logging.getLogger("reliq.monitor")

DUTY = "members"
BEAT_EVERY = 0.4  #: seconds
BEAT_OF_COMMON_EVERY = 1.0  #: seconds, for work of a cluster that belongs to no queue: each beat is six commands
_MISSED = 3  #: beats without which a monitor is gone; the next one of the others shows it: 1.6 s at most for queues
MOST_LEADING = 8  #: the others are spares: each that leads costs Redis some commands, however few its queues are


class Membership:
    """One monitor among those that share the queues of a server."""

    def __init__(self, tag: str, beat_every: float = BEAT_EVERY) -> None:
        """`tag`: the hash tag of the keys. `beat_every`: seconds."""
        self.beat_every = beat_every
        self.id = secrets.token_hex(8)
        self._tag = tag
        self._leading: Sequence[str] | None = None  #: None: the others are not known
        self._changed = False
        self.was_missed = False  #: whether the others took this monitor for gone until the latest beat
        self.alive = 0  #: monitors; 0: they are not known

    @property
    def leading(self) -> bool:
        """Whether this monitor has a share; while the others are not known it leads everything."""
        return self._leading is None or self.id in self._leading

    @property
    def known(self) -> bool:
        """Whether the monitors are known."""
        return self._leading is not None

    def changed(self) -> bool:
        """Whether other monitors lead than at the last call."""
        changed, self._changed = self._changed, False
        return changed

    def beat(self) -> Steps[bool]:
        """Note that this monitor is alive, and read which ones lead."""
        answer = yield ops.attend(self._tag, self.id, _MISSED * self.beat_every, MOST_LEADING)
        if answer.leading != self._leading:
            self._changed = True
            log.info("joined monitors=%d leading=%d: this one %s", answer.alive, len(answer.leading),
                     "leads its share of the queues" if self.id in answer.leading else "is a spare")  # fmt: skip
        self.was_missed = answer.new and self.known
        self._leading, self.alive = answer.leading, answer.alive
        return True

    def unknown(self) -> None:
        """Note that the others cannot be read: this monitor leads everything that it reaches."""
        self._changed, self.was_missed = self._changed or self.known, False
        self._leading, self.alive = None, 0

    def resign(self) -> Steps[None]:
        """Leave: the others lead this monitor's queues with their next beat."""
        yield ops.resign(self._tag, self.id)

    def share(self, queues: Sequence[str]) -> list[str]:
        """Return the queues that this monitor leads."""
        return list(queues) if self._leading is None else share_of(self.id, self._leading, queues)

    def leads(self, work: str) -> bool:
        """Whether this monitor leads a piece of work that belongs to no queue."""
        return self._leading is None or leads(self.id, self._leading, work)
