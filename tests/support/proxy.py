"""A proxy between client and Redis, for faults that a healthy network does not show."""

import contextlib
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Self


class Proxy:
    """Forwards to a port of this machine. `request` may change what goes to the server; `reply` what comes back.

    A hook that answers None cuts the connection there, both ways.
    """

    def __init__(
        self,
        port: int,
        request: Callable[[bytes], bytes | None] = lambda data: data,
        reply: Callable[[bytes], bytes | None] = lambda data: data,
    ) -> None:
        self.request = request
        self.reply = reply
        self.target = port  #: new connections lead to it
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._admits(client):
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # the server is away, and so is what stands before it
                client.close()
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.append((client, server))
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _admits(self, client: socket.socket) -> bool:
        return True

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        replies = threading.Thread(target=self._pump, args=(server, client, "reply"), daemon=True)
        replies.start()
        self._pump(client, server, "request")
        replies.join()
        with contextlib.suppress(ValueError):  # `close` has it
            self._pairs.remove((client, server))
        client.close()
        server.close()

    def _pump(self, source: socket.socket, sink: socket.socket, hook: str) -> None:
        try:
            while data := source.recv(1 << 20):
                changed = getattr(self, hook)(data)
                if changed is None:
                    break
                sink.sendall(changed)
        except OSError:
            pass
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        for pair in self._pairs[:]:
            for one in pair:
                one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SilentProxy(Proxy):
    """Drops all bytes of chosen connections and leaves these open, as a firewall does that has forgotten them."""

    def __init__(self, port: int) -> None:
        self._seen: weakref.WeakKeyDictionary[socket.socket, bytes] = weakref.WeakKeyDictionary()
        self._dropped: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        super().__init__(port)

    def drop(self, text: bytes) -> int:
        """Drop what is sent from now on and received by the connections that have sent this text; return how many."""
        found = [one for one, first in list(self._seen.items()) if text in first and one not in self._dropped]
        self._dropped.update(found)
        return len(found)

    def _pump(self, source: socket.socket, sink: socket.socket, hook: str) -> None:
        server = sink if hook == "request" else source
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if hook == "request":
                    self._seen[server] = self._seen.get(server, b"") + data
                if server not in self._dropped:
                    sink.sendall(data)
        if server in self._dropped:
            return
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def ignores_watch(data: bytes) -> bytes:
    """What a proxy does that pools connections: WATCH has no effect."""
    return data.replace(b"$5\r\nWATCH\r\n", b"$6\r\nEXISTS\r\n")


class Counting(Proxy):
    """Counts what comes in one piece: the requests of a round trip. Of more than 64 KiB, the rest comes behind it."""

    def __init__(self, port: int) -> None:
        super().__init__(port, request=self._count)
        self.trips = 0

    def _count(self, data: bytes) -> bytes:
        self.trips += data.startswith(b"*")  # else it is the middle of a request
        return data
