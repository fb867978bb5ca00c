"""A network that gives a connection up on one side only, and delivers later what was sent on it."""

import contextlib
import socket
import threading

from tests.support.proxy import Proxy


class LateProxy(Proxy):
    """Once armed, holds the next request that contains `hold`, and cuts its client off; `deliver` sends it on."""

    def __init__(self, port: int, hold: bytes) -> None:
        self._hold = hold
        self._armed = False
        self._late: list[tuple[socket.socket, bytes]] = []
        self.held = threading.Event()
        super().__init__(port)

    def arm(self) -> None:
        self._armed = True

    def deliver(self) -> None:
        for server, data in self._late:
            with contextlib.suppress(OSError):  # the server has closed this connection
                server.sendall(data)

    def _pump(self, source: socket.socket, sink: socket.socket, hook: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if hook == "request" and self._armed and self._hold in data:
                    self._armed = False
                    self._late.append((sink, data))
                    source.shutdown(socket.SHUT_RDWR)
                    self.held.set()
                    return
                sink.sendall(data)
        if not any(late is sink or late is source for late, _ in self._late):
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
