"""Waiting for several homes at once. Written by hand: here a thread waits, in `reliq.aio.home_waiter` a task."""

import threading
import time
from collections.abc import Sequence

from reliq.transport.key_waiter import KeyWaiter, left_to_others
from reliq.transport.store import Store


class HomeWaiter(KeyWaiter):
    """Waits until one of several homes may have messages."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._woken = threading.Event()

    def wait(self, keys: Sequence[str], seconds: float, unwatched: float, in_vain: int) -> bool:
        """Wait until one of the keys may exist, at most so many seconds; return whether that was told.

        `unwatched`: seconds to wait at most where the server does not tell. `in_vain`: how often in a row that was
        told, and then others were faster: they are left a moment, which doubles.
        """
        if in_vain:
            time.sleep(min(seconds, unwatched, left_to_others(in_vain)))
        self._woken.clear()
        watched = self._watch(keys)
        return self._woken.wait(seconds if watched else min(seconds, unwatched))

    def _wake(self) -> None:
        self._woken.set()
