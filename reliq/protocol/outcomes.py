"""The moves of messages that are not acked: released, retried, dead."""

import time

from reliq.contract.values import cut
from reliq.model.element import Failure
from reliq.model.message import Message, undecodable_letter
from reliq.ops import Destination, Move, Unspent
from reliq.ops.schema import Counter


def undecodable(element: bytes) -> Move:
    """Move bytes that do not decode to the dead letters."""
    identity, again = undecodable_letter(element)
    return Move(element, Destination.DEAD, Counter.dead("decode"), identity, again, readable=False)


def passed_over(element: bytes) -> Move:
    """Delete the place of a cancelled message."""
    return Move(element, Destination.GONE, Counter.BLANKS_PASSED, readable=False)


def cancelled(one: Message | Move, unspent: Unspent | None = None) -> Move:
    """Delete a message that was cancelled while its consumer held it; also in place of another move."""
    return Move(one.element, Destination.GONE, Counter.CANCELLED, one.id, unspent=unspent)


def repeated(message: Message) -> Move:
    """Delete a message that was handled before, without a run."""
    return Move(message.element, Destination.GONE, Counter.ACKED, message.id)


def expired(message: Message) -> Move:
    """Move a message to the dead letters because it was not started in time."""
    again, unspent = message.buried("expired"), unspent_on(message)
    return Move(message.element, Destination.DEAD, Counter.dead("expired"), message.id, again, unspent=unspent)


def released(message: Message, delay: float = 0.0, *, spent: bool = False) -> Move:
    """Move a message back to the tail of the queue, to be taken next, or after `delay` seconds; not a failure.

    One that was cancelled meanwhile is deleted. The rates get back what its claim took, unless that is `spent`.
    """
    unspent = None if spent else unspent_on(message)
    if message.cancelled:
        return cancelled(message, unspent)
    to = Destination.DELAYED if delay else Destination.TAIL
    return Move(message.element, to, Counter.RELEASED, message.id, message.again(), delay, unspent=unspent)


def unspent_on(message: Message) -> Unspent:
    """Return what a claim within limits took for a message, for one that is not started."""
    return message.group, message.cost


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
