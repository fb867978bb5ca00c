"""`reliq chaos`: kill and pause workers while they handle messages, then look for every message."""

import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reliq import ops
from reliq.cli.progress import Progress
from reliq.cli.trials.chaos_app import HISTORY, QUEUE, WORK
from reliq.cli.trials.chaos_report import Fault, Report, lost_and_runs
from reliq.cli.trials.own_queue import run_trial
from reliq.cli.trials.processes import WorkerProcess, Workers
from reliq.client.app import Reliq
from reliq.contract import values
from reliq.model.keys import QueueKeys, belongs_to, owner_of
from reliq.model.message import Message
from reliq.ops.schema import Counter

_TICK = 0.02
_WORK = 0.002
_DELIVERIES = 1000  #: vanished workers that one message may survive


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run; all values are bounded."""

    messages: int
    workers: int
    kills: int
    pauses: int
    lease: float
    time_limit: float

    def __post_init__(self) -> None:
        values.whole(self.messages, "messages", 1, 1_000_000)
        values.whole(self.workers, "workers", 1, 64)
        values.whole(self.kills, "kills", 0, 500)
        values.whole(self.pauses, "pauses", 0, 100)
        values.seconds(self.lease, "lease", values.MIN_LEASE_SECONDS, 60.0)
        values.seconds(self.time_limit, "time", 1.0, 86_400.0)


def run(url: str | None, plan: Plan) -> Report:
    """Run on an embedded Redis or the given one, in a separate queue that is removed at the end."""
    return run_trial("chaos", url, lambda app, folder: _Chaos(app, plan, folder), embedded=True)


class _Chaos:
    def __init__(self, app: Reliq, plan: Plan, folder: Path) -> None:
        self._app = app
        self._plan = plan
        self.queue = app.queue(f"chaos-{secrets.token_hex(6)}")
        self._keys = QueueKeys(self.queue.name)
        self._history = folder / "history"
        self._history.touch()
        self.workers = Workers(
            app.url, "reliq.cli.trials.chaos_app:app", folder / "workers.log", "--lease", str(plan.lease),
            "--no-monitor", **{HISTORY: str(self._history), QUEUE: self.queue.name, WORK: str(_WORK)},
        )  # fmt: skip
        self._killed: list[Fault] = []
        self._paused: list[Fault] = []
        self._due = _spread(plan.kills, plan.pauses)

    def run(self) -> Report:
        self.queue.configure(max_deliveries=_DELIVERIES)
        sent = self.queue.send_many(range(self._plan.messages))
        for _ in range(self._plan.workers):
            self.workers.start()
        started = time.monotonic()
        self._until_all_are_handled(len(sent), started + self._plan.time_limit)
        seconds = time.monotonic() - started
        self.workers.stop()
        return self._report(sent, seconds)

    def _until_all_are_handled(self, total: int, until: float) -> None:
        bar = Progress("handled", total)
        while time.monotonic() < until:
            stats = self.queue.stats()
            acked = stats.counters.get(Counter.ACKED, 0)
            bar.update(acked, f"killed {len(self._killed)} paused {len(self._paused)}")
            self._continue_paused()
            self._look_for_returned()
            if stats.ready == stats.processing == stats.delayed == 0:
                break
            self.workers.check_running()
            if self._due and acked >= total * self._due[0][0]:
                self._do_harm()
            time.sleep(_TICK)
        bar.update(self.queue.stats().counters.get(Counter.ACKED, 0), final=True)

    # --- faults ---

    def _do_harm(self) -> None:
        """Cause the next fault if it is due, on a worker that holds messages; without one, try again later."""
        holding = self._holding()
        if not holding:
            return
        worker = random.choice(holding)
        _, kind = self._due.pop(0)
        if kind == "kill":
            worker.kill()
            self.workers.remove(worker)
            self._killed.append(self._fault(worker))
            self.workers.start()
        else:
            worker.pause()
            self._paused.append(self._fault(worker))

    def _holding(self) -> list[WorkerProcess]:
        consumers = self._app.store.call(ops.members(self._keys.consumers))
        lengths = self._lengths(consumers)
        holders = {owner_of(one) for one, length in zip(consumers, lengths, strict=True) if length}
        away = {fault.worker.owner for fault in self._paused if not fault.over}
        return [worker for worker in self.workers if worker.owner in holders - away]

    def _fault(self, worker: WorkerProcess) -> Fault:
        every = self._app.store.call(ops.members(self._keys.consumers))
        consumers = [one for one in every if belongs_to(one, worker.owner)]
        return Fault(worker, time.monotonic(), consumers, sum(self._lengths(consumers)))

    def _lengths(self, consumers: Sequence[str]) -> list[int]:
        lengths: list[int] = self._app.store.call([ops.held_count(self._keys, consumer) for consumer in consumers])
        return lengths

    # --- recovery ---

    def _continue_paused(self) -> None:
        """Continue paused workers after their leases have expired and the monitor has noticed."""
        for fault in self._paused:
            if not fault.over and time.monotonic() - fault.at > self._plan.lease + 1.0:
                fault.over = True
                fault.worker.go_on()

    def _look_for_returned(self) -> None:
        for fault in (*self._killed, *self._paused):
            if fault.held and fault.returned is None and not any(self._lengths(fault.consumers)):
                fault.returned = time.monotonic() - fault.at

    # --- the end ---

    def _report(self, sent: Sequence[str], seconds: float) -> Report:
        lost, handled, extra_runs = lost_and_runs(self._history, sent, self._in_queue())
        return Report(
            where=self._app.store.where,
            workers=self._plan.workers,
            messages=len(sent),
            seconds=seconds,
            killed=self._killed,
            paused=self._paused,
            redelivered=self.queue.stats().counters.get(Counter.RECLAIMED, 0),
            handled=handled,
            extra_runs=extra_runs,
            lost=len(lost),
        )

    def _in_queue(self) -> set[str]:
        """Return the ids of all messages in the queue, in any state, at one instant."""
        consumers = self._app.store.call(ops.members(self._keys.consumers))
        lists = [self._keys.messages, *map(self._keys.processing, consumers)]
        reads = [ops.whole_list(key) for key in lists]
        reads += [ops.whole_zset(key) for key in (self._keys.delayed, self._keys.dead)]
        found = self._app.store.call(ops.Transaction(tuple(reads)))
        return {Message.decode(self.queue.name, element).id for some in found for element in some}


def _spread(kills: int, pauses: int) -> list[tuple[float, str]]:
    """Return the faults in random order, each with the share of messages handled before it."""
    kinds = ["kill"] * kills + ["pause"] * pauses
    random.shuffle(kinds)
    return [((number + 1) / (len(kinds) + 1), kind) for number, kind in enumerate(kinds)]
