"""Outcomes: what happens to a message after its handler returned or raised."""

import logging
from dataclasses import replace

from reliq.errors import InvalidBody, QueueFull, TimeLimitExceeded
from reliq.model.backoff import exponential
from reliq.model.handlers import Handler
from reliq.model.message import Message
from reliq.model.policy import Again, Dead, Policy, Retry
from reliq.model.signatures import refuse_unrun
from reliq.ops import Destination, Move
from reliq.ops.schema import Counter
from reliq.protocol.outcomes import buried, cancelled, failure_now, released, retried
from reliq.runtime.failures import failures
from reliq.runtime.origin import traceback_of
from reliq.worker.once import Finished, MarkUnknown, Repeated, looks_up

_WHEN_MARK_IS_UNKNOWN = 1.0  #: seconds until the next try after the mark could not be read
_WHEN_REDIS_IS_FULL = 5.0  #: seconds until the next try after Redis had no memory for what the handler asked of it


def after_return(message: Message, result: object) -> Move | None:
    """Return the move after a return: None is an ack, Again puts the message back, a run-once handler writes a mark.

    A message that was cancelled meanwhile is not put back.
    """
    if result is None:
        return None
    refuse_unrun(result)
    if isinstance(result, (Finished, Repeated)):
        return result.move(message)
    if not isinstance(result, Again):
        return None
    if message.cancelled:
        return cancelled(message)
    delay = float(result.delay)  # type: ignore[arg-type]
    again = message.again(failures=0, deliveries=0, redelivered=False)
    if message.in_cycle:
        destination = Destination.REST if delay else Destination.ROUND
    else:
        destination = Destination.DELAYED if delay else Destination.HEAD
    return Move(message.element, destination, Counter.REQUEUED, message.id, again, delay)


def after_error(handler: Handler, message: Message, error: BaseException, worker: str) -> Move:
    """Return the move after an error: a retry or a dead letter, by the policy; a release if the handler never began.

    Logs a failure that is tried again; a death is logged after it is settled.
    """
    if isinstance(error, MarkUnknown) or (isinstance(error, TimeLimitExceeded) and looks_up(message)):
        return released(message, _WHEN_MARK_IS_UNKNOWN, started=True)
    if isinstance(error, QueueFull) and error.of_redis:
        text = "redis_full queue=%s id=%s error=%s: tried again in %g s, not as a failure"
        kind = ("redis_full", message.queue, type(error).__qualname__)
        failures.write(logging.WARNING, kind, text, message.queue, message.id, error, _WHEN_REDIS_IS_FULL)
        return released(message, _WHEN_REDIS_IS_FULL, started=True)
    failure = failure_now(worker, _class_name(error), _text(error))
    if isinstance(error, InvalidBody):
        return buried(message, failure, "invalid")
    if handler.policy.rejects(error):
        return buried(message, failure, "rejected")
    delay = _delay(handler.policy, message, error)
    if delay is None:
        return buried(message, failure, "max_failures")
    if not message.lost:  # else the failure does not count: the lease is lost, or the time limit was logged
        failures.failed(message, failure, error, delay)
    return retried(message, failure, delay)


def _delay(policy: Policy, message: Message, error: BaseException) -> float | None:
    """Return the seconds until the next try; the default back-off decides where the handler's own one fails."""
    try:
        return policy.delay(message.failures + 1, error)
    except BaseException as raised:  # even sys.exit(): it must cost neither the message nor the worker
        delay = replace(policy, backoff=exponential()).delay(message.failures + 1, error)
        then = "is a dead letter" if delay is None else f"is tried again after {delay:.1f} s"
        kind = ("back_off_failed", message.queue, _class_name(raised))
        text = "back_off_failed queue=%s id=%s error_class=%s: by the default back-off the message %s"
        failures.write(logging.ERROR, kind, text, message.queue, message.id, kind[2], then, error=raised)
        return delay


def _class_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        deliberate = isinstance(error, (Retry, Dead, InvalidBody)) and error.__cause__ is None
        return str(error) if deliberate else traceback_of(error)
    except BaseException:  # the exception's own __str__ raises
        return _class_name(error)
