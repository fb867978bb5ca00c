"""Monitors: the duties of reliq_monitor in turn, without a leader, so that several act at once."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from reliq import ops
from reliq.errors import ReliqError
from reliq.features.batches.duty import Batches
from reliq.features.flows.duty import OpenFlows, Telling
from reliq.features.output.duty import OutputCleanup
from reliq.features.prepared.duty import PreparedTimeouts
from reliq.features.receipts.duty import Visibility
from reliq.features.schedules.duty import Schedules
from reliq.features.steps.duty import SignalTimeouts
from reliq.model.keys import QueueKeys
from reliq.ops import Sleep, Steps
from reliq_monitor.attempts import Attempts
from reliq_monitor.connections import Connections
from reliq_monitor.duty import Duty
from reliq_monitor.leases import read_leases
from reliq_monitor.liveness import Liveness
from reliq_monitor.partitions import Spreading
from reliq_monitor.promote import promote_due
from reliq_monitor.queue_scan import Survey
from reliq_monitor.reclaim import holders_by_process, note_not_alone, take_back
from tests.simulation.kernel import Kernel
from tests.simulation.processes import Process, Task


def monitor(kernel: Kernel, process: Process, interval: float) -> Task:
    """Start a monitor: each of its duties in turn, without a leader, so that several act at once."""

    def steps(task: Task) -> Generator[Any, Any, None]:
        liveness = Liveness()
        connections = Connections(several=False, connected_at=lambda: task.connected_at)
        attempts = Attempts(lambda home: "", sharded=False)
        schedules = Schedules()
        with_each_look: list[Duty[Any]] = [
            PreparedTimeouts(), Batches(), Spreading(), Visibility(), SignalTimeouts(), OutputCleanup(),
        ]  # fmt: skip
        if kernel.plan_has("flow"):
            with_each_look += [Telling(), OpenFlows()]
        next_scan = 0.0
        survey = Survey(attempts)
        while True:
            try:
                if kernel.seconds >= next_scan:
                    names = yield ops.queue_names()
                    survey = Survey(attempts, [QueueKeys(name) for name in names], every_name=names)
                    next_scan = kernel.seconds + interval
                    survey = yield from kernel.run_of_steps(task, _scan(task, liveness, connections, survey))
                    for duty in with_each_look:
                        yield from kernel.run_of_steps(task, duty.turn(survey))
                yield from kernel.run_of_steps(task, schedules.turn(survey))
                _, due = yield from kernel.run_of_steps(task, promote_due(survey, interval / 2))
            except ReliqError:
                liveness.disturbed()
                schedules.forget()
                yield Sleep(interval)
            else:
                pause = min(interval / 2, schedules.pause, interval if due is None else due)
                yield Sleep(max(pause, 0.01))

    return kernel.start(process, "scan", steps)


def _scan(task: Task, liveness: Liveness, connections: Connections, survey: Survey) -> Steps[Survey]:
    """Find vanished consumers and take back what they held; return what was found."""
    names = yield from connections.look(liveness.misses_some)
    liveness.connections(names, task.connected_at, task.connects > 1)
    found = yield from survey.having_each(
        "scan",
        ("consumers", Schedules.seeks, Visibility.seeks, SignalTimeouts.seeks, OutputCleanup.seeks, Telling.seeks),
    )
    looked, gone = [], {}
    for keys, (now, leases) in (yield from survey.attempts.together("scan", found["consumers"], read_leases)):
        looked.append((keys, leases))
        for vanished in liveness.look(keys.queue, leases, now):
            gone[keys.queue, vanished.consumer] = (keys, vanished)
    for holders in holders_by_process(looked, gone).values():
        if len(holders) > 1:
            yield from survey.attempts.of_queue("reclaim", holders[0][0], note_not_alone(holders), None, "company")
    for keys, vanished in gone.values():
        steps = take_back(keys, vanished.consumer, vanished.known_dead)
        yield from survey.attempts.of_queue("reclaim", keys, steps, None, vanished.consumer)
    return replace(survey, found=found)
