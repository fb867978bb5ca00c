"""`reliq` commands as processes of their own, forked from one that has imported reliq.

A monitor that starts and stops takes 0.1 s of a core in place of 0.5, an HTTP service 0.2 in place of 1.1.

Each has its session, files, folder and environment, and is a child of the process of the tests, which waits for it as
for any other. It lacks Python's start, the imports and the making of the parser: a test of those starts Python
(`process(..., fresh=True)`).
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import reliq

ROOT = Path(__file__).parents[2]
_SIGNALS = {signal.SIGTERM, signal.SIGINT}  #: held back in the process that forks, until a child handles them
_IMPORTED = (
    "redis.asyncio",
    "uvicorn",
    "reliq_api.app",
    "reliq_monitor",
    "reliq_sqs.app",
    "reliq.cli.main",
    "reliq.worker",
)
_LARGEST = 150_000  #: bytes of a request, most of them the environment
_PR_SET_CHILD_SUBREAPER = 36
_lock = threading.Lock()


def possible(environment: Mapping[str, str]) -> bool:
    """Whether a fork is what a start would be: what only a starting Python reads is not given, and nothing measures."""
    return (
        sys.platform == "linux"
        and "coverage" not in sys.modules
        and not any(name.startswith(("PYTHON", "LC_", "LANG", "TZ", "LD_")) for name in environment)
    )


def fork(arguments: list[str], folder: str, environment: Mapping[str, str], files: list[int]) -> int:
    """Start `reliq` with these arguments and stdin, stdout and stderr; return its process id, a child of this one."""
    told = {"arguments": arguments, "folder": folder, "environment": dict(environment)}
    with _lock:
        return forked(_server(os.getpid()), told, files)


def forked(server: socket.socket, told: dict[str, Any], files: list[int]) -> int:
    """Have a process fork a child that is told this and has these files; return its id, a child of this process.

    Raises ConnectionError if that process has ended.
    """
    with _adopting():
        socket.send_fds(server, [json.dumps({**told, "parent": os.getpid()}).encode()], files)
        answer = server.recv(100)
    if not answer:
        raise ConnectionResetError("the process that forks has ended")
    return int(answer)


@contextmanager
def _adopting() -> Iterator[None]:
    """Become the parent of what loses its own: the process that forks is between."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@functools.cache
def _server(of: int) -> socket.socket:
    """Start the process that forks, which ends with this one."""
    mine, process = server_of("tests.support.warm")

    def end() -> None:
        if os.getpid() == of:
            mine.close()
            process.wait()

    atexit.register(end)
    return mine


def server_of(module: str, *arguments: str, folder: Path = ROOT) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a module that calls `serve`; return the connection to it, at whose end it ends."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    given = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "monitor", ROOT / "api", *given)))
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(its.fileno()), *arguments], cwd=folder, pass_fds=(its.fileno(),),
        env={**os.environ, "PYTHONPATH": paths}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    its.close()
    return mine, process


def serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; return in the child, which has the files of its request, and at the end, with None."""
    while True:
        request, files, _, _ = socket.recv_fds(connection, _LARGEST, 3)
        if not request:
            return None
        between = os.fork()
        if between == 0:
            if os.fork() != 0:
                os._exit(0)
            told: dict[str, Any] = json.loads(request)
            while os.getppid() != told["parent"]:  # the process between has not ended yet
                time.sleep(0.001)
            os.setsid()
            connection.send(str(os.getpid()).encode())
            connection.close()
            for place, file in enumerate(files):
                os.dup2(file, place)
                os.close(file)
            return told
        os.waitpid(between, 0)
        for file in files:
            os.close(file)


def _become(told: dict[str, Any]) -> None:
    """Take the place of `python -m reliq` with these arguments."""
    from reliq.runtime import startup

    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    for place, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, opened(place, getattr(sys, name)))
    sys.argv = [str(Path(reliq.__file__).with_name("__main__.py")), *told["arguments"]]
    sys.orig_argv = [sys.executable, "-m", "reliq", *told["arguments"]]
    sys.path[0] = str(Path.cwd())
    gc.enable()
    if startup.is_service(["-m", *told["arguments"]], sys.orig_argv):
        startup.begin()
    else:
        startup.begin_command()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def opened(place: int, like: io.TextIOWrapper) -> io.TextIOWrapper:
    """Open a file of a standard stream, as Python's start does: the present stream knows another file."""
    buffer: Any = open(place, "wb" if place else "rb", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        buffer, like.encoding, like.errors, line_buffering=like.line_buffering, write_through=like.write_through
    )


def main() -> None:
    """Import what the commands need, and fork; a child goes on as a command."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    gc.disable()
    for name in _IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):  # of a slice that was deleted
            importlib.import_module(name)
    from tests.support import parser

    parser.share()
    assert threading.active_count() == 1, "a fork of one with threads is not whole"
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        told = serve(connection)
    if told is not None:
        _become(told)
        from reliq.cli.main import entry

        entry()


if __name__ == "__main__":
    main()
