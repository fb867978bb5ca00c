"""What a message costs, by the size of its body: the table from which `reliq size` computes.

    python -m bench.costs [--rounds 3] [--scale 1] [--write] [--idle]

For each size and each way to send and to consume: CPU of Redis and of the program, bytes on the wire, bytes of the
append-only file (appendfsync everysec), memory while it waits; then what Redis spends while nothing happens, and on
messages that come seldom. `--write` puts the table into the package, `--idle` renews the last part of it only.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import redis

import reliq
from bench.suite import idling
from bench.suite.flat import consumers, monitor_shares, queues, state
from bench.suite.harness import Setting
from bench.suite.weighing import KIB, SIZES, persistent_redis, volume
from reliq.cli.progress import Progress
from reliq.cli.sizing import COSTS, Cost, Way
from reliq.transport.store import Store
from reliq.worker import Options, Worker

_BATCH_BYTES = 4 * KIB * KIB  #: of one send_many
_MANY, _SINGLES = 20_000, 500  #: messages of one round
_KEYS = 10_000
_WATCHED = 1_000  #: consumers, and queues, of which a monitor's CPU time is measured
_PATIENCE = 60.0


class Handling:
    """A worker with one thread and an empty handler, and how many messages it has handled. A context."""

    def __init__(self, url: str) -> None:
        self._left, self._done = 0, threading.Event()
        self._app = reliq.Reliq(url)
        self._app.handler("bench")(self._handle)
        self._worker = Worker(Store(url), self._app.handlers, Options())
        self._thread = threading.Thread(target=self._worker.run)

    def _handle(self, message: reliq.Message) -> None:
        self._left -= 1
        if not self._left:
            self._done.set()

    def expect(self, messages: int) -> None:
        self._done.clear()
        self._left = messages

    def wait(self) -> None:
        if not self._done.wait(_PATIENCE):
            raise SystemExit(f"the worker has {self._left} messages left after {_PATIENCE:g} s")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._worker.stop()
        self._thread.join()
        self._app.close()


@contextlib.contextmanager
def counted(client: redis.Redis, messages: int, found: list[Cost]) -> Iterator[None]:
    """Note what one of the messages costs that are worked on inside."""

    def read() -> Cost:
        return dataclasses.replace(idling.total(client), client_us=time.process_time() * 1e6)

    before = read()
    yield
    found.append((read() - before) / messages)


class Bench:
    """The ways to send and to consume bodies of one size."""

    def __init__(self, url: str, client: redis.Redis, size: int, setting: Setting) -> None:
        self._client, self._body = client, b"x" * size
        self._app = reliq.Reliq(url)
        self._queue = self._app.queue("bench")
        self.many = volume(setting, _MANY, size)
        self.singles = volume(setting, _SINGLES, size)
        self._a_call = max(1, min(1000, _BATCH_BYTES // size))
        self.costs: dict[Way, list[Cost]] = {way: [] for way in Way}
        self.waiting: list[float] = []  #: bytes of memory of a message

    def round(self, *, keyed: bool = False) -> None:
        self._queue.purge()
        with counted(self._client, self.singles, self.costs[Way.SEND]):
            for number in range(self.singles):
                self._queue.send(self._body, key=_key(number, keyed))
        self._queue.purge()
        before = self._client.info("memory")["used_memory"]
        with counted(self._client, self.many, self.costs[Way.SEND_MANY]):
            for start in range(0, self.many, self._a_call):
                numbers = range(start, min(self.many, start + self._a_call))
                self._queue.send_many([reliq.NewMessage(self._body, key=_key(one, keyed)) for one in numbers])
        self.waiting.append((self._client.info("memory")["used_memory"] - before) / self.many)
        self._consume(keyed)

    def _consume(self, keyed: bool) -> None:
        handling = Handling(self._app.url)
        handling.expect(self.many)
        with counted(self._client, self.many, self.costs[Way.CONSUME_MANY]):
            handling.start()
            handling.wait()
        alone: list[Cost] = []
        with counted(self._client, self.singles, alone):
            for number in range(self.singles):
                handling.expect(1)
                self._queue.send(self._body, key=_key(number, keyed))
                handling.wait()
        handling.stop()
        self.costs[Way.CONSUME].append(alone[0] - self.costs[Way.SEND][-1])

    def medians(self) -> dict[str, Cost]:
        return {way.value: _median(costs) for way, costs in self.costs.items()}

    def close(self) -> None:
        self._app.close()


def _key(number: int, keyed: bool) -> str | None:
    return f"key-{number % _KEYS}" if keyed else None


def _median(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(getattr(one, field.name) for one in costs) for field in dataclasses.fields(Cost)))


def measured(size: int, setting: Setting, keyed: bool = False) -> dict[str, object]:
    """Return the row of a size."""
    with persistent_redis() as (server, client):
        bench = Bench(server.url, client, size, setting)
        for number in range(-1, setting.rounds):
            bench.round(keyed=keyed)
            if number < 0:  # the first one loads the scripts, and is forgotten
                bench.costs, bench.waiting = {way: [] for way in Way}, []
        bench.close()
    costs = {way: {name: round(value, 2) for name, value in dataclasses.asdict(cost).items()}
             for way, cost in bench.medians().items()}  # fmt: skip
    return {"body": size, "waiting": round(statistics.median(bench.waiting)), **costs}


def watching() -> float:
    """Of a core: what a monitor takes for a thousand consumers or for a thousand queues, whichever is more."""
    shares = []
    for build in (consumers, queues):
        with state(build, _WATCHED) as app:
            shares.append(monitor_shares(app.url)[0])
    return max(shares)


def _about() -> str:
    with persistent_redis() as (_, client):
        version = client.info("server")["redis_version"]
    cores = len(os.sched_getaffinity(0))
    return f"Redis {version}, Python {platform.python_version()}, {cores} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the volumes; below 1 for a try")
    parser.add_argument("--write", action="store_true", help=f"write {COSTS.name} of the package")
    parser.add_argument("--idle", action="store_true", help="only what is idle or seldom; the rest stays")
    options = parser.parse_args()
    table = json.loads(COSTS.read_text()) if options.idle else _messages(options.rounds, options.scale)
    table |= idling.costs(options.scale)
    text = json.dumps(table, indent=1) + "\n"
    print(text)
    if options.write:
        COSTS.write_text(text)


def _messages(rounds: int, scale: float) -> dict[str, object]:
    """Return the table without what is idle."""
    setting = Setting(rounds=rounds, scale=scale)
    bar, steps = Progress("measured"), len(SIZES) + 2
    rows = []
    for number, size in enumerate(SIZES):
        rows.append(measured(size, setting))
        bar.update(number + 1, f"of {steps}")
    keyed = measured(SIZES[0], setting, keyed=True)
    bar.update(len(SIZES) + 1, f"of {steps}")
    table: dict[str, object] = {
        "measured": datetime.now(UTC).date().isoformat(), "on": _about(), "command": "python -m bench.costs --write",
        "monitor": round(watching(), 4), "rows": rows, "keyed": keyed,
    }  # fmt: skip
    bar.update(steps, f"of {steps}", final=True)
    return table


if __name__ == "__main__":
    main()
