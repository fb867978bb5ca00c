"""The log of failing handlers: a line for each failure and each death, limited per queue and error class.

A storm of failures must not fill the disk: of one kind, `LINES` lines are written in `WINDOW` seconds; the others are
counted, and one line at the end of the window says how many were left out.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from reliq.contract.values import cut
from reliq.model.element import Failure, Undecodable
from reliq.model.error_text import gist
from reliq.model.message import Message
from reliq.runtime import logging as logs
from reliq.runtime.origin import origin

log = logging.getLogger("reliq.worker")

LINES = 10  #: lines of one kind that are written in a window
WINDOW = 60.0  #: seconds
_MAX_KINDS = 1000  #: error classes that are told apart; further ones share one window per queue
_MAX_TEXT = 300  #: bytes of an error's text in a line; a traceback is as long as the message's history keeps it
_FLUSH_EVERY = 1.0  #: seconds


@dataclass(slots=True)
class _Window:
    began: float
    written: int = 0
    left_out: int = 0


Kind = tuple[str, str, str]  #: event, queue, error class


class FailureLog:
    """Writes the lines of one process. Any thread may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, log: logging.Logger = log) -> None:
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._windows: dict[Kind, _Window] = {}
        self._flushed_at = clock()

    def failed(self, message: Message, failure: Failure, error: BaseException, delay: float) -> None:
        """Log that a handler raised; its message is tried again after `delay` seconds."""
        named, values = "failed queue=%s id=%s", [message.queue, message.id]
        self._failed(named, values, message.failures + 1, failure, error, delay)

    def step_failed(
        self, message: Message, step: str, failures: int, failure: Failure, error: BaseException, delay: float
    ) -> None:
        """Log that a step of a handler raised, for the `failures`-th time; it is tried again after `delay` seconds."""
        named, values = "failed queue=%s id=%s step=%s", [message.queue, message.id, step]
        self._failed(named, values, failures, failure, error, delay)

    def held_back(self, message: Message, rest: str, step: str) -> None:
        """Log that a branch of a handler waits long to let its message rest, or to run a step: another step runs."""
        text = "held_back queue=%s id=%s name=%s by=%s"
        self.write(logging.WARNING, ("held_back", message.queue, ""), text, message.queue, message.id, rest, step)

    def _failed(
        self, named: str, of: list[str], failures: int, failure: Failure, error: BaseException, delay: float
    ) -> None:
        """Log a failure that is tried again; `named`: the beginning of the line, with the values of `of`."""
        template = named + " failures=%d retry_in_seconds=%.1f error_class=%s error=%s"
        values = [*of, failures, delay, failure.error_class, _text(error)]
        if at := origin(error):
            template += " at=%s"
            values.append(at)
        if logs.tracebacks_wanted() or self._log.isEnabledFor(logging.DEBUG):
            template += " exception=%s"
            values.append(failure.text)
        self.write(logging.WARNING, ("failed", of[0], failure.error_class), template, *values)

    def died(self, queue: str, element: bytes) -> None:
        """Log a new dead letter, given as its element, with its latest failure."""
        try:
            letter = Message.decode(queue, element)
        except Undecodable:  # never an element written by reliq
            self.write(logging.ERROR, ("dead", queue, "decode"), "dead queue=%s", queue)
            return
        last, reason = letter.errors[-1] if letter.errors else None, letter.reason
        template = "dead queue=%s id=%s reason=%s failures=%d deliveries=%d"
        values = [queue, letter.id, reason, letter.failures, letter.deliveries]
        if last is not None:
            template += " error_class=%s error=%s exception=%s"
            values += [last.error_class, cut(gist(last), _MAX_TEXT), last.text]
        level = logging.WARNING if reason == "expired" else logging.ERROR
        cause = last.error_class if last and reason in ("max_failures", "rejected") else reason
        self.write(level, ("dead", queue, cause), template, *values)

    def write(self, level: int, kind: Kind, template: str, *values: object, error: BaseException | None = None) -> None:
        """Log a line, or only count it if the limit of its kind is reached."""
        with self._lock:
            window = self._window(kind)
            allowed = window.written < LINES
            window.written += allowed
            window.left_out += not allowed
            first_left_out = window.left_out == 1 and not allowed
        if allowed:
            self._log.log(level, template, *values, exc_info=error)
        elif first_left_out:
            self._log.warning(
                "%s queue=%s error_class=%s: further lines of this kind are counted and not written for up to %g s",
                *kind, WINDOW,
            )  # fmt: skip

    def _window(self, kind: Kind) -> _Window:
        if kind not in self._windows and len(self._windows) >= _MAX_KINDS:
            kind = (kind[0], kind[1], "(other)")
        window = self._windows.get(kind)
        if window is not None and self._clock() - window.began >= WINDOW:
            self._summarize(kind, self._windows.pop(kind))
            window = None
        if window is None:
            window = self._windows[kind] = _Window(self._clock())
        return window

    def flush(self, everything: bool = False) -> None:
        """Log how many lines were left out in the windows that are over, or in all windows."""
        now = self._clock()
        if not everything and now - self._flushed_at < _FLUSH_EVERY:
            return
        with self._lock:
            self._flushed_at = now
            over = [kind for kind, one in self._windows.items() if everything or now - one.began >= WINDOW]
            for kind in over:
                self._summarize(kind, self._windows.pop(kind))

    def _summarize(self, kind: Kind, window: _Window) -> None:
        if window.left_out:
            template = "%s queue=%s error_class=%s left_out=%d: this many further lines in %.0f s were not written"
            self._log.warning(template, *kind, window.left_out, self._clock() - window.began)


def _text(error: BaseException) -> str:
    try:
        return cut(str(error), _MAX_TEXT)
    except BaseException:  # noqa: BLE001  the exception's own __str__ raises
        return "<exception str() failed>"  # as in a traceback


failures = FailureLog()  #: of this process
