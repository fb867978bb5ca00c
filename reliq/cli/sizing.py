"""How much hardware a load needs, computed from the measured cost of one message."""

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from reliq.contract.settings import MOST_PARTITIONS

COSTS = Path(__file__).with_name("costs.json")  #: `python -m bench.costs --write`
_FREE = 0.5  #: of a master's memory: for copies while its file is rewritten, and for peaks
#: Seconds between two calls of a worker: what has ended since goes into one. With 0.1 ms between two messages one
#: costs 21 us of Redis, with 0.5 ms 39, with 1 ms 83, with 10 ms 147 (10 threads, 200 bytes).
_CALL_EVERY = 0.001
_PARTITIONS = 4  #: of a master, so that they can be moved when masters are added


class Way(StrEnum):
    """A way to send, or to claim and ack."""

    SEND = "send"  #: one message a call
    SEND_MANY = "send_many"
    CONSUME = "consume"  #: a worker that waits for each message
    CONSUME_MANY = "consume_many"  #: a worker that always finds some


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one message. Microseconds of one core, and bytes."""

    redis_us: float
    client_us: float
    received: float  #: by Redis
    answered: float  #: by Redis
    appended: float  #: to its append-only file

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: "Cost") -> "Cost":
        return self + other * -1

    def __mul__(self, factor: float) -> "Cost":
        return Cost(*(one * factor for one in astuple(self)))

    def __truediv__(self, divisor: float) -> "Cost":
        return self * (1 / divisor)


def spent(info: Mapping[str, Any]) -> tuple[float, float]:
    """Return, from INFO, seconds of CPU of Redis' main thread, and bytes of its append-only file; since its start."""
    cpu = (info.get(f"used_cpu_{kind}_main_thread", info[f"used_cpu_{kind}"]) for kind in ("user", "sys"))
    return sum(map(float, cpu)), float(info["aof_current_size"]) + float(info["aof_buffer_length"])


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be carried. Times in seconds, sizes in bytes."""

    rate: float  #: messages a second, of all queues together
    body: int
    queues: int = 1
    handler: float = 0.01  #: time of a run
    threads: int = 10  #: of a worker process
    batch: int = 1  #: messages of a call that sends
    keyed: bool = False
    backlog: float = 60.0  #: the time for which messages may wait, as when all workers are away
    busy: float = 0.6  #: of a core, at most
    memory: int = 16 * 2**30  #: of a master


class Table:
    """The measured costs."""

    def __init__(self, text: str) -> None:
        read = json.loads(text)
        self.measured: str = read["measured"]
        self.on: str = read["on"]
        self.command: str = read["command"]
        self.monitor: float = read["monitor"]  #: of a core, for a thousand queues or workers
        self._rows: list[dict[str, Any]] = read["rows"]
        self._keyed: dict[str, Any] = read["keyed"]

    def cost(self, way: Way, load: Load) -> Cost:
        """Return what a message of the load costs: between the measured sizes in proportion."""
        cost = _between(self._rows, load.body, lambda row: Cost(**row[way]))
        if load.keyed:
            cost += Cost(**self._keyed[way]) - Cost(**self._rows[0][way])
        return cost

    def waiting(self, load: Load) -> float:
        """Return the bytes of memory of a message that waits."""
        memory = _between(self._rows, load.body, lambda row: Cost(0, 0, 0, 0, row["waiting"])).appended
        more: int = self._keyed["waiting"] - self._rows[0]["waiting"] if load.keyed else 0
        return memory + more


def _between(rows: list[dict[str, Any]], body: int, of: Callable[[dict[str, Any]], Cost]) -> Cost:
    sizes = [row["body"] for row in rows]
    right = min(max(bisect_left(sizes, body), 1), len(rows) - 1)
    left = right - 1
    part: float = max(0.0, (body - sizes[left]) / (sizes[right] - sizes[left]))
    first: Cost = of(rows[left])
    return first + (of(rows[right]) - first) * part


@dataclass(frozen=True, slots=True)
class Needs:
    """What a load needs."""

    redis: float  #: cores
    masters: int
    masters_by: str  #: "CPU" or "memory"
    partitions: int  #: of each queue
    memory: float  #: bytes of the messages that wait, on all masters
    file: float  #: bytes/s appended, on all masters
    network: float  #: bits/s to and from all masters
    handlers: int  #: at once
    workers: int  #: processes
    producers: float  #: cores
    monitors: int


def needs(load: Load, table: Table) -> Needs:
    """Compute what a load needs."""
    many, single = table.cost(Way.SEND_MANY, load), table.cost(Way.SEND, load)
    send = many + (single - many) / load.batch
    alone, full = table.cost(Way.CONSUME, load), table.cost(Way.CONSUME_MANY, load)
    handlers = max(1, math.ceil(load.rate * load.handler / load.busy))
    by_client = math.ceil(load.rate * full.client_us / 1e6 / load.busy)
    workers = max(1, by_client, math.ceil(handlers / load.threads))
    consume = full + (alone - full) * min(1.0, workers / load.rate / _CALL_EVERY)
    both = send + consume
    redis = load.rate * both.redis_us / 1e6
    memory = load.rate * load.backlog * table.waiting(load)
    by_cpu, by_memory = math.ceil(redis / load.busy), math.ceil(memory / (load.memory * _FREE))
    masters = max(by_cpu, by_memory, 1)
    partitions = 1 if masters == 1 else min(MOST_PARTITIONS, math.ceil(_PARTITIONS * masters / load.queues))
    watched = workers + load.queues * partitions
    return Needs(
        redis=redis,
        masters=masters,
        masters_by="CPU" if by_cpu >= by_memory else "memory",
        partitions=partitions,
        memory=memory,
        file=load.rate * both.appended,
        network=load.rate * (both.received + both.answered) * 8,
        handlers=handlers,
        workers=workers,
        producers=load.rate * send.client_us / 1e6,
        monitors=1 + math.ceil(watched / 1000 * table.monitor / load.busy),
    )
