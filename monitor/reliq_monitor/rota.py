"""Rota: the duties of one monitor in the order of their turns, and when each has its next one."""

import logging
import math
import time
from collections.abc import Container, Iterable
from typing import Any, TypeVar

from reliq.errors import ReliqError
from reliq.ops import Steps
from reliq_monitor.attempts import Attempts
from reliq_monitor.calls import Calls
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey

log = logging.getLogger("reliq.monitor")

T = TypeVar("T")


class _Entry:
    """A duty, and when it has its next turn."""

    def __init__(self, duty: Duty[Any]) -> None:
        self.duty = duty
        self.next_at = math.inf if duty.interval is None else 0.0  #: by time.monotonic()
        self.looked_at = 0.0  #: of the survey in its latest turn

    def is_due(self, survey: Survey) -> bool:
        if not self.duty.has_work(survey):
            return False
        is_new = self.duty.interval is None and survey.looked_at != self.looked_at
        return is_new or time.monotonic() >= self.next_at


class Rota:
    """Lets each duty have its turns, and handles what a duty does not handle itself."""

    def __init__(self, duties: Iterable[type[Duty[Any]]], calls: Calls, attempts: Attempts, pause: float) -> None:
        """`pause`: seconds without a turn for a duty that fails as a whole."""
        self._entries = {duty: _Entry(duty()) for duty in duties}
        self._calls = calls
        self._attempts = attempts
        self._pause = pause

    def duty_of(self, duty: type[Duty[T]]) -> Duty[T]:
        """Return the duty of this class."""
        return self._entries[duty].duty

    @property
    def seeks(self) -> list[str]:
        """The keys that a look seeks for the duties."""
        return [duty.seeks for duty in self._entries if duty.seeks]

    @property
    def optional_parts(self) -> list[str]:
        """The names of failures with which each duty is done nevertheless."""
        return [name for duty in self._entries for name in duty.optional_parts]

    def keep(self, queues: Container[str]) -> None:
        """Forget what is remembered about all other queues."""
        for entry in self._entries.values():
            entry.duty.keep(queues)

    def turn(self, survey: Survey) -> float:
        """Perform the duties that are due; return the seconds until the next one is, infinite: after the next look."""
        for entry in self._entries.values():
            if entry.is_due(survey):
                self._perform(entry, survey)
        waiting = [entry.next_at for entry in self._entries.values() if entry.duty.has_work(survey)]
        return max(0.0, min(waiting, default=math.inf) - time.monotonic())

    def _perform(self, entry: _Entry, survey: Survey) -> None:
        duty = entry.duty
        done = self._calls.run(self._attempts.of_all(duty.name, _done(duty, survey), otherwise=False, item="turn"))
        entry.looked_at = survey.looked_at
        entry.next_at = time.monotonic() + (duty.pause if done else self._pause)


def _done(duty: Duty[Any], survey: Survey) -> Steps[bool]:
    try:
        yield from duty.turn(survey)
    except ReliqError:
        raise
    except Exception:
        log.exception("a turn of duty=%s failed", duty.name)
        raise
    return True
