"""Notices: what a server says about keys that change after a connection has read them (CLIENT TRACKING).

A server remembers the keys that a tracked connection reads. When one of them changes, whoever changes it, it sends one
notice, and forgets the key until it is read again. So what was read stands until a notice comes, and nobody has to ask.
The notices come by a connection of their own, in RESP 3, which needs no permission for a channel. A network may drop it
without telling either side, and nothing is sent there for long: after a silence the server is asked for an answer.

Where a server or its user allows no tracking, `active` is False, and every answer counts only once, as without notices.
"""

import contextlib
import math
import selectors
import ssl
import time
from collections.abc import Callable
from typing import Any

from reliq.contract import values
from reliq.transport.errors import ConnectionLost, redis_errors
from reliq.transport.resp import Command, pack

_TRIES = (1.0, 5.0, 30.0, 300.0)  #: seconds until tracking is tried again where it was refused
QUIET = 10.0  #: seconds without a word of the server, after which it is asked for an answer
ANSWERS_WITHIN = values.SOCKET_MARGIN  #: seconds
_PING = b"*1\r\n$4\r\nPING\r\n"
_ONCE = 64 * 1024  #: bytes read at once
WAITS = (BlockingIOError, ssl.SSLWantReadError)  #: nothing has arrived, on a socket that does not wait


class Notices:
    """The notices for one connection."""

    def __init__(self, changed: Callable[[list[str] | None], None]) -> None:
        """`changed`: called in `take` with the keys that have changed; None: any may have."""
        self.active = False
        self._changed = changed
        self._raw: Any = None
        self._sock: Any = None
        self._unread = b""
        self._refusals = 0
        self._next_try = 0.0
        self._heard_at = 0.0  #: by time.monotonic()
        self._pinged_at = 0.0  #: 0: the server owes no answer

    # --- for the connection that reads ---

    @property
    def wanted(self) -> bool:
        """Whether the connection should begin to be tracked."""
        return not self.active and time.monotonic() >= self._next_try

    def begin(self, connect: Callable[[], Any], ask: Callable[[list[Command]], list[Any]]) -> None:
        """Open the connection for notices, and let `ask`, on the one that reads, ask for them.

        Raises ConnectionLost if the one that reads is lost.
        """
        self.end()
        self._next_try = math.inf
        number = self._open(connect)
        try:
            asked = [("CLIENT", "TRACKING", "ON", "REDIRECT", number, "OPTOUT"), ("CLIENT", "CACHING", "NO"), ("TIME",)]
            self.active = bool(number) and not any(isinstance(reply, Exception) for reply in ask(asked))
        finally:
            self._refusals = 0 if self.active else self._refusals + 1
            self._next_try = 0.0 if self.active else time.monotonic() + _TRIES[min(self._refusals, len(_TRIES)) - 1]
            if not self.active:
                self.end()

    def _open(self, connect: Callable[[], Any]) -> int:
        """Open the connection, in RESP 3; return its number, 0 if that is refused."""
        try:
            self._raw = connect()
            self._raw.connect()
            self._raw.send_packed_command(pack([("HELLO", 3, "SETNAME", "reliq-notices")]))
            self._sock = sock = getattr(self._raw, "_sock", None)  # redis-py's parser is for RESP 2
            if sock is None:
                return 0
            while (found := parsed(self._unread, 0)) is None:
                self._unread += _some(sock)
            reply, at = found
            self._unread = self._unread[at:]
            sock.settimeout(0)
            self._heard_at, self._pinged_at = time.monotonic(), 0.0
            return int(reply[b"id"]) if isinstance(reply, dict) else 0
        except (redis_errors().RedisError, ConnectionLost, OSError, ValueError):
            return 0

    def end(self) -> None:
        """Close the connection: what was read does not stand any more."""
        if self.active:
            self._changed(None)
        self.active, self._unread = False, b""
        raw, self._raw = self._raw, None
        if raw is not None:
            with contextlib.suppress(Exception):
                raw.disconnect()

    # --- for the one who has read ---

    def take(self) -> None:
        """Report what has changed meanwhile; it does not wait."""
        if not self.active:
            return
        try:
            with contextlib.suppress(*WAITS):
                while True:
                    self._unread += _some(self._sock)
                    self._heard_at, self._pinged_at = time.monotonic(), 0.0
                    self._report()
            self._check_alive()
        except (OSError, ValueError):
            self.end()

    def wait(self, seconds: float, *others: Any) -> None:
        """Wait at most so long for a notice, or until one of the other sockets can be read."""
        with selectors.DefaultSelector() as selector:
            for one in (*others, self._sock if self.active else None):
                if one is not None:
                    selector.register(one, selectors.EVENT_READ)
            selector.select(min(seconds, self._patience) if self.active else seconds)

    @property
    def _patience(self) -> float:
        """Seconds until the server is asked for an answer, or has owed one for too long."""
        until = self._pinged_at + ANSWERS_WITHIN if self._pinged_at else self._heard_at + QUIET
        return max(0.0, until - time.monotonic())

    def _check_alive(self) -> None:
        """Ask a silent server for an answer; raises ConnectionError if none has come."""
        if self._patience:
            return
        if self._pinged_at:
            raise ConnectionError("the server does not answer")
        self._sock.sendall(_PING)
        self._pinged_at = time.monotonic()

    def _report(self) -> None:
        """Report what has arrived whole."""
        keys: list[str] = []
        at = 0
        while (found := parsed(self._unread, at)) is not None:
            value, at = found
            match value:
                case [b"invalidate", None]:
                    self._changed(None)
                case [b"invalidate", [*some]]:
                    keys += [key.decode(errors="replace") for key in some]
                case [b"tracking-redir-broken", *_]:
                    raise ConnectionError("the connection that reads is gone")
        self._unread = self._unread[at:]
        if keys:
            self._changed(keys)


def _some(sock: Any) -> bytes:
    data: bytes = sock.recv(_ONCE)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data


def parsed(data: bytes, at: int) -> tuple[Any, int] | None:
    """Return the RESP 3 value that begins at a place of the data, and the place behind it; None: it is not whole."""
    line = data.find(b"\r\n", at)
    if line < 0:
        return None
    kind, text, behind = data[at : at + 1], data[at + 1 : line], line + 2
    match kind:
        case b"$" | b"=":
            size = int(text)
            if size < 0:
                return None, behind
            return (data[behind : behind + size], behind + size + 2) if len(data) >= behind + size + 2 else None
        case b"*" | b">" | b"~" | b"%":
            if int(text) < 0:
                return None, behind
            many: list[Any] = []
            for _ in range(int(text) * (2 if kind == b"%" else 1)):
                found = parsed(data, behind)
                if found is None:
                    return None
                value, behind = found
                many.append(value)
            return (dict(zip(many[::2], many[1::2], strict=True)) if kind == b"%" else many), behind
        case b":":
            return int(text), behind
        case b"_":
            return None, behind
        case b"+" | b"-" | b"," | b"#" | b"(":
            return text, behind
        case _:
            raise ValueError(f"not RESP 3: {data[at : at + 20]!r}")
