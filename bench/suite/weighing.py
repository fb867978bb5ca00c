"""What Redis spends on a piece of work, with its append-only file on: CPU, bytes received, appended and replicated."""

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

import redis

from bench.suite.contestants import Contestant, Failed
from bench.suite.harness import Setting
from reliq.cli.sizing import spent
from reliq.embedded import EmbeddedRedis

KIB = 1024
SIZES = (200, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB)  #: bytes of a body
_ROUND_BYTES = 64 * KIB * KIB  #: the bodies of one round
_PATIENCE = 180.0  #: seconds for one answer of a contestant


@dataclass(frozen=True, slots=True)
class Weight:
    """Totals since the server's start; of the work between two readings, as their difference."""

    cpu_us: float  #: of Redis' main thread
    received: float  #: bytes from clients
    appended: float  #: bytes to the append-only file
    replicated: float  #: bytes to each replica
    seconds: float  #: of the clock

    @classmethod
    def read(cls, client: redis.Redis) -> Self:
        info = client.info("everything")
        cpu, appended = spent(info)
        return cls(
            cpu_us=cpu * 1e6,
            received=info["total_net_input_bytes"],
            appended=appended,
            replicated=info["master_repl_offset"],
            seconds=time.monotonic(),
        )

    def each(self, later: "Weight", messages: int) -> "Weight":
        """Return the weight of one of `messages` that were worked on between this reading and a later one."""
        return Weight(*((getattr(later, one.name) - getattr(self, one.name)) / messages for one in fields(Weight)))


def named(size: int) -> str:
    return f"{size} B" if size < KIB else f"{size // KIB} KiB"


def volume(setting: Setting, most: int, size: int) -> int:
    """Return the messages of one round: at most that many, and not too many bytes."""
    return max(8, setting.volume(min(most, max(200, _ROUND_BYTES // size))))


def weighed(client: redis.Redis, work: Callable[..., object], messages: int) -> Weight:
    """Return what one message costs Redis in `work(messages)`."""
    before = Weight.read(client)
    work(messages)
    return before.each(Weight.read(client), messages)


@contextlib.contextmanager
def persistent_redis(*more: str) -> Iterator[tuple[EmbeddedRedis, redis.Redis]]:
    """A server with `appendonly yes`, `appendfsync everysec`, whose file only grows."""
    settings = ("--auto-aof-rewrite-percentage", "0", "--repl-diskless-sync-delay", "0", *more)
    with EmbeddedRedis(settings=settings) as server, redis.Redis(port=server.port) as client:
        yield server, client
        server.kill()  # its file is not needed any more


def write_out(server: EmbeddedRedis) -> None:
    """Bring the append-only file onto the disk, so that no later work waits for it."""
    for path in server.folder.rglob("*.aof"):
        with path.open("rb") as file:
            os.fsync(file.fileno())


class Ordered:
    """A contestant's process that works when told: see bench/contestants/weighed.py. A context."""

    def __init__(self, one: Contestant, url: str) -> None:
        self._one = one
        self._process = one.start(one.variant or "consume", url, stdin=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def order(self, *words: object) -> dict[str, Any]:
        """Give an order, and return the answer to it; raises Failed."""
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise TypeError("the contestant was started without pipes")
        with contextlib.suppress(BrokenPipeError):
            stdin.write(" ".join(map(str, words)) + "\n")
            stdin.flush()
        line = stdout.readline() if select.select([stdout], [], [], _PATIENCE)[0] else ""
        if not line:
            self._process.kill()
            raise Failed(f"{self._one.name}: {(stderr.read().strip().splitlines() or ['no answer'])[-1]}")
        answer: dict[str, Any] = json.loads(line)
        return answer
