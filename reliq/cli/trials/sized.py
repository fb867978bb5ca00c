"""`reliq size --check`: a tenth of a load for some seconds, on a Redis of its own."""

import contextlib
import dataclasses
import math
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reliq import ops
from reliq.cli.columns import columns
from reliq.cli.progress import Progress
from reliq.cli.sizing import Load, Needs, Table, needs, spent
from reliq.cli.trials.processes import Workers, terminated_as_interrupted
from reliq.cli.trials.size_app import HANDLER, QUEUES, queue_name
from reliq.client.app import Reliq
from reliq.contract.values import BODY_LIMIT
from reliq.embedded import EmbeddedRedis
from reliq.errors import InvalidSetting, ReliqError
from reliq.model.outgoing import NewMessage

_TENTH = 10
SECONDS = 10.0
_MOST_RATE, _MOST_BYTES = 5_000.0, 20e6  #: a second: more than that is for several machines
_MOST_QUEUES, _MOST_WORKERS = 50, 8
_KEYS = 1_000
_LONGEST = 5.0  #: seconds of a handler
_REACHED = 0.9  #: of the rate that was asked for
_PATIENCE = 30.0  #: seconds after the last message is sent
FACTOR = 3.0  #: by which what is measured may differ from what was computed


@dataclass(frozen=True, slots=True)
class Tried:
    """What was measured. `waiting`: bytes of memory of a message that waits."""

    load: Load
    seconds: float
    sent: int
    handled: int
    redis_cpu: float  #: cores
    file: float  #: bytes/s
    waiting: float
    asked: float  #: messages/s: a tenth of the load


@dataclass(frozen=True, slots=True)
class Comparison:
    """A computation beside the run."""

    tried: Tried
    computed: Needs
    waiting: float  #: bytes of memory of a message, as computed

    def as_dict(self) -> dict[str, Any]:
        verdict = {"holds": not self.trouble, "factor": FACTOR, "times_computed": self._times, "trouble": self.trouble}
        return {**asdict(self), "verdict": verdict}

    @property
    def _times(self) -> dict[str, float]:
        """How many times what was computed was measured."""
        tried, computed = self.tried, self.computed
        pairs = {
            "Redis CPU": (tried.redis_cpu, computed.redis), "file": (tried.file, computed.file),
            "memory": (tried.waiting, self.waiting),
        }  # fmt: skip
        return {what: measured / expected for what, (measured, expected) in pairs.items()}

    @property
    def trouble(self) -> str:
        """Why not to plan with the computed figures; empty if they hold."""
        left = self.tried.sent - self.tried.handled
        off = [f"{what} {times:.2g}" for what, times in self._times.items() if not 1 / FACTOR <= times <= FACTOR]
        missed = f"{left:,} messages were not handled within {_PATIENCE:g} s after the last one" if left else ""
        differ = f"measured here, in times of what was computed: {', '.join(off)}" if off else ""
        if not missed and not differ:
            return ""
        advice = f"plan with the measured figures, or repeat this on a calm machine (may differ {FACTOR:g} times)"
        return f"{'; '.join(filter(None, (missed, differ)))}: {advice}"

    def __str__(self) -> str:
        tried, computed = self.tried, self.computed
        rows = [
            ("", "computed", "measured"),
            ("Redis CPU", f"{computed.redis:.2g}", f"{tried.redis_cpu:.2g}", "cores"),
            ("file", f"{computed.file / 1e6:.3g}", f"{tried.file / 1e6:.3g}", "MB/s"),
            ("memory", f"{self.waiting:,.0f}", f"{tried.waiting:,.0f}", "bytes of a message that waits"),
        ]
        handled = f"{tried.handled:,} of {tried.sent:,} handled"
        less = f" (a tenth is {tried.asked:,.10g}: more than this machine carries)"
        missed = less if tried.load.rate < _REACHED * tried.asked else ""
        rate = f"{tried.load.rate:,.0f}" if tried.load.rate >= 10 else f"{tried.load.rate:.2g}"
        title = f"{rate} messages/s for {tried.seconds:.0f} s here{missed}: {handled}"
        table = [title, "", *columns(rows, -11, 11, 11)]
        if self.trouble:
            return "\n".join(table)
        times = ", ".join(f"{what} {number:.2g}" for what, number in self._times.items())
        held = f"The computation holds here. Measured, in times of what was computed: {times}"
        return "\n".join([*table, "", f"{held} (may differ {FACTOR:g} times)."])


def compared(load: Load, table: Table, tried: Tried) -> Comparison:
    """Put the computation for the load that was tried beside it."""
    return Comparison(tried, needs(tried.load, table, watched=False), table.waiting(load))


def check(load: Load) -> None:
    """Refuse a load that a run of some seconds cannot try; raises InvalidSetting."""
    if load.handler > _LONGEST:
        raise InvalidSetting(f"--check runs for {SECONDS:g} s: it can try handlers of at most {_LONGEST:g} s")


def run(load: Load) -> Tried:
    """Run a tenth of the load, or what one machine can carry of it; everything is stopped and removed in any case."""
    check(load)
    rate = min(load.rate / _TENTH, _MOST_RATE, _MOST_BYTES / load.body)
    batch = min(load.batch, max(1, int(_MOST_BYTES / load.body)))
    part = dataclasses.replace(load, rate=rate, queues=min(load.queues, _MOST_QUEUES), batch=batch)
    with contextlib.ExitStack() as everything:
        everything.enter_context(terminated_as_interrupted())
        folder = Path(everything.enter_context(tempfile.TemporaryDirectory(prefix="reliq-size-")))
        server = everything.enter_context(EmbeddedRedis(settings=("--auto-aof-rewrite-percentage", "0")))
        app = everything.enter_context(contextlib.closing(Reliq(server.url, max_body=max(BODY_LIMIT, load.body))))
        trial = _Trial(app, part, folder)
        everything.callback(trial.workers.stop)
        return dataclasses.replace(trial.run(), asked=load.rate / _TENTH)


class _Trial:
    def __init__(self, app: Reliq, load: Load, folder: Path) -> None:
        self._app, self._load = app, load
        self.workers = Workers(
            app.url, "reliq.cli.trials.size_app:app", folder / "workers.log", "--no-monitor", "--threads",
            str(load.threads), **{HANDLER: str(load.handler), QUEUES: str(load.queues)},
        )  # fmt: skip
        self._queues = [app.queue(queue_name(number)) for number in range(load.queues)]
        self._body = b"x" * load.body

    def run(self) -> Tried:
        waiting = self._memory_of_a_message()
        self._queues[0].purge()
        self._start_workers()
        cpu, file = self._spent()
        began, sent = time.monotonic(), self._send()
        taken = time.monotonic() - began
        left = self._wait(sent)
        cpu_later, file_later = self._spent()
        load = dataclasses.replace(self._load, rate=sent / taken)  # a busy machine may not reach what was asked
        redis_cpu, written = (cpu_later - cpu) / taken, (file_later - file) / taken
        return Tried(load, taken, sent, sent - left, redis_cpu, written, waiting, self._load.rate)

    def _memory_of_a_message(self) -> float:
        """Send some messages before there is a worker."""
        self._send_to(0, self._load.batch, 0)  # Redis learns the scripts
        some = max(2, min(2_000, int(_MOST_BYTES / self._load.body)))
        before = self._used_memory()
        for start in range(0, some, self._load.batch):
            self._send_to(0, min(self._load.batch, some - start), start)
        return (self._used_memory() - before) / some

    def _start_workers(self) -> None:
        wanted = math.ceil(self._load.rate * self._load.handler / self._load.busy / self._load.threads)
        for _ in range(min(max(wanted, 1), _MOST_WORKERS)):
            self.workers.start()
        until = time.monotonic() + _PATIENCE
        while self._queues[0].stats().consumers < len(self.workers):
            self.workers.check_running()
            if time.monotonic() > until:
                raise ReliqError(f"the workers did not start within {_PATIENCE:g} s")
            time.sleep(0.05)

    def _send(self) -> int:
        """Send at the rate of the load; return how many messages were sent."""
        load, bar = self._load, Progress("sent", int(self._load.rate * SECONDS))
        sent, began = 0, time.monotonic()
        while (elapsed := time.monotonic() - began) < SECONDS:
            if sent >= elapsed * load.rate:
                time.sleep(min(load.batch / load.rate, SECONDS) / 10)
                continue
            self._send_to(sent // load.batch % load.queues, load.batch, sent)
            sent += load.batch
            bar.update(sent)
        bar.update(sent, final=True)
        return sent

    def _send_to(self, number: int, count: int, first: int) -> None:
        queue, keyed = self._queues[number], self._load.keyed
        keys = [f"key-{one % _KEYS}" if keyed else None for one in range(first, first + count)]
        if count == 1:
            queue.send(self._body, key=keys[0])
        else:
            queue.send_many([NewMessage(self._body, key=key) for key in keys])

    def _wait(self, sent: int) -> int:
        """Wait until all messages are handled; return how many are left."""
        until, bar = time.monotonic() + _PATIENCE, Progress("handled", sent)
        while True:
            stats = [queue.stats() for queue in self._queues]
            left = sum(one.ready + one.processing + one.delayed for one in stats)
            bar.update(sent - left, final=not left and sent > 0)
            if not left or time.monotonic() > until:
                return left
            self.workers.check_running()
            time.sleep(0.1)

    def _info(self) -> dict[str, str]:
        sections = ops.server_info("cpu", "memory", "persistence")
        parts = [self._app.store.call(one) for one in sections]
        return {name: value for part in parts for name, value in part.items()}

    def _used_memory(self) -> float:
        return float(self._info()["used_memory"])

    def _spent(self) -> tuple[float, float]:
        """Return seconds of Redis' CPU, and bytes of its file."""
        return spent(self._info())
