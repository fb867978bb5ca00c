"""A network that loses the replies to some requests: the server has carried them out, and the caller never learns."""

import contextlib
import socket
from collections.abc import Callable

from tests.support.proxy import Proxy


class LosingProxy(Proxy):
    """While it is armed, cuts a connection instead of passing on the reply to a request that `loses` names."""

    def __init__(self, port: int, loses: Callable[[bytes], bool]) -> None:
        self._loses = loses
        self._losing: set[socket.socket] = set()  #: connections to the server whose next reply is lost
        self.armed = False
        self.lost = 0  #: replies
        super().__init__(port)

    def _pump(self, source: socket.socket, sink: socket.socket, hook: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if hook == "request" and self.armed and self._loses(data):
                    self._losing.add(sink)
                elif hook == "reply" and source in self._losing:
                    self.lost += 1
                    break
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def scripts_of(queue: str) -> Callable[[bytes], bool]:
    """Return a function that names the requests that run a script on a queue: claims, settlements, registrations."""
    tag = f"{{{queue}}}".encode()
    return lambda data: b"EVALSHA" in data and tag in data
