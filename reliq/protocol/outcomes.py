"""The moves of messages that are not acked: released, retried, dead."""

import time

from reliq.contract.values import cut
from reliq.model.element import Failure
from reliq.model.message import Message, undecodable_letter
from reliq.model.result import SKIPPED
from reliq.ops import Destination, Move
from reliq.ops.schema import Counter


def undecodable(element: bytes) -> Move:
    """Move bytes that do not decode to the dead letters."""
    identity, again = undecodable_letter(element)
    return Move(element, Destination.DEAD, Counter.dead("decode"), identity, again, readable=False)


def passed_over(element: bytes) -> Move:
    """Delete the place of a cancelled message."""
    return Move(element, Destination.GONE, Counter.BLANKS_PASSED, readable=False)


def cancelled(one: Message | Move, *, started: bool = True) -> Move:
    """Delete a message that was cancelled while its consumer held it; also in place of another move."""
    return Move(one.element, Destination.GONE, Counter.CANCELLED, one.id, started=started)


def repeated(message: Message) -> Move:
    """Delete a message that was handled before, without a run; who waits for its result learns that."""
    return Move(message.element, Destination.GONE, Counter.ACKED, message.id, SKIPPED)


def expired(message: Message) -> Move:
    """Move a message to the dead letters because it was not started in time."""
    again = message.buried("expired")
    return Move(message.element, Destination.DEAD, Counter.dead("expired"), message.id, again, started=False)


def released(message: Message, delay: float = 0.0, *, started: bool = False) -> Move:
    """Move a message back to the tail of the queue, to be taken next, or after `delay` seconds; not a failure.

    One that was cancelled meanwhile is deleted. `started`: work on it may have begun, as on one that was charged; the
    rates keep what its claim took.
    """
    started = started or _is_charged(message)
    if message.cancelled:
        return cancelled(message, started=started)
    to = Destination.DELAYED if delay else Destination.TAIL
    return Move(message.element, to, Counter.RELEASED, message.id, message.again(), delay, started=started)


def _is_charged(message: Message) -> bool:
    life = message.holder.lives.get(message.element) if message.holder is not None else None
    return life is not None and life.charged


def retried(message: Message, failure: Failure, delay: float) -> Move:
    """Move a message with one more failure back into the queue after `delay` seconds; delete a cancelled one."""
    if message.cancelled:
        return cancelled(message)
    again = message.failed(failure)
    to = Destination.DELAYED if delay else Destination.HEAD
    return Move(message.element, to, Counter.RETRIED, message.id, again, delay)


def buried(message: Message, failure: Failure, reason: str) -> Move:
    """Move a message to the dead letters because its handler failed or refused it."""
    return Move(message.element, Destination.DEAD, Counter.dead(reason), message.id, message.failed(failure, reason))


def failure_now(worker: str, error_class: str, text: str) -> Failure:
    return Failure(time.time_ns() // 1_000_000, worker, cut(error_class, 200), cut(text))
