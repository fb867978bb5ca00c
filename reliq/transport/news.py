"""What a caller who waits for several homes knows of their keys. `reliq.aio.news` and `reliq.client.news` wait."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from reliq.transport.server import Server

_MOMENT = 0.001  #: seconds, which double
_DOUBLINGS = 10


def left_to_others(in_vain: int) -> float:
    """Return the seconds to wait after others were faster so often in a row: they are given time to go on."""
    return _MOMENT * (1 << min(in_vain, _DOUBLINGS))


class News(ABC):
    """What one caller knows of some keys: one that was empty stays so until the watch says that it may exist."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._empty: set[str] = set()

    def known_empty(self, key: str) -> bool:
        """Whether the key did not exist when it was last asked about, and has not changed since."""
        return key in self._empty

    def _expect(self, keys: Sequence[str]) -> bool:
        """Have the watch tell of these keys, which were empty a moment ago; return whether it will, of each."""
        new = [key for key in keys if key not in self._empty]
        self._empty.update(new)
        unwatched = self._server.watches.tell(new, self)
        self._empty.difference_update(unwatched)
        return not unwatched

    def told(self, key: str) -> None:
        """Note that a key may exist; called in the thread of the watch."""
        self._empty.discard(key)
        self._wake()

    @abstractmethod
    def _wake(self) -> None:
        """Let the caller go on; called in the thread of the watch."""
