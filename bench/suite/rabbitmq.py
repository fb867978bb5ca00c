"""A separate RabbitMQ server for the suite, if one is installed."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

_SERVERS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
_START = 60.0


class RabbitMQ:
    """A running broker, as a context; `missing` says why it cannot run."""

    def __init__(self, wanted: bool = True) -> None:
        self._wanted = wanted
        self.missing = ""
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="reliq-rabbit-")

    def __enter__(self) -> Self:
        if not self._wanted:
            return self
        server = next((path for name in _SERVERS if (path := shutil.which(name))), None)
        if server is None:
            self.missing = "not installed: no rabbitmq-server on this machine"
            return self
        port, distribution, names = _free_ports(3)
        self.url = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        self._environment = _environment(self._folder.name, port, distribution, names)
        self._process = subprocess.Popen(
            [server], env=self._environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if not self._answers(port):
            self.missing = f"rabbitmq-server did not start in {_START:.0f} s"
        return self

    def _answers(self, port: int) -> bool:
        until = time.monotonic() + _START
        while time.monotonic() < until and self._process is not None and self._process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1):
                    return True
            except OSError:
                time.sleep(0.2)
        return False

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            # Erlang's name server, of this broker alone, stays behind as a daemon.
            subprocess.run(["epmd", "-kill"], env=self._environment, check=False, capture_output=True)
        self._folder.cleanup()


def _environment(folder: str, port: int, distribution: int, names: int) -> dict[str, str]:
    config = Path(folder, "rabbitmq.conf")
    config.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = false\n")
    plugins = Path(folder, "plugins")
    plugins.write_text("[].")
    return {
        **os.environ,
        "HOME": folder,
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_MNESIA_BASE": str(Path(folder, "mnesia")),
        "RABBITMQ_LOG_BASE": str(Path(folder, "log")),
        "RABBITMQ_PID_FILE": str(Path(folder, "pid")),
        "RABBITMQ_DIST_PORT": str(distribution),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
