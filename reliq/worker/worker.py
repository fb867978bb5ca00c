"""A worker process: a loop for every handler, a heartbeat, a watchdog, and an orderly end."""

import functools
import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import Any

from reliq import ops
from reliq.client.heartbeat import Heartbeat
from reliq.contract import values
from reliq.contract.values import Duration, seconds, whole
from reliq.errors import InvalidSetting, RedisUnsuitable, ReliqError
from reliq.features.prepared.worker import CheckBacks
from reliq.features.schedules.worker import DefinedSchedules
from reliq.features.topics.worker import Broadcasts
from reliq.model.handlers import Handler, Handlers
from reliq.model.instruction import Instruction, latest
from reliq.model.keys import QueueKeys, connection_name, new_owner, process_of
from reliq.observability.histograms import Measurements
from reliq.protocol.away import AwayNodes
from reliq.protocol.lease import Lease
from reliq.protocol.settlement import checked_lease
from reliq.runtime import startup, tracing
from reliq.runtime.failures import failures
from reliq.runtime.outage_log import OutageLog
from reliq.runtime.process import this_process
from reliq.transport.connection import Connection
from reliq.transport.store import Store
from reliq.worker.assignment import LOOK_EVERY, Assignment
from reliq.worker.calling import called
from reliq.worker.companion import Companion
from reliq.worker.dead_hooks import DeadHooks
from reliq.worker.exchange import Exchange
from reliq.worker.idle import Idle
from reliq.worker.inline import InlineLoop
from reliq.worker.loop import Loop, Shared, run_loop
from reliq.worker.pooled import PooledLoop
from reliq.worker.pools import EventLoop, ThreadPool
from reliq.worker.runner import Runner
from reliq.worker.threads import in_thread
from reliq.worker.watchdog import Watchdog

log = logging.getLogger("reliq.worker")

#: What features do in each worker process.
COMPANIONS: tuple[type[Companion], ...] = (Broadcasts, DefinedSchedules, CheckBacks)
_KEEP_EVERY = 2.0  #: seconds
_BLOCK_LATE = 0.5  #: seconds by which the call in which a loop waits may be answered late
_IDS_NAMED = 10  #: ids in a line of the log


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a worker process. `threads`: sync handlers at once; `concurrency`: async ones, for each queue."""

    threads: int = 1
    concurrency: int = 100
    lease: Duration = values.LEASE
    grace: Duration = values.GRACE

    def __post_init__(self) -> None:
        whole(self.threads, "threads", 1, 1000)
        whole(self.concurrency, "concurrency", 1, 10_000)
        checked_lease(self.lease)
        seconds(self.grace, "grace", 0, 3600)


class Worker:
    """Runs the handlers of one application in this process."""

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        options: Options,
        owner: str | None = None,
        measurements: Measurements | None = None,
    ) -> None:
        if handlers.empty:
            raise InvalidSetting("this application has no handlers: decorate a function with @app.handler(queue)")
        self._store = store
        self._owner = owner or new_owner()
        self._paused = False
        self._instructed_at = 0  #: ms of the latest instruction by a person
        self._grace = seconds(options.grace, "grace", 0, 3600)
        self._threads = ThreadPool(options.threads)
        self._asyncio: EventLoop | None = None
        self._shared = Shared(measurements)
        self._companions = [companion(store, handlers, self._owner) for companion in COMPANIONS]
        own = [handler for companion in self._companions for handler in companion.own]
        self._handlers = handlers
        self._options = options
        self._idle = Idle(store, self._shared, self._start)
        self._shared.rest = self._rest
        self._assignments = {
            handler: Assignment(handler.queue, self._owner, store.node_of, self._not_known_empty)
            for handler in handlers
        }
        self._loops = [self._loop(handler, handler.queue) for handler in (*handlers, *own)]
        self._ended: set[Loop] = set()
        self._heartbeat = Heartbeat(store, self._owner, checked_lease(options.lease), self._leases, self._lost)
        self._watchdog = Watchdog(store, self._shared.working, self._owner)
        self._wake = threading.Event()
        self._stops = 0
        self._crashed = False
        self.told_to_stop = False  #: by a person: the process is not to be started again

    def _loop(self, handler: Handler, queue: str) -> Loop:
        """Return the loop of a handler for a queue: that of the handler, or a home of it."""
        handlers, options = self._handlers, self._options
        on_dead = DeadHooks(self._store, QueueKeys(queue), handlers.hooks_of(handler.queue))
        assignment = self._assignments.get(handler)
        handler = called(handler, handlers, self._store)
        exchange = Exchange(self._store, queue, self._owner, checked_lease(options.lease), on_dead, handler.breaker)
        runner = Runner(self._store, handler, exchange, self._owner)
        if assignment is not None:
            exchange.reports.hold_others = functools.partial(self._hold_others, assignment, queue)
        exchange.steps.keep_results(handler.result or 0.0)
        exchange.steps.run_report = self._report_async if handler.is_async else self._report
        runner.paused = self._paused
        if handler.is_async:
            self._asyncio = self._asyncio or EventLoop()
            return PooledLoop(exchange, runner, self._shared, options.concurrency, self._asyncio.submit)
        if options.threads > 1:
            return PooledLoop(exchange, runner, self._shared, options.threads, self._threads.submit)
        return InlineLoop(exchange, runner, self._shared)

    def _rest(self, loop: Loop) -> bool:
        """Let a loop rest; that of a worker with one loop waits for itself."""
        return len(self._loops) > 1 and self._idle.rest(loop)

    def _not_known_empty(self, homes: list[QueueKeys]) -> list[QueueKeys]:
        return self._idle.not_known_empty(homes) if len(self._loops) > 1 else homes

    def _hold_others(self, assignment: Assignment, home: str, seconds: float) -> None:
        self._store.run(assignment.hold_others(home, seconds), timeout=0)

    def run(self) -> int:
        """Work until `stop`; return the exit status: 0, or 1 if Redis is unsuitable or a loop crashed."""
        is_suitable = self._redis_is_suitable()
        if self._stops or not is_suitable:
            self._close_pools()
            return 0 if is_suitable else 1
        here, queues = this_process(), ",".join(_queue(loop) for loop in self._loops)
        for companion in self._companions:
            companion.start()
        self._heartbeat.start()
        self._watchdog.start()
        for loop in self._loops:
            self._start(loop)
        text = "started worker=%s host=%s pid=%d title=%s version=%s queues=%s"
        log.info(text, self._owner, here.host, here.pid, here.title, here.version, queues)
        kept_at = time.monotonic()
        while not self._stops:
            self._share()
            self._idle.look()
            # With a timeout: a signal delivered to another thread is handled when this one wakes.
            self._wake.wait(LOOK_EVERY)
            self._wake.clear()
            if time.monotonic() - kept_at >= _KEEP_EVERY:
                kept_at = time.monotonic()
                for companion in self._companions:
                    companion.keep()
        return self._shut_down()

    def _start(self, loop: Loop) -> None:
        self._shared.working.add(loop)
        try:
            threading.Thread(target=self._run_loop, args=(loop,), name=f"reliq-{_queue(loop)}", daemon=True).start()
        except RuntimeError as error:  # the system has no room for another thread
            self._crash(loop, error)

    def _share(self) -> None:
        """Serve the homes that are this process's: begin a loop for each new one, end those of the others."""
        while self._ended:
            self._loops.remove(self._ended.pop())
        if self._paused:  # the others take its homes
            for assignment in self._assignments.values():
                self._store.run(assignment.leave(), timeout=0)
            return
        for handler, assignment in self._assignments.items():
            if self._stops:  # each may wait for a Redis that does not answer
                return
            there = {_home(loop): loop for loop in self._loops if _queue(loop) == handler.queue}
            taken_at = max((loop.exchange.progress_at for loop in there.values()), default=0.0)
            self._store.run(assignment.look(taken_at), timeout=0)
            for loop in there.values():
                loop.stopping = loop.stopping or _home(loop) not in assignment.mine
            for queue in assignment.mine:
                if queue not in there and not self._stops:
                    self._loops.append(self._loop(handler, queue))
                    self._start(self._loops[-1])

    def stop(self) -> None:
        """Ask the worker to end: the first time within its grace, the second time at once. Not for signal handlers."""
        self._stops += 1
        self._wake.set()

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT, including a signal that arrived before."""
        startup.take_over(self.stop)

    def _redis_is_suitable(self) -> bool:
        """Wait until Redis is reachable; return False, with the reason logged, if it cannot hold queues."""
        outage = OutageLog(log, "waiting for Redis")
        while not self._stops:
            try:
                self._store.call(ops.ping())
                return True
            except RedisUnsuitable as error:
                log.critical("%s", error)
                return False
            except ReliqError as error:
                outage.failed(error)
                self._wake.wait(1.0)
        return True

    def _run_loop(self, loop: Loop) -> None:
        try:
            if run_loop(loop):
                return
        except BaseException as error:
            self._crash(loop, error)
        else:
            self._note_end(loop)

    def _crash(self, loop: Loop, error: BaseException) -> None:
        log.critical("crashed queue=%s: its loop raised an error; the worker stops", _queue(loop), exc_info=error)
        self._crashed = True
        self._note_end(loop)
        loop.exchange.close()
        self.stop()

    def _note_end(self, loop: Loop) -> None:
        self._shared.working.discard(loop)
        self._ended.add(loop)

    def _shut_down(self) -> int:
        until = time.monotonic() + self._grace
        for companion in self._companions:
            companion.stop()
        log.info("stopping worker=%s", self._owner)
        for loop in self._loops:
            loop.stopping = True
        self._idle.end()
        for assignment in self._assignments.values():
            if not self._store.run(assignment.leave(), timeout=0):
                break
        while self._running:
            if self._stops > 1 or time.monotonic() > until:
                self._hand_back()
                break
            self._wake.wait(0.02)
        self._watchdog.stop()
        self._heartbeat.stop()
        self._idle.close()
        self._close_pools()
        failures.flush(everything=True)
        log.info("stopped worker=%s", self._owner)
        return 1 if self._crashed else 0

    def _close_pools(self) -> None:
        self._threads.close()
        if self._asyncio is not None:
            self._asyncio.close()

    @property
    def _running(self) -> list[Loop]:
        """The loops that have not ended."""
        return [loop for loop in self._loops if loop not in self._ended]

    def _hand_back(self) -> None:
        self._watchdog.stop()  # first: messages that it settles must not be handed back
        connection = self._store.connection(connection_name(self._owner))
        handed_back: list[tuple[Loop, str]] = []
        away = AwayNodes(self._store.node_of)
        for loop in self._running:
            if ids := [run.message.id for run in list(loop.runner.running.values())]:  # else it only waits its turn
                text = "grace_over queue=%s messages=%d ids=%s: releases the messages whose handlers still run"
                log.warning(text, _queue(loop), len(ids), _first(ids))
            steps, ran = loop.exchange.steps, loop.runner.abandon()
            consumer = steps.consumer  # handing back may give it another id
            try:
                away.check(steps.keys)
                loop.exchange.hand_back(connection, ran)
            except ReliqError as error:
                away.note(steps.keys, error)
                text = "not_handed_back queue=%s error=%s: the monitor returns them when the lease ends"
                log.warning(text, _queue(loop), error)
            else:
                handed_back.append((loop, consumer))
        until = time.monotonic() + values.BLOCK + _BLOCK_LATE
        for loop, consumer in handed_back:
            _unregister(loop, connection, consumer, until)
        connection.close()

    def _leases(self) -> list[Lease]:
        alive = [(loop, loop.exchange.steps) for loop in self._loops if loop.exchange.steps.alive]
        return [
            Lease(
                one.keys,
                one.consumer,
                one.lease,
                one.trust.renewed,
                functools.partial(self._obey, loop),
                loop.runner.description,
            )
            for loop, one in alive
        ]

    def _obey(self, loop: Loop, told: ops.Told) -> None:
        """Cancel the runs of cancelled messages, and follow the latest instruction to this process."""
        loop.runner.cancel_runs(told)
        found = latest(told, process_of(self._owner))
        if found is None or found[0] <= self._instructed_at:
            return
        self._instructed_at, instruction = found
        log.info("instructed to=%s worker=%s", instruction, self._owner)
        if instruction is Instruction.STOP:
            self.told_to_stop = True
            self.stop()
            return
        self._paused = instruction is Instruction.PAUSE
        for one in list(self._loops):
            one.runner.paused = self._paused
        self._wake.set()

    def _report(self, steps: ops.Steps[Any]) -> Any:
        """Store what a handler reports, in its thread."""
        return self._store.run(steps)

    async def _report_async(self, steps: ops.Steps[Any]) -> Any:
        return await in_thread(self._store.run, steps)

    def _lost(self, lease: Lease) -> None:
        for loop in list(self._loops):
            if loop.exchange.has_left:  # a heartbeat was under way while it unregistered
                continue
            if _home(loop) == lease.keys.queue and loop.exchange.steps.consumer == lease.consumer:
                if loop.runner.running or loop.exchange.unstarted or loop.exchange.quarantined:
                    text = "lease_lost queue=%s: a monitor has returned its messages, or Redis has lost its data"
                    log.warning(text, lease.keys.queue)
                loop.runner.lost()


def _queue(loop: Loop) -> str:
    return loop.runner.handler.queue


def _unregister(loop: Loop, connection: Connection, consumer: str, until: float) -> None:
    """Unregister a consumer whose messages were handed back, or log that this is left to a monitor."""
    try:
        if loop.exchange.unregister(connection, consumer, until):
            return
        why = "it may still wait for messages"
    except ReliqError as error:
        why = str(error)
    text = "not_unregistered queue=%s error=%s: a monitor does it within a second, once one runs"
    log.warning(text, _queue(loop), why)


def _first(ids: list[str]) -> str:
    return ",".join(ids[:_IDS_NAMED]) + (",..." if len(ids) > _IDS_NAMED else "")


def _home(loop: Loop) -> str:
    return loop.exchange.steps.keys.queue


def exit_now(status: int) -> None:
    """End the process even if handlers still run in its threads: their messages have been handed back."""
    tracing.flush()
    logging.shutdown()
    os._exit(status)
