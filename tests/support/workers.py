"""Workers for tests: in this process, or real processes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, AnyStr

import reliq
from reliq.transport.store import Store
from reliq.worker import Options, Worker
from reliq_monitor import Monitor, MonitorThread
from reliq_monitor.duties import DUTIES
from tests.support import warm

ROOT = Path(__file__).parents[2]


def eventually(condition: Callable[[], Any], timeout: float = 60.0, what: str = "") -> Any:
    """Wait until the condition answers something true, and answer that; the longer it takes, the rarer it is asked."""
    began = time.monotonic()
    while True:
        if answer := condition():
            return answer
        waited = time.monotonic() - began
        assert waited < timeout, f"not within {timeout} s: {what or condition}"
        time.sleep(max(0.005, min(waited / 10, max(0.05, waited / 50))))


def aged(queue: reliq.Queue, seconds: float) -> None:
    """Wait until the oldest ready message of the queue is older than this, by the server's clock."""
    eventually(lambda: queue.stats().oldest_ready_age > seconds)


@contextlib.contextmanager
def working(app: reliq.Reliq, monitor: bool = False, url: str | None = None, **options: Any) -> Iterator[Worker]:
    """A worker of this application in a thread of this process, stopped in order at the end."""
    store = Store(url or app.url)
    worker = Worker(store, app.handlers, Options(**options))
    thread = threading.Thread(target=worker.run, daemon=True)
    beside = MonitorThread(Store(app.url), reconnect_grace=0) if monitor else None
    if beside is not None:
        beside.start()
    thread.start()
    try:
        yield worker
    finally:
        at_once = beside is None or not store.sharded
        end(worker, thread, app.url if at_once else "")
        if beside is not None:
            beside.stop()
            if at_once:
                _have_turns(app.url)
        store.close()


def _have_turns(url: str) -> None:
    """Perform every duty of a monitor on what a worker has left: the test has not waited for the monitor beside it."""
    with contextlib.closing(Store(url)) as store, contextlib.suppress(reliq.ReliqError):
        monitor = Monitor(store, reconnect_grace=0)
        for _ in range(2):  # a duty may leave something to one before it
            monitor.look()
            for duty in DUTIES:
                monitor.perform(duty)


def end(worker: Worker, thread: threading.Thread, url: str) -> None:
    """Stop a worker that runs in a thread, and wait until it has ended.

    The call in which it waits for messages lasts up to a second more; the Redis of `url` is told to answer it at once.
    """
    worker.stop()
    until = time.monotonic() + 30
    while url and thread.is_alive() and time.monotonic() < until:
        _answer_waiting_calls(url, worker._owner)
        thread.join(timeout=0.02)
    thread.join(timeout=max(0.0, until - time.monotonic()))
    assert not thread.is_alive(), "the worker did not stop"


def _answer_waiting_calls(url: str, owner: str) -> None:
    """Have Redis answer the calls in which a worker waits for messages as it does after a second: there are none."""
    server = urllib.parse.urlsplit(url)
    if server.scheme != "redis" or server.password:
        return
    with contextlib.suppress(OSError):
        lines = _asked(server, "CLIENT LIST").splitlines()
        clients = [dict(part.split("=", 1) for part in line.split()) for line in lines if line.startswith("id=")]
        waiting = [one["id"] for one in clients if one["name"].startswith(f"reliq:{owner}") and one["cmd"] == "blmove"]
        if waiting:
            _asked(server, *(f"CLIENT UNBLOCK {number}" for number in waiting))


def _asked(server: urllib.parse.SplitResult, *commands: str) -> str:
    with socket.create_connection((server.hostname, server.port or 6379), timeout=1) as connection:
        connection.sendall("".join(f"{one}\r\n" for one in (*commands, "QUIT")).encode())
        return b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()


class Child(subprocess.Popen[AnyStr]):
    """A process of which the test reads what it prints: it is started with pipes."""

    stdin: IO[AnyStr]
    stdout: IO[AnyStr]
    stderr: IO[AnyStr]


class Forked(Child[AnyStr]):
    """A `reliq` command that a process forks which has imported reliq."""

    def _execute_child(
        self, args: list[str], executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any, *pipes: int,
    ) -> None:  # fmt: skip
        """Take the place of the method of `Popen` that starts the program; the rest of it, such as pipes, stays."""
        p2cread, _, _, c2pwrite, _, errwrite = pipes[:6]
        files = [0 if p2cread == -1 else p2cread, 1 if c2pwrite == -1 else c2pwrite, 2 if errwrite == -1 else errwrite]
        try:
            self.pid = warm.fork(args[args.index("reliq") + 1 :], str(cwd or Path.cwd()), env or os.environ, files)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes[:6])  # type: ignore[attr-defined]


def surroundings() -> dict[str, str]:
    """The environment in which a program finds the packages of this folder."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "monitor", ROOT / "api")))}


def started(
    *arguments: str,
    folder: Path | None = None,
    program: str = "reliq",
    fresh: bool = False,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    **environment: str,
) -> Child[bytes]:
    """Start a `reliq` command, or another program, in a session of its own.

    `fresh` starts Python for it, in place of a fork: for a test of the start.
    """
    forked = program == "reliq" and not fresh and warm.possible(environment)
    return (Forked if forked else Child)(
        [sys.executable, "-m", program, *arguments], cwd=folder, env={**surroundings(), **environment},
        stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
    )  # fmt: skip


@contextlib.contextmanager
def process(
    *arguments: str, folder: Path | None = None, program: str = "reliq", fresh: bool = False, **environment: str
) -> Iterator[Child[bytes]]:
    """What `started` starts, whose output the test may read; killed at the end if it still runs."""
    pipe = subprocess.PIPE
    child = started(*arguments, folder=folder, program=program, fresh=fresh, stdout=pipe, stderr=pipe, **environment)
    try:
        yield child
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
