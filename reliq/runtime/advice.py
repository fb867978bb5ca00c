"""Warnings about calls that work, and that their caller most likely means otherwise; they name the caller's line."""

import sys
import warnings
from collections.abc import Iterator
from types import FrameType

from reliq.errors import InvalidSetting

_warned_of_blocking = False


def advise(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn as from the line outside of this package that made the call."""
    warnings.warn(text, category, stacklevel=1 + _own_depth())


def renamed(repeats: int | None, retries: int | None) -> int | None:
    """Return the `repeats` of a send, which were named `retries` before 1.0."""
    if retries is None:
        return repeats
    if repeats is not None:
        raise InvalidSetting(f"repeats is {repeats!r} and retries is {retries!r}: give repeats only, its new name")
    advise("retries= of a send is named repeats= now: retries are those of a handler", DeprecationWarning)
    return retries


def warn_of_blocking() -> None:
    """Warn, once in a process, if a call of the synchronous API blocks the event loop that runs in this thread."""
    global _warned_of_blocking
    events = sys.modules.get("asyncio.events")
    if events is None or _warned_of_blocking or events._get_running_loop() is None:  # noqa: SLF001
        return
    called = ""  #: the method of the synchronous API that was called from outside
    for frame in _own_frames(sys._getframe(1)):  # noqa: SLF001
        if frame.f_globals["__name__"].startswith("reliq.client."):
            called = frame.f_code.co_qualname
    if called:
        _warned_of_blocking = True
        advise(
            f"reliq.{called} blocks the event loop until Redis answers: in async functions use reliq.aio.Reliq, and "
            f"await {called.partition('.')[2]}"
        )


def _own_depth() -> int:
    """Return how many frames of this package are above each other, from the caller of this function outwards."""
    return sum(1 for _ in _own_frames(sys._getframe(1)))  # noqa: SLF001


def _own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield this frame and those around it, as far as they are of this package."""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "reliq":
        yield frame
        frame = frame.f_back
