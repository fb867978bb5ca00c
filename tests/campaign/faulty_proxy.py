"""A proxy that breaks connections as networks do: replies are cut off, bytes arrive late, one side is gone."""

import contextlib
import functools
import random
import re
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterable

from reliq.ops.request import script_named
from tests.support.proxy import Proxy
from tests.support.scripts import scripts

_SCRIPT = re.compile(rb"\r\nEVALSHA\r\n\$40\r\n([0-9a-f]{40})")
_COMMAND = re.compile(rb"^\*\d+\r\n\$\d+\r\n(\w+)\r\n")


@functools.cache
def _scripts() -> dict[bytes, str]:
    every = [script_named(name) for name in scripts()]
    return {script.sha.encode(): script.name for script in every}


def command_of(request: bytes) -> str:
    """Return the name of the script, or of the command, that a request begins with."""
    if script := _SCRIPT.search(request):
        return _scripts().get(script[1], "EVALSHA")
    command = _COMMAND.match(request)
    return command[1].decode() if command else "?"


class FaultyProxy(Proxy):
    """The connections of one process. `share`: of the replies that are cut off, after their commands have run."""

    def __init__(self, port: int, seed: str) -> None:
        self.share = 0.0
        self.cuts: Counter[str] = Counter()
        self.stalled = 0
        self.half_open = 0
        self._random = random.Random(seed)
        #: By the connection to the server.
        self._asked: weakref.WeakKeyDictionary[socket.socket, str] = weakref.WeakKeyDictionary()
        self._deaf: weakref.WeakSet[socket.socket] = (
            weakref.WeakSet()
        )  #: connections to the server that are gone, which the client is not told
        self._stall = 0.0  #: seconds for which the next request is held back
        self._close_half = False
        self._passes = {"request": threading.Event(), "reply": threading.Event()}
        self.heal()
        super().__init__(port)

    def stall(self, seconds: float) -> None:
        """Hold the next request back for so long, and deliver it then, whatever the client has done meanwhile."""
        self._stall = seconds

    def close_half(self) -> None:
        """Close the server's side of the connection that is used next; the client is not told."""
        self._close_half = True

    def cut(self, ways: Iterable[str]) -> None:
        """Hold back requests, replies or both from now on. The connections stay open."""
        for way in ways:
            self._passes[way].clear()

    def heal(self) -> None:
        """Let everything through again; what was sent meanwhile arrives, as TCP repeats it."""
        for way in self._passes.values():
            way.set()

    def _pump(self, source: socket.socket, sink: socket.socket, hook: str) -> None:
        server = sink if hook == "request" else source
        forward = self._request if hook == "request" else self._reply
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                self._passes[hook].wait()
                if not forward(server, sink, data):
                    break
            self._passes[hook].wait()  # the end of a connection does not arrive either
        if server in self._deaf:
            return
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _request(self, server: socket.socket, sink: socket.socket, data: bytes) -> bool:
        self._asked[server] = command_of(data)
        if self._close_half:
            self._close_half = False
            self._deaf.add(server)
            self.half_open += 1
            server.shutdown(socket.SHUT_RDWR)
        if server in self._deaf:
            return True
        seconds, self._stall = self._stall, 0.0
        if seconds:
            self.stalled += 1
            time.sleep(seconds)
        sink.sendall(data)
        return True

    def _reply(self, server: socket.socket, sink: socket.socket, data: bytes) -> bool:
        if self.share and self._random.random() < self.share:
            self.cuts[self._asked.get(server, "?")] += 1
            return False
        sink.sendall(data)
        return True
