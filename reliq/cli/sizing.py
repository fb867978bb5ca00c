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
_SPARE = 1  #: monitors


class Way(StrEnum):
    """A way to send, or to claim and ack."""

    SEND = "send"  #: one message a call
    SEND_MANY = "send_many"
    CONSUME = "consume"  #: a worker that waits for each message
    CONSUME_MANY = "consume_many"  #: a worker that always finds some


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one message, or of a second. Microseconds of one core, and bytes."""

    redis_us: float = 0.0
    client_us: float = 0.0
    received: float = 0.0  #: by Redis
    answered: float = 0.0  #: by Redis
    appended: float = 0.0  #: to its append-only file

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
        self._idle = {what: Cost(**cost) for what, cost in read["idle"].items()}
        self._seldom: list[dict[str, Any]] = read["seldom"]

    def cost(self, way: Way, load: Load) -> Cost:
        """Return what a message of the load costs: between the measured sizes in proportion."""
        cost = _between(self._rows, load.body, lambda row: Cost(**row[way]))
        if load.keyed:
            cost += Cost(**self._keyed[way]) - Cost(**self._rows[0][way])
        return cost

    def waiting(self, load: Load) -> float:
        """Return the bytes of memory of a message that waits."""
        memory = _between(self._rows, load.body, lambda row: Cost(appended=row["waiting"])).appended
        more: int = self._keyed["waiting"] - self._rows[0]["waiting"] if load.keyed else 0
        return memory + more

    def idle(self, what: str) -> Cost:
        """Return what one costs each second in which nothing is sent: a "server", or a "monitor" of it; a "worker" of
        one queue; each further "queue" of a worker.
        """
        return self._idle[what]

    def awake(self, calls: float) -> Cost:
        """Return what a message costs more that comes alone, with so many a second: Redis sleeps in between."""
        at_once = Cost(**self._rows[0][Way.SEND]) + Cost(**self._rows[0][Way.CONSUME])
        fewest, most = self._seldom[0]["rate"], self._seldom[-1]["rate"]
        by_rate = [{**row, "rate": math.log(row["rate"])} for row in self._seldom]
        rate = math.log(min(max(calls, fewest), most))
        cost = _between(by_rate, rate, lambda row: Cost(**row["cost"]), by="rate") - at_once
        more = Cost(*(max(0.0, one) for one in astuple(cost)))
        often: float = min(1.0, most / calls)
        return more * often  # it sleeps no more often than that


def _between(rows: list[dict[str, Any]], at: float, of: Callable[[dict[str, Any]], Cost], by: str = "body") -> Cost:
    """Return the cost at this place of the rows, which are ordered by one of their members: in proportion."""
    places = [row[by] for row in rows]
    right = min(max(bisect_left(places, at), 1), len(rows) - 1)
    left = right - 1
    part: float = max(0.0, (at - places[left]) / (places[right] - places[left]))
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


def needs(load: Load, table: Table, *, watched: bool = True) -> Needs:
    """Compute what a load needs. `watched`: by monitors, which ask Redis also while nothing happens."""
    many, single = table.cost(Way.SEND_MANY, load), table.cost(Way.SEND, load)
    send = many + (single - many) / load.batch
    alone, full = table.cost(Way.CONSUME, load), table.cost(Way.CONSUME_MANY, load)
    handlers = max(1, math.ceil(load.rate * load.handler / load.busy))
    by_client = math.ceil(load.rate * full.client_us / 1e6 / load.busy)
    workers = max(1, by_client, math.ceil(handlers / load.threads))
    together = max(1.0, min(load.batch / workers, load.threads))  # the workers share a batch
    by_themselves = min(1.0, workers / load.rate / _CALL_EVERY) / together
    renewals = (table.idle("worker") + table.idle("queue") * (load.queues - 1)) * workers
    work = (send + full + (alone - full) * by_themselves) * load.rate + renewals
    memory = load.rate * load.backlog * table.waiting(load)
    by_cpu, by_memory = math.ceil(work.redis_us / 1e6 / load.busy), math.ceil(memory / (load.memory * _FREE))
    masters = max(by_cpu, by_memory, 1)
    partitions = 1 if masters == 1 else min(MOST_PARTITIONS, math.ceil(_PARTITIONS * masters / load.queues))
    watching = math.ceil((workers + load.queues * partitions) / 1000 * table.monitor / load.busy)
    monitors = _SPARE + watching if watched else 0
    # A busy Redis does not sleep: what it costs to wake it needs no further master.
    calls = load.rate * by_themselves
    work += table.awake(calls / masters) * calls
    work += (table.idle("server") + table.idle("monitor") * monitors) * masters
    return Needs(
        redis=work.redis_us / 1e6,
        masters=masters,
        masters_by="CPU" if by_cpu >= by_memory else "memory",
        partitions=partitions,
        memory=memory,
        file=work.appended,
        network=(work.received + work.answered) * 8,
        handlers=handlers,
        workers=workers,
        producers=load.rate * send.client_us / 1e6,
        monitors=monitors,
    )
