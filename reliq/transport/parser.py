"""The parser of redis-py's connections for threads, where hiredis is not installed.

redis-py's own copies each reply several times and calls five functions for it: a worker spent a third to a half of its
time there.
"""

from collections import deque
from typing import Any

from redis.connection import DefaultParser
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import TimeoutError as Silent
from redis.utils import HIREDIS_AVAILABLE

from reliq.transport.notices import WAITS
from reliq.transport.reply_reader import ReplyReader


class Parser(DefaultParser):  # type: ignore[misc, valid-type]
    """Reads whatever has arrived, and keeps what is for later calls."""

    def on_connect(self, connection: Any) -> None:
        super().on_connect(connection)
        self._timeout = connection.socket_timeout
        self._reader = ReplyReader(self.parse_error)
        self._arrived: deque[Any] = deque()

    def can_read(self, timeout: float = 0) -> bool:
        """Whether something arrives within so many seconds. Raises redis-py's ConnectionError if the server closes."""
        if self._arrived or self._reader.begun:
            return True
        self._sock.settimeout(timeout)
        try:
            self._read()
        except (TimeoutError, *WAITS):
            return False
        finally:
            self._sock.settimeout(self._timeout)
        return True

    def read_response(self, *_: Any, **__: Any) -> Any:
        """Return the next reply, as bytes; an error that the server answered is one."""
        try:
            while not self._arrived:
                self._read()
        except TimeoutError:
            raise Silent("no reply came in time") from None
        return self._arrived.popleft()

    def _read(self) -> None:
        data = self._sock.recv(self.socket_read_size)
        if not data:
            raise Lost("the server closed the connection")
        self._arrived += self._reader.feed(data)


def options() -> dict[str, Any]:
    """Return the options of a connection that make it read with this parser; none where hiredis does."""
    return {} if HIREDIS_AVAILABLE else {"parser_class": Parser}
