"""The address of a server that others replicate and watch: a proxy that can be shut for them, and not for clients."""

import contextlib
import socket

from tests.support.proxy import Proxy

PEERS = "127.0.0.2"  #: from here servers and sentinels connect (`bind-source-addr`)


class Gate(Proxy):
    """Forwards to a port of this machine. While it is shut, no replica and no sentinel reaches the server."""

    def __init__(self, port: int) -> None:
        self._shut = False
        super().__init__(port)

    def _admits(self, client: socket.socket) -> bool:
        return not (self._shut and client.getpeername()[0] == PEERS)

    def shut(self) -> None:
        """Cut the connections of replicas and sentinels, and refuse new ones."""
        self._shut = True
        for client, server in self._pairs[:]:
            with contextlib.suppress(OSError):  # it has just ended
                if not self._admits(client):
                    client.shutdown(socket.SHUT_RDWR)
                    server.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        self._shut = False
