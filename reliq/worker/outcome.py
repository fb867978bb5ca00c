"""A handler's fate: what becomes of the message after it returned or raised. Decided here, in one place."""

import logging
import traceback

from reliq.consumer import buried, failure_now, retried
from reliq.handlers import Again, Dead, Handler, Policy, Retry
from reliq.message import Message
from reliq.once import Finished
from reliq.ops import Move

log = logging.getLogger("reliq.worker")

_WHEN_POLICY_FAILS = 60.0  #: seconds; a back-off that raises must not cost the message


def after_return(message: Message, result: object) -> Move | None:
    """None: ack. A handler that returns Again puts its message back; one that runs once leaves a mark."""
    if isinstance(result, Finished):
        return result.move(message)
    if not isinstance(result, Again):
        return None
    delay = float(result.delay)  # type: ignore[arg-type]
    again = message.again(failures=0, deliveries=0, redelivered=False)
    if message.in_cycle:
        return Move(message.element, "rest" if delay else "round", "requeued", message.id, again, delay)
    return Move(message.element, "delayed" if delay else "head", "requeued", message.id, again, delay)


def after_error(handler: Handler, message: Message, error: BaseException, worker: str) -> Move:
    """Tried again later, or a dead letter, as the handler's policy says."""
    failure = failure_now(worker, _class_name(error), _text(error))
    if handler.policy.rejects(error):
        return buried(message, failure, "rejected")
    delay = _delay(handler.policy, message, error)
    if delay is None:
        return buried(message, failure, "max_failures")
    return retried(message, failure, delay)


def _delay(policy: Policy, message: Message, error: BaseException) -> float | None:
    try:
        return policy.delay(message.failures + 1, error)
    except BaseException:  # also sys.exit(): it must cost neither the message nor the worker
        log.exception("the back-off of queue=%s raised; the message waits %g s", message.queue, _WHEN_POLICY_FAILS)
        return _WHEN_POLICY_FAILS


def _class_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error) if isinstance(error, (Retry, Dead)) else "".join(traceback.format_exception(error))
    except BaseException:  # an exception whose own __str__ raises
        return _class_name(error)
