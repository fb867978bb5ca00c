"""What a consumer knows of its messages beyond their elements: cancellations, and the reports of their handlers."""

import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import TypeVar

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.element import Envelope, decode_envelope
from reliq.model.keys import QueueKeys
from reliq.model.life import EVERY, Life, Report
from reliq.model.message import Message
from reliq.ops import Move, Settled, Steps
from reliq.ops.held import Hold, not_held

M = TypeVar("M", Message, Envelope)


def cancelled_of(messages: Iterable[M], told: ops.Told) -> list[M]:
    """Return the messages that were cancelled; one that was sent later under the same id is another one."""
    at = dict(told)
    return [one for one in messages if one.enqueued_at <= at.get(one.id, -1)] if at else []


class Lives:
    """The lives of the messages of one consumer, by element. Most messages have none here."""

    def __init__(self, keys: QueueKeys) -> None:
        self._keys = keys
        self._by_element: dict[bytes, Life] = {}
        self.get = self._by_element.get
        self.clear = self._by_element.clear

    def of(self, message: Message) -> Life:
        """Return the life of a message that is held here."""
        return self._by_element.setdefault(message.element, Life())

    def forget(self, element: bytes) -> None:
        """Forget a message that is not here any more, and will come again."""
        self._by_element.pop(element, None)

    def check_awaited(self, message: Message) -> None:
        """Raise TypeError if an async handler that has ended has left out an await."""
        if (life := self.get(message.element)) is not None:
            life.check_awaited()

    def __bool__(self) -> bool:
        return bool(self._by_element)

    def begin(self, message: Message) -> Steps[None]:
        """Read what an earlier consumer has reported about a message that starts."""
        reported = yield ops.reported(self._keys, message.id)
        if reported is not None and reported.is_about(message.enqueued_at):
            self._by_element[message.element] = Life(reported.state, stored=True)

    def note_cancelled(self, held: Iterable[Message], told: ops.Told) -> list[Message]:
        """Note cancelled messages, by id, with the ms at which they were; return those that were not known to be."""
        new = [one for one in cancelled_of(held, told) if not one.cancelled]
        for message in new:
            self._by_element.setdefault(message.element, Life()).cancelled = True
        return new

    def report(self, consumer: str, message: Message, report: Report, place: int | None) -> Steps[None]:
        """Store a report; raises LeaseLost. Reports of progress that follow too soon are left out.

        `place`: where in the processing list the message should be; None: it is not in the hands of a handler.
        """
        if message.lost or place is None:
            raise not_held(message)
        life = self._by_element.setdefault(message.element, Life())
        now = time.monotonic()
        if report.state is None and report.fraction != 1 and now - life.reported_at < EVERY:
            return
        life.stored = True  # before the call: the message may be settled before its answer is here
        if not (yield ops.report(Hold(self._keys, consumer, message, place), report)):
            raise not_held(message)
        if report.state is None:
            life.reported_at = now
        else:
            life.state = report.state

    def end(self, acks: Sequence[bytes], moves: Sequence[Move], codes: str) -> Steps[None]:
        """Forget settled messages; what Redis has of those that left the queue is deleted."""
        leaving = [(element, True) for element in acks]
        leaving += [(move.element, move.destination.leaves) for move in moves]
        reported, told = [], []
        for (element, leaves), code in zip(leaving, codes, strict=True):
            life = self._by_element.pop(element, None)
            if has_left(code, leaves):
                if life is not None and life.stored:
                    reported.append(_id_of(element))
                if code == Settled.CANCELLED or (life is not None and life.cancelled):
                    told.append(_id_of(element))
        with contextlib.suppress(ReliqError):  # what is left expires
            if reported:
                yield ops.forget_reports(self._keys, reported)
            if told:
                yield ops.forget_told(self._keys, told)


def has_left(code: str, leaves: bool) -> bool:
    """Whether a message that was settled with this code has left its queue; `leaves`: whether it was to."""
    return code == Settled.CANCELLED or (leaves and code == Settled.DONE)


def _id_of(element: bytes) -> str:
    return decode_envelope(element).id
