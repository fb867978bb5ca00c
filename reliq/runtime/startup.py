"""Signals while a command of reliq starts: they end it without a traceback, whatever it is importing.

`reliq` imports this module before all others. Until a service has handlers of its own, SIGTERM and SIGINT end the
process at once: it holds no message yet. In other commands Ctrl-C does so until all is imported. In a program that only
imports `reliq`, nothing changes.

A service that shuts down cleanly has the exit status 0 after SIGTERM, and 130 after SIGINT, which Ctrl-C sends.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

SERVICES = ("worker", "monitor", "api", "sqs", "dev")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED = 130  #: exit status after Ctrl-C


class _Start:
    """The state of the process while it starts."""

    requested = False  #: a signal has arrived
    interrupted = False  #: it was SIGINT
    exits = True  #: a signal ends the process at once


def is_command(arguments: Sequence[str], interpreter_arguments: Sequence[str]) -> bool:
    """Whether `sys.argv` and `sys.orig_argv`, at the import of `reliq`, are those of its command line."""
    if arguments[:1] == ["-m"]:  # Python imports the package before it runs its __main__
        given = list(interpreter_arguments)
        return any(given[at : at + 2] == ["-m", "reliq"] for at in range(len(given)))
    return len(arguments) > 0 and arguments[0].rpartition(os.sep)[2] == "reliq"


def is_service(arguments: Sequence[str], interpreter_arguments: Sequence[str]) -> bool:
    """Whether they are those of a service."""
    return len(arguments) > 1 and arguments[1] in SERVICES and is_command(arguments, interpreter_arguments)


def begin_command() -> None:
    """Make Ctrl-C end the process at once from now on, unless it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def imported() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again: the command can say how it ended."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def begin() -> None:
    """Handle the signals from now on; signals that a supervisor has held back arrive now."""
    for number in _SIGNALS:
        signal.signal(number, _handle)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _handle(number: int, frame: FrameType | None) -> None:
    _note(number)
    if _Start.exits:
        # No SystemExit: msgspec 0.22 crashes when one is raised while it reads a type, as modules do at their import.
        os._exit(end_status(0))


def _note(number: int) -> None:
    _Start.requested = True
    _Start.interrupted = _Start.interrupted or number == signal.SIGINT


def end_status(status: int) -> int:
    """Return the exit status of a service that ends with this one: 130 in place of 0 after Ctrl-C."""
    return INTERRUPTED if status == 0 and _Start.interrupted else status


def note_only() -> None:
    """Only note signals from now on, for `take_over`."""
    _Start.exits = False


def take_over(stop: Callable[[], None]) -> None:
    """Make each signal call `stop`, in a thread of its own; call it at once if one has been noted.

    A signal handler may interrupt the very code that holds the lock which `stop` needs, such as that of an Event; only
    `SimpleQueue.put` may be called there.
    """
    import threading  # here: the signals must be handled before anything else is imported
    from queue import SimpleQueue

    arrived: SimpleQueue[int] = SimpleQueue()

    def stop_for_each() -> None:
        while True:
            arrived.get()
            stop()

    def handle(number: int, frame: FrameType | None) -> None:
        _note(number)
        arrived.put(number)

    threading.Thread(target=stop_for_each, name="reliq-signals", daemon=True).start()
    for number in _SIGNALS:
        signal.signal(number, handle)
    if _Start.requested:
        stop()


@contextlib.contextmanager
def until_stopped() -> Iterator[None]:
    """End this block at a signal wherever it is, also where it waits for Redis: for commands that only look."""

    def handle(number: int, frame: FrameType | None) -> None:
        _note(number)
        raise KeyboardInterrupt

    for number in _SIGNALS:
        signal.signal(number, handle)
    with contextlib.suppress(KeyboardInterrupt):
        yield


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """Hold back SIGTERM from `reliq` processes started in this context, until they can handle it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


if is_service(sys.argv, sys.orig_argv):
    begin()
elif is_command(sys.argv, sys.orig_argv):
    begin_command()
