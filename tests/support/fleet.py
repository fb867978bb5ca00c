"""A master, its replicas and three sentinels on this machine, for failovers."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import redis

from reliq.embedded import EmbeddedRedis, find_server
from reliq.errors import ReliqError
from tests.support.gate import PEERS, Gate
from tests.support.ports import free_port

_SERVICE = "mymaster"
_DOWN_AFTER = 1.0  #: seconds of silence after which a sentinel takes the master for dead
_PAUSE = 4.0  #: seconds for which a paused master hangs
_CUT = 2.0  #: seconds for which a master that is cut off does not know that there is another


class Fleet:
    """A context; `fail_over` makes another server the master and the former one its replica.

    `gates`: each server is known by the port of a gate, so that a master can be cut off from the others.
    """

    def __init__(self, replicas: int = 2, *, gates: bool = False) -> None:
        self._stack = contextlib.ExitStack()
        self.replicas = replicas
        self.servers: list[EmbeddedRedis] = []
        self.sentinels: list[Any] = []
        self._gates: dict[int, Gate] | None = {} if gates else None  #: by the port of the server
        self._ports: list[int] = []

    def __enter__(self) -> Self:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._start_server()
        for _ in range(self.replicas):
            self._start_server("--replicaof", "127.0.0.1", str(self._known_port(self.servers[0])))
        for number in range(3):
            self._start_sentinel(folder / f"{number}.conf")
        wait(self.whole, "the fleet")
        return self

    def _start_server(self, *settings: str) -> None:
        port = free_port()
        at_once = ("--repl-diskless-sync-delay", "0")
        if self._gates is not None:
            gate = self._gates[port] = self._stack.enter_context(Gate(port))
            settings += ("--replica-announce-port", str(gate.port), "--bind-source-addr", PEERS)
        self.servers.append(self._stack.enter_context(EmbeddedRedis(settings=(*settings, *at_once), port=port)))

    def _known_port(self, server: EmbeddedRedis) -> int:
        """Return the port that sentinels, replicas and clients know."""
        return server.port if self._gates is None else self._gates[server.port].port

    def _start_sentinel(self, path: Path) -> None:
        port = free_port()
        source = "" if self._gates is None else f"bind-source-addr {PEERS}\nsentinel announce-ip 127.0.0.1\n"
        path.write_text(
            f"port {port}\nbind 127.0.0.1\n{source}"
            f"sentinel monitor {_SERVICE} 127.0.0.1 {self._known_port(self.servers[0])} 2\n"
            f"sentinel down-after-milliseconds {_SERVICE} {_DOWN_AFTER * 1000:.0f}\n"
            f"sentinel failover-timeout {_SERVICE} 10000\n"
        )
        command = [find_server(), str(path), "--sentinel"]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._stack.callback(child.wait)
        self._stack.callback(child.kill)
        self._ports.append(port)
        self.sentinels.append(self._stack.enter_context(contextlib.closing(redis.Redis(port=port, socket_timeout=2))))
        wait(self.sentinels[-1].ping, "a sentinel")

    def __exit__(self, *error: object) -> None:
        for server in self.servers:  # a master that is stopped waits for its replicas
            server.kill()
        self._stack.close()

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in self._ports) + f"/{_SERVICE}/0"

    def master(self) -> EmbeddedRedis | None:
        """Return the server that all sentinels name, or None."""
        ports = {int(one.sentinel_get_master_addr_by_name(_SERVICE)[1]) for one in self.sentinels}
        return next((one for one in self.servers if ports == {self._known_port(one)}), None)

    def whole(self) -> bool:
        """Whether there is one master, every replica in step, every sentinel aware, and nothing under way."""
        master = self.master()
        if master is None:
            return False
        with redis.Redis(port=master.port) as client:
            info: dict[str, Any] = client.info("replication")
            online = [info.get(f"slave{place}", {}).get("state") for place in range(self.replicas)]
            if info["role"] != "master" or online != ["online"] * self.replicas:
                return False
        for sentinel in self.sentinels:
            state = sentinel.sentinel_master(_SERVICE)
            known = (int(state["num-slaves"]), int(state["num-other-sentinels"]))
            if known != (self.replicas, 2) or state["flags"].strip() != "master":
                return False
        return True

    def fail_over(self, kind: str) -> float:
        """Cause a failover that is planned, paused, cut or killed; return when it began, by time.monotonic().

        planned: SENTINEL FAILOVER, the master lives. paused: the master hangs for 4 s and comes back while it takes
        itself for the master. cut: replicas and sentinels do not reach the master, clients do, for 2 s longer than
        there is another one; needs gates. killed: the master dies. Returns when the fleet is whole again.
        """
        former = self.master()
        if former is None:
            raise ReliqError("the sentinels do not agree on a master")
        began = time.monotonic()
        if kind == "planned":
            self.sentinels[0].execute_command("SENTINEL", "FAILOVER", _SERVICE)
        elif kind == "paused":
            os.kill(former.pid, signal.SIGSTOP)
            time.sleep(_PAUSE)
            os.kill(former.pid, signal.SIGCONT)
        elif kind == "cut":
            gate = self._gate(former)
            gate.shut()
            wait(lambda: self.master() not in (None, former), "a failover")
            time.sleep(_CUT)
            gate.open()
        else:
            former.kill()
            wait(lambda: self.master() not in (None, former), "a failover")
            former.start()
        wait(lambda: self.master() not in (None, former) and self.whole(), "the fleet after a failover")
        return began

    def _gate(self, server: EmbeddedRedis) -> Gate:
        if self._gates is None:
            raise TypeError("only a fleet with gates has a link that can be cut")
        return self._gates[server.port]


def wait(condition: Callable[[], object], what: str, timeout: float = 180.0) -> None:
    """Wait until the condition is true; errors of Redis are no answer."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        with contextlib.suppress(redis.exceptions.RedisError, KeyError):
            if condition():
                return
        time.sleep(0.05)
    raise ReliqError(f"not within {timeout:g} s: {what}")
