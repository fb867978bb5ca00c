"""Check-backs: ask the application about prepared messages that their producer has not decided."""

import asyncio
import inspect
import logging
import threading

from reliq.errors import PreparedClosed, ReliqError
from reliq.features.prepared.decorator import CheckBack
from reliq.features.prepared.steps import PreparedQueue
from reliq.model.handlers import Handlers
from reliq.model.message import Message
from reliq.model.signatures import HandlerFunction
from reliq.protocol.homes import QueueHomes
from reliq.protocol.producer import ProducerPool
from reliq.runtime.failures import failures
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store
from reliq.worker.companion import Companion

log = logging.getLogger("reliq.worker")

_LOOK_EVERY = 0.5  #: seconds between two polls for questions


class CheckBacks(Companion):
    """Takes the monitor's questions, one at a time, and decides as the application answers.

    A question that is taken but not answered (no answer yet, an exception, a crash) is put again by the monitor. If two
    processes thus answer one question, the first decision counts.
    """

    def __init__(self, store: Store, handlers: Handlers, owner: str) -> None:
        self._store = store
        pool = ProducerPool()
        checks = handlers.declared(CheckBack)
        self._checks = [(PreparedQueue(QueueHomes(one.queue, pool), pool), one.function) for one in checks]
        self._stopping = threading.Event()

    def start(self) -> None:
        """Take questions from now on, in a thread of its own."""
        threading.Thread(target=self.run, name="reliq-checks", daemon=True).start()

    def run(self) -> None:
        outage = OutageLog(log, "check-back")
        while self._checks and not self._stopping.wait(_LOOK_EVERY):
            try:
                for steps, check in self._checks:
                    self._answer(steps, check)
            except ReliqError as error:
                outage.failed(error)
            except Exception:
                log.exception("the check-backs of this worker could not be looked up")
            else:
                outage.over()

    def stop(self) -> None:
        """Take no further question; the current one is still answered."""
        self._stopping.set()

    def _answer(self, steps: PreparedQueue, check: HandlerFunction) -> None:
        while not self._stopping.is_set():
            message = self._store.run(steps.question())
            if message is None:
                return
            answer = _asked(check, message)
            log.info("checked queue=%s id=%s answer=%s", message.queue, message.id, answer)
            try:
                if answer is True:
                    self._store.run(steps.commit(message.id))
                elif answer is False:
                    self._store.run(steps.rollback(message.id))
            except PreparedClosed as closed:
                text = "checked queue=%s id=%s outcome=%s: it was decided before this answer"
                log.warning(text, message.queue, message.id, closed.outcome)


def _asked(check: HandlerFunction, message: Message) -> bool | None:
    """Return the application's answer; None, also after an exception, means: ask again later."""
    try:
        answer = check(message)
        if inspect.iscoroutine(answer):
            answer = asyncio.run(answer)
    except BaseException as error:  # even sys.exit(): the worker goes on
        kind = ("check_back_failed", message.queue, type(error).__qualname__)
        text = "check_back_failed queue=%s id=%s error_class=%s: it is asked again later"
        failures.write(logging.ERROR, kind, text, message.queue, message.id, kind[2], error=error)
        return None
    if answer is None or isinstance(answer, bool):
        return answer
    kind = ("check_back_failed", message.queue, f"answer of type {type(answer).__name__}")
    text = "check_back_failed queue=%s id=%s error_class=%s: it must return True, False or None"
    failures.write(logging.ERROR, kind, text, message.queue, message.id, kind[2])
    return None
