"""The steps that read the result of a message, or wait for it."""

import time
from collections.abc import Sequence
from typing import Any

from reliq import ops
from reliq.contract.values import Duration, check_id, seconds
from reliq.errors import HandlerFailed, NoResult, QueueFull
from reliq.features.results import ops as own
from reliq.features.results.ops import Returned
from reliq.model.dead_letter import DeadLetter
from reliq.model.error_text import classed_gist
from reliq.model.keys import QueueKeys
from reliq.model.result import CANCELLED, DEAD, SKIPPED, read_result
from reliq.ops import Steps, Together
from reliq.protocol.homes import QueueHomes, checked
from reliq.protocol.listing import read_letter

ASK_EVERY = 0.2  #: seconds between two questions to all homes of a queue
LOOK_EVERY = 5.0  #: seconds between two looks at the dead letters: a monitor that makes one tells no one who waits


def result_of(homes: QueueHomes, identity: str, wait: Duration) -> Steps[Any]:
    """Return what the handler of a message returned; raises HandlerFailed; NoResult if `wait` ends first."""
    return read_result((yield from stored_result(homes, identity, wait)))


def stored_result(homes: QueueHomes, identity: str, wait: Duration) -> Steps[bytes]:
    """Return the same as it is stored.

    The only home of a queue tells that there is a result; several are asked, again and again.
    """
    check_id(identity)
    left = seconds(wait, "wait")
    until = time.monotonic() + left
    while True:
        every = [one.keys for one in (yield from homes.every())]  # each time: their number may change meanwhile
        if len(every) == 1:
            answer = yield from look(every[0], identity, left)
            stored = answer.result
        else:
            stored = yield from look_at_all(every, identity)
        if stored is not None:
            return stored
        left = until - time.monotonic()
        if left <= 0:
            raise missing(every[0], identity)
        if len(every) == 1:
            yield from _wait(every[0], identity, answer.since, min(left, LOOK_EVERY))
        else:
            yield ops.Sleep(min(ASK_EVERY, left))


def look_at_all(every: Sequence[QueueKeys], identity: str) -> Steps[bytes | None]:
    """Read the stored result of a message from whichever home has one; raises as `look` does."""
    answers = yield Together([look(one, identity) for one in every])
    found = next((one.result for one in answers if isinstance(one, Returned) and one.result is not None), None)
    if found is None:
        checked(answers)
    return found


def look(keys: QueueKeys, identity: str, wait: float = 0.0) -> Steps[Returned]:
    """Read the stored result, if there is one; raises HandlerFailed, and NoResult for a cancelled or skipped message.

    `wait`: note that the caller waits so many seconds for it.
    """
    answer = yield from _read(keys, identity, wait)
    stored = answer.result
    if stored is None or stored == DEAD:
        letter = yield from read_letter(keys, identity)
        if letter is not None:
            raise _failed(letter)
    if stored == CANCELLED:
        raise NoResult(f"message {identity} of {keys.logical!r} was cancelled while it was handled")
    if stored == SKIPPED:
        raise NoResult(
            f"message {identity} of {keys.logical!r} was skipped as a duplicate (once=): one with the same mark was "
            "handled before"
        )
    if stored == DEAD:  # and redriven or removed since
        return Returned(None, (yield own.last_answer(keys)))
    return answer


def has_result(keys: QueueKeys, identity: str) -> Steps[bool]:
    return (yield own.result(keys, identity)).result is not None


def missing(keys: QueueKeys, identity: str) -> NoResult:
    """Return the error for a message that has no result."""
    return NoResult(
        f"message {identity} of {keys.logical!r} has no result: it is not handled yet, or its handler keeps none "
        f'(@app.handler({keys.logical!r}, result="1h"))'
    )


def _read(keys: QueueKeys, identity: str, wait: float) -> Steps[Returned]:
    try:
        answer: Returned = yield own.result(keys, identity, wait)
    except QueueFull:  # Redis cannot note that someone waits: the next look is after LOOK_EVERY
        answer = yield own.result(keys, identity)
    return answer


def _wait(keys: QueueKeys, identity: str, since: bytes, wait: float) -> Steps[None]:
    """Wait until the message is named among the latest results, and at most so many seconds."""
    until = time.monotonic() + wait
    while (left := until - time.monotonic()) > 0:
        answered = yield own.answered(keys, identity, since, left)
        if answered is None:
            continue
        since, ids = answered
        if identity in ids:
            return


def _failed(letter: DeadLetter) -> HandlerFailed:
    last = letter.last_error
    error = classed_gist(last) if last else ""
    text = f"message {letter.id} of {letter.queue!r} is a dead letter, reason {letter.reason}"
    return HandlerFailed(f"{text}: {error}" if error else text, letter.reason, error)
