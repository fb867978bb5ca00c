"""The system that a campaign breaks: a Redis, monitors, workers and producers, with the history of its operator."""

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from reliq.client.app import Reliq
from reliq.contract import values
from reliq.errors import ReliqError
from tests.campaign.actors import APP, Actor, Told, javascript_consumer, producer, service, sqs_consumer
from tests.campaign.history import SUFFIX, History
from tests.campaign.servers import Server
from tests.campaign.tasks import MIX, QUEUE
from tests.support.ports import free_port

_LOOK = 0.05
_TOLD = 1.0  #: seconds
_STARTED = 60.0  #: seconds until the first messages must be handled


@dataclass(frozen=True, slots=True)
class Setup:
    """The size and the options of a system."""

    workers: int = 4
    producers: int = 2
    monitors: int = 1
    lease: float = 5.0
    rate: float = 100.0  #: messages a second, of each producer; 0 = as many as it can
    batch: int = 10  #: the most messages in one call
    work: float = 0.002  #: seconds that a message takes
    mix: Mapping[str, int] = field(default_factory=lambda: MIX)
    durability: str | None = None
    send_timeout: float = values.SEND_TIMEOUT
    max_deliveries: int = 1000  #: consumers that may die with a message before it is dead
    supervisors: int = 0  #: `reliq worker --processes 2`
    services: int = 0  #: HTTP services; with one there is a producer that uses it
    endpoints: int = 0  #: SQS endpoints; with them there is a producer that uses them
    sqs_consumers: int = 0
    partitions: int = 1  #: of the queue
    javascript: bool = False  #: whether every other one of these has the SDK of JavaScript


class System:
    """Starts, replaces and stops processes; a context."""

    def __init__(self, server: Server, folder: Path, setup: Setup, seed: int, older: Path | None = None) -> None:
        self.server = server
        self.folder = folder
        self.setup = setup
        self.seed = seed
        self.random = random.Random(seed)
        self.operator = History(folder, "operator")
        self.workers: list[Actor] = []
        self.monitors: list[Actor] = []
        self.supervisors: list[Actor] = []
        self.services: list[Actor] = []
        self.producers: list[Actor] = []
        self.sqs_consumers: list[Actor] = []
        self.endpoints: dict[int, Actor] = {}  #: by port
        self.details: Counter[str] = Counter()  #: what else a fault has counted
        self.older = older  #: the folder with the version that the processes run at first
        self.code = older  #: that of the processes that are started now; None: this version
        self._started = 0
        self._service_port = free_port()

    def __enter__(self) -> Self:
        self.server.__enter__()
        app = Reliq(self.server.url)
        app.queue(QUEUE).configure(max_deliveries=self.setup.max_deliveries, partitions=self.setup.partitions)
        app.close()
        for _ in range(self.setup.monitors):
            self.start_monitor()
        for _ in range(self.setup.workers):
            self.start_worker()
        for _ in range(self.setup.supervisors):
            self.start_supervisor()
        for _ in range(self.setup.services):
            self.start_service()
        for _ in range(self.setup.endpoints):
            self.start_endpoint(free_port())
        for _ in range(self.setup.sqs_consumers):
            self.start_sqs_consumer()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop_producers()
        self.stop_consumers()
        self.server.__exit__(*error)
        self.operator.close()

    # --- processes ---

    def _told(self, role: str, **fields: Any) -> Told:
        self._started += 1
        name = f"{role}-{self._started}"
        url = self.server.url_for(name)
        return Told(name, self.folder, url, work=self.setup.work, code=self.code, **fields)

    def start_worker(self) -> Actor:
        """Start a worker; every other one runs its handlers in threads."""
        threads = ("--threads", "4") if len(self.workers) % 2 else ()
        told = self._told("worker", arguments=(*self._worker_arguments(), *threads))
        self.workers.append(Actor(service, told))
        return self.workers[-1]

    def start_supervisor(self) -> Actor:
        """Start a worker with two processes of its own, which are new interpreters."""
        told = self._told("supervisor", arguments=(*self._worker_arguments(), "--processes", "2"))
        self.supervisors.append(Actor(service, told))
        return self.supervisors[-1]

    def _worker_arguments(self) -> tuple[str, ...]:
        return ("worker", APP, "--lease", str(self.setup.lease), "--grace", "10", "--no-monitor", "--quiet")

    def start_service(self) -> Actor:
        """Start the HTTP service, always on the same port."""
        told = self._told("service", arguments=("api", "--port", str(self._service_port), "--quiet"))
        self.services.append(Actor(service, told))
        return self.services[-1]

    def start_endpoint(self, port: int) -> Actor:
        """Start an SQS endpoint."""
        arguments = ("sqs", "--port", str(port), "--no-auth", "--no-monitor", "--quiet")
        self.endpoints[port] = Actor(service, self._told("endpoint", arguments=arguments))
        return self.endpoints[port]

    def start_sqs_consumer(self) -> Actor:
        send = {"endpoints": self._endpoint_urls(), "visibility": round(self.setup.lease)}
        told = self._told("sqs", send=send)
        target = javascript_consumer if self.setup.javascript and self._started % 2 else sqs_consumer
        self.sqs_consumers.append(Actor(target, told))
        return self.sqs_consumers[-1]

    def _endpoint_urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.endpoints]

    def start_monitor(self) -> Actor:
        grace = ("--reconnect-grace", str(values.LOOPBACK_GRACE))
        self.monitors.append(Actor(service, self._told("monitor", arguments=("monitor", "--quiet", *grace))))
        return self.monitors[-1]

    def start_producer(self, count: int = 0) -> Actor:
        """Start a producer that sends so many messages, or until it is stopped."""
        self.producers.append(Actor(producer, self._told("producer", send=self._send(count))))
        return self.producers[-1]

    def start_producers(self, count: int = 0) -> None:
        """Start all producers."""
        for _ in range(self.setup.producers):
            self.start_producer(count)
        if self.services:
            url = f"http://127.0.0.1:{self._service_port}"
            told = self._told("producer", send={**self._send(count), "http": True, "batch": 1})
            self.producers.append(Actor(producer, replace(told, url=url)))

        if self.endpoints:
            told = self._told("producer", send={**self._send(count), "endpoints": self._endpoint_urls()})
            self.producers.append(Actor(producer, told))

    def _send(self, count: int) -> Mapping[str, Any]:
        setup = self.setup
        return {
            "count": count, "rate": setup.rate, "batch": setup.batch, "durability": setup.durability,
            "send_timeout": setup.send_timeout,
            "mix": setup.mix, "seed": self.seed, "http": False,
        }  # fmt: skip

    def stop_producers(self) -> None:
        for one in self.producers:
            one.ask_to_stop()
        self.join_producers(60.0)

    def join_producers(self, seconds: float) -> None:
        """Wait until the producers have sent everything."""
        until = time.monotonic() + seconds
        for one in self.producers:
            one.wait(max(1.0, until - time.monotonic()))
        self.producers.clear()

    def actors(self) -> list[Actor]:
        """Return all processes that run."""
        consumers = [*self.workers, *self.supervisors, *self.sqs_consumers]
        return [*consumers, *self.monitors, *self.services, *self.endpoints.values(), *self.producers]

    def tell_where_all_are(self) -> None:
        """Have all processes write their stacks to their log: one of them hangs."""
        for one in self.actors():
            one.tell_where_it_is()
        time.sleep(_TOLD)

    def stop_consumers(self) -> None:
        """Stop everything but the producers, in order."""
        first = (self.workers, self.supervisors, self.sqs_consumers)  # these need the others to stop
        for groups in (first, (self.services, self.monitors, list(self.endpoints.values()))):
            every = [one for group in groups for one in group]
            for one in every:
                one.ask_to_stop()
            for one in every:
                one.wait()
            for group in groups:
                group.clear()
        self.endpoints.clear()

    # --- looking ---

    def look(self) -> tuple[int, int]:
        """Return how many messages are in the queue and not dead, and how many were acked; raises ReliqError."""
        app = Reliq(self.server.url, send_timeout=1.0)
        try:
            stats = app.queue(QUEUE).stats()
        finally:
            app.close()
        return stats.ready + stats.processing + stats.delayed, stats.counters.get("acked", 0)

    def look_patiently(self, seconds: float) -> tuple[int, int]:
        """Return the same as soon as Redis answers."""
        until = time.monotonic() + seconds
        while True:
            try:
                return self.look()
            except ReliqError:
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK)

    def wait_for_load(self) -> None:
        """Wait until messages are sent and handled."""
        until = time.monotonic() + _STARTED
        while self.look()[1] < 10:
            if time.monotonic() > until:
                raise ReliqError(f"no messages were handled within {_STARTED:g} s: see {self.folder}/processes.log")
            time.sleep(_LOOK)

    def wait_until_up(self, one: Actor) -> None:
        """Wait until a process is past its start: a worker has its history then, others just run."""
        history, until = self.folder / f"{one.name}{SUFFIX}", time.monotonic() + _STARTED
        while one in self.workers and not history.exists() and time.monotonic() < until:
            time.sleep(_LOOK)

    def wait_until_consuming(self, one: Actor) -> None:
        """Wait until a consumer has its first messages."""
        history, until = self.folder / f"{one.name}{SUFFIX}", time.monotonic() + _STARTED
        while not (history.exists() and history.stat().st_size) and time.monotonic() < until:
            time.sleep(_LOOK)

    def wait_until_empty(self, seconds: float) -> bool:
        """Wait until only dead letters are left; returns whether that came in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if self.look()[0] == 0:
                    return True
            except ReliqError:
                pass
            time.sleep(_LOOK)
        return False

    # --- faults ---

    def note_fault(self, kind: str, process: str, start: float, rewound: float | None = None) -> None:
        """Note a fault in the operator's history. `rewound`: since then Redis may have lost what it had answered."""
        fields = {} if rewound is None else {"rewound": rewound}
        fields |= {"from": start, "to": time.monotonic()}
        self.operator.note("fault", "ok", kind=kind, process=process, **fields)
