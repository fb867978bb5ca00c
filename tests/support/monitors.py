"""Monitors as processes of their own, whose shares are read from their metrics."""

import contextlib
import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.ports import free_port
from tests.support.workers import started


class Monitors:
    """Processes of `reliq monitor`; all are ended with the context."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._running: dict[int, subprocess.Popen[bytes]] = {}  #: by the port of the metrics
        self._paused: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in [*self._running.values(), *self._paused.values()]:
            child.kill()
            child.wait()

    def start(self) -> None:
        port = free_port()
        with (self._folder / "monitors.log").open("ab") as log:
            self._running[port] = started("monitor", "--url", self._url, "--metrics-port", str(port), stderr=log)

    def shares(self) -> list[int]:
        """How many queues each of the running ones leads; 0 before it can be scraped."""
        return [_led(port) for port in self._running]

    def led(self) -> int:
        return sum(self.shares())

    def kill(self, place: int) -> int:
        port, child = list(self._running.items())[place]
        del self._running[port]
        child.kill()
        child.wait()
        return port

    def pause(self, place: int) -> int:
        port, child = list(self._running.items())[place]
        self._paused[port] = self._running.pop(port)
        os.kill(child.pid, signal.SIGSTOP)
        return port

    def resume(self, port: int) -> None:
        child = self._running[port] = self._paused.pop(port)
        os.kill(child.pid, signal.SIGCONT)


def _led(port: int) -> int:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        found = re.search(rb"^reliq_monitor_led_queues (\S+)$", answer.read(), re.MULTILINE)
        return int(float(found[1])) if found else 0
    return 0
