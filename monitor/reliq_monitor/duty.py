"""Duty: work that a monitor does for its queues again and again. `reliq_monitor.duties` lists all of them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Container
from typing import Any, ClassVar, Generic, TypeVar

from reliq.model.keys import QueueKeys
from reliq.ops import Op, Steps
from reliq_monitor.attempts import each
from reliq_monitor.queue_scan import Survey

T = TypeVar("T")


class Duty(ABC, Generic[T]):
    """One duty of one monitor, with what it remembers between two turns."""

    name: ClassVar[str]  #: in the log, the metrics and the runbook
    effect: ClassVar[str]  #: for the runbook, as Markdown: what happens while it fails
    interval: ClassVar[float | None] = None  #: seconds between two turns; None: a turn after each look at the queues
    seeks: ClassVar[str] = ""  #: the key of a queue that shows work; each look finds the queues that have it
    of_queues: ClassVar[bool] = True  #: whether it works on queues
    common: ClassVar[str] = ""  #: its work that belongs to no queue, which one of the monitors does
    optional_parts: ClassVar[tuple[str, ...]] = ()  #: they fail under names of their own; it is done without them, too

    brings_due: ClassVar[bool] = False  #: whether a turn makes messages ready because time has passed

    @abstractmethod
    def turn(self, survey: Survey) -> Steps[T]:
        """Do a bounded amount of the work that is due; return what was done.

        A failure in one queue must not stop the others: `survey.attempts`.
        """

    @property
    def pause(self) -> float:
        """Seconds from the end of a turn until the next one; infinite: after the next look."""
        return math.inf if self.interval is None else self.interval

    def keep(self, queues: Container[str]) -> None:
        """Forget what is remembered about all other queues: other monitors lead them."""

    def has_work(self, survey: Survey) -> bool:
        """Whether this monitor leads anything that the duty works on."""
        return (self.of_queues and bool(survey.queues)) or self.common in survey.common


class DueDuty(Duty[int]):
    """Makes messages ready whose time has come, by one call a queue that has the key `seeks`."""

    brings_due = True

    @staticmethod
    @abstractmethod
    def call(keys: QueueKeys) -> Op[Any]:
        """Return the op for a queue; its answer is a tuple whose first item counts the messages made ready."""

    def turn(self, survey: Survey) -> Steps[int]:
        """Make the due messages of these queues ready; return how many."""
        queues = survey.found.get(self.seeks, ())
        answers = yield from survey.attempts.together(self.name, queues, each(self.call))
        return sum(count for _, (count, *_) in answers)
