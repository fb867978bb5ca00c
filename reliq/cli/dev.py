"""`reliq dev`: Redis, monitor, HTTP service and dashboard in one terminal, and a worker of an application if asked."""

import argparse
import contextlib
import errno
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import webbrowser
from collections.abc import Iterator
from pathlib import Path

from reliq.cli.child_settings import ChildSettings
from reliq.cli.reload import Stops, stop_worker
from reliq.contract import values
from reliq.embedded import EmbeddedRedis, data_folder, free_port
from reliq.errors import InvalidSetting, RedisUnavailable, ReliqError
from reliq.extras import install_command, is_installed
from reliq.model.keys import new_owner
from reliq.runtime import startup
from reliq.runtime.guard import Guard
from reliq.transport.store import Store
from reliq.worker.supervisor import Child

SAMPLE = "reliq.cli.sample:app"
_API_PORT = 8080
_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 30.0


def run(options: argparse.Namespace) -> int:
    """Run everything that development needs, until Ctrl-C."""
    from reliq_monitor import Monitor

    _check_ports(options.port, options.api_port)
    stops = Stops()
    startup.take_over(stops.stop)
    stopping = stops.once
    with contextlib.ExitStack() as everything:
        _awaited("Redis")
        server = everything.enter_context(EmbeddedRedis(options.data or data_folder(), port=options.port))
        _say("Redis", f"{server.url}   (data in {server.folder})")
        os.environ["RELIQ_URL"] = server.url
        address, dashboard = _dashboard(everything, options.api_port, stopping) or (None, None)
        _say("Monitor", "running")
        if application := SAMPLE if options.sample else options.app:
            _worker(everything, application, stops.twice)
        if options.sample:
            _orders(everything)
        _explain(server.url)
        if options.open and address:
            webbrowser.open(address)
        threading.Thread(target=_watch, args=(server, dashboard, stopping), daemon=True).start()
        Monitor(Store(server.url)).run(stopping)
        if server.has_ended:
            raise RedisUnavailable(f"Redis has ended: `reliq dev` starts it again with the messages of {server.folder}")
    return 0


def _watch(server: EmbeddedRedis, dashboard: subprocess.Popen[bytes] | None, stopping: threading.Event) -> None:
    """Stop everything when the server has ended by itself, as nothing starts it again; say so of the dashboard."""
    while not stopping.wait(0.5):
        if server.has_ended:
            stopping.set()
        elif dashboard is not None and dashboard.poll() is not None:
            _say("Dashboard", f"has ended with status {dashboard.returncode}; the next `reliq dev` starts it again")
            dashboard = None


def _awaited(what: str, since: float | None = None) -> None:
    """On a terminal, say what is being started, and how long it has taken, until `_say` replaces the line."""
    if sys.stdout.isatty():
        taken = "" if since is None else f" ({time.monotonic() - since:.0f} s)"
        print(f"\r\x1b[K{what:<10} starting{taken} ...", end="", flush=True)


def _say(what: str, text: str) -> None:
    start = "\r\x1b[K" if sys.stdout.isatty() else ""
    print(f"{start}{what:<10} {text}", flush=True)


def _dashboard(
    everything: contextlib.ExitStack, wanted: int, stopping: threading.Event
) -> tuple[str, subprocess.Popen[bytes]] | None:
    """Start the HTTP service, if it is installed; return its address and its process."""
    if not is_installed("fastapi", "uvicorn", "jinja2", "prometheus_client"):
        _say("Dashboard", f"not installed: {install_command('api')}")
        return None
    port = wanted or _API_PORT
    if not wanted and _why_not(port):
        port = free_port()
    address = f"http://127.0.0.1:{port}"
    process = everything.enter_context(_running("api", "--no-auth", "--port", str(port), "--quiet"))
    since = time.monotonic()
    while process.poll() is None and time.monotonic() < since + _START_TIMEOUT and not stopping.is_set():
        _awaited("Dashboard", since)
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/healthz", timeout=5):
            _say("Dashboard", f"{address}/")
            return address, process
        stopping.wait(0.05)
    if not stopping.is_set():
        _say("Dashboard", f"did not start at {address}: see above, or choose another --api-port")
    return None


def _check_ports(redis: int, http: int) -> None:
    """Raise ReliqError for a port that was asked for and cannot be used: else another program may answer there."""
    if redis and redis == http:
        raise InvalidSetting(f"--port and --api-port are both {redis}: choose another one for one of them")
    for port, option in ((redis, "--port"), (http, "--api-port")):
        if port and (why := _why_not(port)):
            raise ReliqError(f"port {port} {why}; choose another {option}")


def _why_not(port: int) -> str:
    """Return why nothing can be served on a port of this machine; empty if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: connections that ended are none
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
    return ""


@contextlib.contextmanager
def _running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a `reliq` command beside this one; it ends with this process, however that ends."""
    command = [sys.executable, "-m", "reliq", *arguments]
    with startup.signals_held_back():
        # A session of its own: a Ctrl-C in the terminal reaches only this process, which shuts it down cleanly.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    guard = Guard(process.pid)
    try:
        yield process
    finally:
        guard.dismiss()
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _worker(everything: contextlib.ExitStack, application: str, hurried: threading.Event) -> None:
    """Start a worker of the application, which starts again when a file changes, if that is installed."""
    reloads = application != SAMPLE and is_installed("watchfiles")
    child = ChildSettings(new_owner(), options={"reload": reloads, "monitor": False})
    command = [sys.executable, "-m", "reliq", "worker", application]
    worker = Child(child.owner, command, child.environment())
    everything.callback(stop_worker, worker, values.GRACE, hurried)
    _say("Worker", application + ("   (starts again when a file changes)" if reloads else ""))


def _orders(everything: contextlib.ExitStack) -> None:
    """Send the sample's messages, from now to the end."""
    from reliq.cli.sample import send_orders

    done = threading.Event()
    sender = threading.Thread(target=send_orders, args=(done,), daemon=True)
    everything.callback(done.set)
    sender.start()


def _explain(url: str) -> None:
    """Print what a second terminal needs."""
    print("\nIn another terminal, in this folder:\n")
    if sys.prefix != sys.base_prefix:
        print(f". {shlex.quote(_short(Path(sys.prefix)))}/bin/activate")
    print(f"export RELIQ_URL={url}\n\nCtrl-C ends it; the messages stay.", flush=True)


def _short(path: Path) -> str:
    """Return the path as it is typed in the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
