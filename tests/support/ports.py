"""Free ports for the servers that tests start."""

import contextlib
import socket
import sys


def free_port() -> int:
    """Return a port of this machine that no other process is given while this one runs.

    It stays bound here, so that nobody else finds it free: no other test, no outgoing connection. Servers set
    SO_REUSEADDR, and may listen on it, because this socket has it too and does not listen. It is set after bind(),
    which refuses a port that another test holds in the same way. Systems other than Linux let no server do that; there
    the port is only likely to stay free.
    """
    return _hold(0)


def free_port_with_bus() -> int:
    """Return a port as free_port has it, of which the one for the cluster bus, 10,000 above it, is held too."""
    while True:
        port = free_port()
        with contextlib.suppress(OSError, OverflowError):  # taken; above 65,535
            _hold(port + 10_000)
            return port


def _hold(port: int) -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        found: int = holder.getsockname()[1]
        if sys.platform == "linux":
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.detach()  # open until this process ends
    return found
