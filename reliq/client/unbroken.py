"""Calls that are not broken off half way. Written by hand, as `reliq.aio.unbroken`: a thread cannot be cancelled."""

import threading
from typing import TypeVar

T = TypeVar("T")

Lock = threading.RLock  # the handler of a signal may settle, in the middle of another call


def interrupts(lock: "threading.RLock") -> bool:
    """Whether the caller has interrupted the very call that holds the lock, as the handler of a signal does."""
    return lock._is_owned()  # type: ignore[attr-defined, no-any-return]  # noqa: SLF001


def acquire(lock: "threading.RLock", seconds: float) -> bool:
    """Acquire the lock unless that takes longer."""
    return lock.acquire(timeout=seconds)


def finish(result: T) -> T:
    return result


def bring(messages: T, give_back: object, on_cancel: object = None, broken_off: object = None) -> T:
    return messages
