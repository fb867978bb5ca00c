"""Handlers that run once: a mark in Redis outlives the message and says that it was handled.

The mark is written by the settle that removes the message, even if the lease was lost meanwhile: the next consumer of
the message finds the mark and settles the message without running the handler.
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.handlers import Handler
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.policy import Again
from reliq.model.result import Answer
from reliq.model.signatures import HandlerFunction, refuse_unrun
from reliq.ops import Destination, Mark, Move
from reliq.ops.schema import Counter
from reliq.protocol.outcomes import repeated
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store
from reliq.worker.threads import in_thread

log = logging.getLogger("reliq.worker")


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a guarded handler: the message is done, and this mark is to be written."""

    mark: Mark
    result: bytes = b""  #: what is stored for those who wait for it

    def move(self, message: Message) -> Move:
        return Move(message.element, Destination.DONE, Counter.ACKED, message.id, self.result, mark=self.mark)


class Repeated:
    """The result of a guarded handler that was not run, because the message was handled before."""

    def move(self, message: Message) -> Move:
        return repeated(message)


class MarkUnknown(Exception):
    """The mark could not be read, so the handler was not run; not a failure of the message."""


_looking_up: set[bytes] = set()  #: elements of the messages with a pending look-up
_began: dict[bytes, float] = {}  #: by element: when the handler began, after the look-up; by time.monotonic()


def looks_up(message: Message) -> bool:
    """Whether the message's handler has not begun because its mark is still being read."""
    return message.element in _looking_up


def began(message: Message, started: float) -> float:
    """Return when the handler of a message began, whose run has `started` with the look-up."""
    return _began.get(message.element, started)


@contextlib.contextmanager
def _look_up(message: Message) -> Iterator[None]:
    """Note that the mark is being read and, at the end of that, that the handler begins."""
    _looking_up.add(message.element)
    try:
        yield
        _began[message.element] = time.monotonic()
    finally:
        _looking_up.discard(message.element)


def guarded(handler: Handler, store: Store) -> HandlerFunction:
    """Return the handler's function, guarded: it runs only for messages without a mark."""
    function, keys = handler.function, QueueKeys(handler.queue)
    outage = OutageLog(log, f"queue={handler.queue} looking up what was handled before")

    def begun(message: Message) -> Finished | None:
        mark = keys.done(_identity(handler, message))
        try:
            handled = store.call(ops.was_handled(mark))
        except ReliqError as error:
            outage.failed(error)
            raise MarkUnknown(str(error)) from None
        outage.over()
        if message.lost:  # released meanwhile
            raise MarkUnknown("the answer came too late")
        if not handled:
            return Finished(Mark(mark, handler.once_for))
        log.info("repeat queue=%s id=%s: it was handled before", handler.queue, message.id)
        return None

    def run(message: Message) -> Any:
        try:
            with _look_up(message):
                finished = begun(message)
            return _outcome(function(message), finished) if finished else Repeated()
        finally:
            _began.pop(message.element, None)

    async def run_async(message: Message) -> Any:
        try:
            with _look_up(message):  # it may wait for a thread
                finished = await in_thread(begun, message)
            return _outcome(await function(message), finished) if finished else Repeated()
        finally:
            _began.pop(message.element, None)

    return run_async if handler.is_async else run


def _identity(handler: Handler, message: Message) -> str:
    """Return the identity of a message; a first letter keeps ids and header values apart."""
    key = message.headers.get(handler.once) if isinstance(handler.once, str) else None
    return f"i{message.id}" if key is None else f"h{key}"


def _outcome(result: object, finished: Finished) -> object:
    refuse_unrun(result)
    if isinstance(result, Again):
        return result
    return replace(finished, result=result.stored) if isinstance(result, Answer) else finished
