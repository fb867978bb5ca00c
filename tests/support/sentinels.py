"""Real sentinels of a Redis server on this machine."""

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from reliq.embedded import find_server
from reliq.ops import command
from reliq.transport.store import Store
from tests.support.workers import eventually

SERVICE = "mymaster"


@contextmanager
def sentinel(
    folder: Path, port: int, master: int, epoch: int = 0, replicas: int = 0
) -> Iterator["subprocess.Popen[bytes]"]:
    """A sentinel that names the server with port `master`, as of `epoch`, and has seen so many replicas of it."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "sentinel.conf"
    settings.write_text(
        f"port {port}\nbind 127.0.0.1\nsentinel monitor {SERVICE} 127.0.0.1 {master} 1\n"
        f"sentinel down-after-milliseconds {SERVICE} 500\nsentinel failover-timeout {SERVICE} 5000\n"
        f"sentinel config-epoch {SERVICE} {epoch}\n"
    )
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen([find_server(), str(settings), "--sentinel"], stdout=log, stderr=log)
        with closing(Store(f"redis://127.0.0.1:{port}/0", allow_eviction=True, connect=None)) as store:
            store._checked = True  # a sentinel is no server for queues, but it answers
            eventually(lambda: b"slaves=%d" % replicas in store.call(command("INFO", "sentinel")))
        try:
            yield child
        finally:
            child.kill()  # also one that is stopped
            child.wait()
