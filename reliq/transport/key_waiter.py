"""The part of `HomeWaiter` that `reliq.aio` and `reliq.client` share: which keys are empty."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from reliq.transport.server import Server

_MOMENT = 0.001  #: seconds, which double
_DOUBLINGS = 10


def left_to_others(in_vain: int) -> float:
    """Return the seconds to wait after others were faster so often in a row: they are given time to go on."""
    return _MOMENT * (1 << min(in_vain, _DOUBLINGS))


class KeyWaiter(ABC):
    """Knows which keys are empty: one that was stays so until the watch says that it may exist."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._empty: set[str] = set()

    def known_empty(self, key: str) -> bool:
        """Whether the key did not exist when it was last asked about, and has not changed since."""
        return key in self._empty

    def _watch(self, keys: Sequence[str]) -> bool:
        """Let the watch notify of these keys, which were empty a moment ago; return whether it watches all of them."""
        new = [key for key in keys if key not in self._empty]
        self._empty.update(new)
        unwatched = self._server.watches.add_waiter(new, self)
        self._empty.difference_update(unwatched)
        return not unwatched

    def notify(self, key: str) -> None:
        """Note that a key may exist; called in the thread of the watch."""
        self._empty.discard(key)
        self._wake()

    @abstractmethod
    def _wake(self) -> None:
        """Let the caller go on; called in the thread of the watch."""
