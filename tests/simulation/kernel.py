"""Runs processes made of step generators on one virtual clock, and does to their calls what a network may do.

A call arrives at the server, is carried out there in one instant, and its reply arrives: what happens in between is
chosen. Calls that fail are repeated as a connection does, by the same rules (`CallRetry`).
"""

import contextlib
import functools
import heapq
import itertools
import zlib
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from reliq.contract import values
from reliq.errors import ReliqError
from reliq.ops import Request, Sleep, Steps, Together, Transaction, Watch
from reliq.transport.calls import only_reads
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.resp import Command
from reliq.transport.retry import CallRetry
from tests.simulation.choices import Action, Fault, Plan, Setting, Slow
from tests.simulation.clock import EPOCH, VirtualClock
from tests.simulation.handlers import Apart
from tests.simulation.observer import Observer
from tests.simulation.processes import Process, Task
from tests.simulation.requests import blocking, causes, label
from tests.simulation.server import SimulatedRedis
from tests.simulation.stories import Violation

T = TypeVar("T")

SLOW_LOOK = values.BLOCK  #: seconds, at most, until who waits looks by itself
_LATE = 0.5  #: seconds more that a look may take
UNANSWERED = 0.3  #: seconds after which a caller gives up waiting for a reply
MOST_CALLS = 40_000


class Kernel:
    """One simulation: its events, in the order of their times."""

    loses_wake_ups = False  #: whether who waits for a list is not told that something has come

    def __init__(self, plan: Plan, server: SimulatedRedis, clock: VirtualClock, observer: Observer) -> None:
        self.plan = plan
        self.server = server
        self.clock = clock
        self.observer = observer
        self.processes: list[Process] = []
        self.history: list[tuple[float, str, str, list[str]]] = []
        self.calls = 0
        self._connects = 0  #: since the server's start
        self._tasks: list[Task] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._called: dict[str, int] = {}
        self._faults = {(one.task, one.call): one for one in plan.of(Fault)}
        self._slow = {(one.task, one.call): one.seconds for one in plan.of(Slow)}
        self._parked: list[tuple[Task, Request, float]] = []
        self.partitioned = {one.queue for one in plan.of(Setting) if one.name == "partitions"} | {
            one.queue for one in plan.of(Action) if one.what == "resize"
        }
        self.bound: list[str] = []  #: the queues that get what is published
        self.away_until = 0.0  #: the server does not answer until then
        #: What follows a transaction for which the server lacks a script; None while it has all.
        self.after_missing: Callable[[], None] | None = None
        observer.processes = lambda: [one for one in self.processes if one.alive]  # type: ignore[method-assign]

    # --- time ---

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def run(self, until: Callable[[], bool], limit: float) -> bool:
        """Let time pass until the condition holds, at most to `limit`; whether it holds."""
        while not until():
            if not self._events or self._events[0][0] > limit:
                self.clock.now = limit
                return until()
            when, _, act = heapq.heappop(self._events)
            self.clock.now = max(when, self.clock.now)
            self.server.now = self.clock.now
            self.clock.skew = 0.0
            act()
            if self.calls > MOST_CALLS:
                raise Violation(f"it does not come to an end: {self.calls} calls")
        return True

    @property
    def seconds(self) -> float:
        return self.clock.now - EPOCH

    def plan_has(self, what: str) -> bool:
        """Whether one of the actions is of this kind."""
        return any(one.what == what for one in self.plan.of(Action))

    # --- processes ---

    def start(
        self,
        process: Process,
        name: str,
        steps: Callable[["Task"], Generator[Any, Any, None]],
        timeout: float = 0.0,
        connection_name: str = "",
    ) -> Task:
        """Start a task of a process. `timeout`: seconds for which its calls are repeated."""
        task = Task(process, f"{process.name}/{name}", iter(()), timeout)  # type: ignore[arg-type]
        task.steps = steps(task)
        task.connection_name = connection_name
        process.tasks.append(task)
        self._tasks.append(task)
        self.at(self.clock.now, lambda: self._go_on(task, lambda: next(task.steps)))
        return task

    def kill(self, process: Process) -> None:
        """End a process as SIGKILL does: what it has sent may still arrive."""
        process.alive = False
        process.disturbed = True
        self.processes.remove(process)
        self._parked = [one for one in self._parked if one[0].process is not process]
        for task in process.tasks:
            task.ended = True
            self._end_watch(task)
            task.late += 1
        self.note(process.name, "KILLED")
        process.on_death()

    def close(self) -> None:
        """Drop what has not ended."""
        for task in self._tasks:
            task.ended = True
            self._end_watch(task)
            with contextlib.suppress(RuntimeError, ReliqError):  # some would ask the server once more
                task.steps.close()

    def connections(self, command: Command) -> bytes | None:
        """Return what the server says of its connections; None: the command does not ask for them."""
        if command[:2] != ("CLIENT", "LIST") and command[0] != "INFO":
            return None
        tasks = [task for process in self.processes for task in process.tasks if task.connected and not task.ended]
        if command[0] == "INFO":
            return b"connected_clients:%d\r\ntotal_connections_received:%d\r\n" % (len(tasks), self._connects)
        return b"".join(b"id=1 name=%b\n" % task.connection_name.encode() for task in tasks)

    def disconnect_all(self) -> None:
        """Cut all connections, as a restart of the server does."""
        self._connects = 0
        for process in self.processes:
            for task in process.tasks:
                task.connected = False
                self._lose_watch(task)
        parked, self._parked = self._parked, []
        for task, request, _ in parked:
            self._failed(task, request, ConnectionLost(sent=True, cause="restart"))

    # --- calls ---

    def _go_on(self, task: Task, step: Callable[[], Any]) -> None:
        """Run a task to its next request."""
        if task.ended:
            return
        if task.process.paused_until > self.clock.now:
            self.at(task.process.paused_until, lambda: self._go_on(task, step))
            return
        self.clock.skew = task.process.skew
        try:
            request = step()
        except StopIteration as stop:
            self._end(task, stop.value)
            return
        except Violation:
            raise
        except ReliqError as error:
            if task.on_end is None:
                raise Violation(f"{task.name} ends with {type(error).__name__}: {error}") from error
            self._end(task, error)
            return
        self.clock.skew = 0.0
        if task.ended:  # it killed its own process
            return
        if isinstance(request, Sleep):
            self.at(
                self.clock.now + max(request.seconds, 0.001), lambda: self._go_on(task, lambda: task.steps.send(None))
            )
        elif isinstance(request, Together):
            self._run_together(task, request)
        else:
            self._send(task, request, None)

    def _end(self, task: Task, answer: Any) -> None:
        task.ended = True
        self._end_watch(task)
        if task.on_end is not None:
            task.process.tasks.remove(task)
            task.on_end(answer)

    def _run_together(self, task: Task, together: Together) -> None:
        """Run steps side by side, each with a connection of its own; the task goes on when all have ended."""
        answers: dict[int, Any] = {}
        count = len(together.steps)

        def note(place: int, answer: Any) -> None:
            answers[place] = answer
            if len(answers) == count:
                everything = [answers[one] for one in range(count)]
                self.at(self.clock.now, lambda: self._go_on(task, lambda: task.steps.send(everything)))

        for place, steps in enumerate(together.steps):
            name, timeout = task.name.partition("/")[2], task.timeout
            if isinstance(together, Apart):
                name, timeout = "handler", together.timeout
            part = self.start(task.process, name, self._of_steps(steps), timeout)
            part.on_end = functools.partial(note, place)

    def _of_steps(self, steps: Steps[Any]) -> Callable[[Task], Generator[Any, Any, Any]]:
        return lambda task: self.run_of_steps(task, steps)

    def _send(self, task: Task, request: Request, retry: CallRetry | None) -> None:
        """Send a request, to which something may happen on its way."""
        if task.ended:
            return
        call = self._called[task.name] = self._called.get(task.name, 0) + 1
        self.calls += 1
        place = (task.name, call)
        arrival = self.clock.now + self._slow.get(place, 0.0005 + zlib.crc32(f"{place}".encode()) % 1000 / 1e6)
        fault = self._faults.get(place)
        what = fault.what if fault else ""
        if fault:
            task.process.disturbed = True
            self.note(task.name, f"FAULT {what} at call {call}: {label(request)}")
        match what:
            case "request lost":
                self.at(self.clock.now + UNANSWERED, lambda: self._lost(task, request, retry, sent=True))
            case "refused":
                self.at(arrival, lambda: self._lost(task, request, retry, sent=False))
            case "late" if not isinstance(request, Watch) and task.watching is None:
                assert fault is not None
                late, task.process.late_until = task.late, self.clock.now + fault.seconds
                self.at(self.clock.now + fault.seconds, lambda: self._arrives_late(task, request, late))
                self.at(self.clock.now + UNANSWERED, lambda: self._lost(task, request, retry, sent=True))
            case "killed before":
                self.kill(task.process)
            case "paused before":
                assert fault is not None
                task.process.paused_until = self.clock.now + fault.seconds
                self.at(task.process.paused_until, lambda: self._arrive(task, request, retry, ""))
            case "paused after":
                assert fault is not None
                task.process.paused_until = self.clock.now + fault.seconds
                self.at(arrival, lambda: self._arrive(task, request, retry, ""))
            case _:
                self.at(arrival, lambda: self._arrive(task, request, retry, what))

    def _arrive(self, task: Task, request: Request, retry: CallRetry | None, fault: str, last: bool = False) -> None:
        """Carry out a request, if it waits for nothing."""
        if task.ended:
            return
        if self.away_until > self.clock.now:
            self._lost(task, request, retry, sent=False)
            return
        if task.watch_lost and not isinstance(request, Watch):
            self._lost(task, request, retry, sent=False)
            return
        self._connect(task)
        blocks = blocking(request)
        if blocks is not None and not last and not self._length(blocks[0]):
            until = self.clock.now + blocks[1]
            self._parked.append((task, request, until))
            self.at(until, lambda: self._unpark(task, request, until))
            self.at(self.clock.now + SLOW_LOOK + _LATE, lambda: self._check_look(task, request, until))
            return
        try:
            reply = self._perform(task, request)
        except (ConnectionLost, TryAgain) as failure:
            self._failed(task, request, failure, retry)
            return
        except ReliqError as error:
            refused = error if retry is None else retry.refused(error)
            self.note(task.name, f"{label(request)}: {type(refused).__name__}")
            self.at(self.clock.now + 0.0005, lambda: self._go_on(task, lambda: task.steps.throw(refused)))
            return
        if fault == "killed after":
            self.kill(task.process)
        elif fault == "reply lost":
            self.at(self.clock.now + UNANSWERED, lambda: self._lost(task, request, retry, sent=True))
        else:
            self.at(self.clock.now + 0.0005, lambda: self._go_on(task, lambda: task.steps.send(reply)))
        self._serve_parked()

    def _perform(self, task: Task, request: Request) -> Any:
        """Carry out a request, and look at what it has done."""
        if isinstance(request, Watch):
            self._end_watch(task)
            task.watching, task.watch_lost = self.server.watch(), False
        self.observer.budgets.asked(request)
        connection = task.watching
        changes = not only_reads(request) or isinstance(request, Transaction)
        follows = self.after_missing if isinstance(request, Transaction) and request.repeatable else None
        try:
            return self.server.perform(request, connection, self.connections, looks=changes, lacks_first=bool(follows))
        finally:
            if follows:
                self.after_missing = None
                self.at(self.clock.now, follows)
            if isinstance(request, Transaction):
                self._end_watch(task)
            if changes:
                self.observer.after(task.process, causes(request))
                self.note(task.name, label(request), self.observer.moves)

    def _connect(self, task: Task) -> None:
        """Connect a task that is not; a named connection first makes the server end the one before."""
        if task.connected:
            return
        task.connected = True
        task.connects += 1
        self._connects += 1
        task.connected_at = self.clock.monotonic()
        if task.connection_name:
            task.late += 1
        if task.on_connect is not None:
            task.on_connect(bool(task.connection_name))

    def _lost(self, task: Task, request: Request, retry: CallRetry | None, sent: bool) -> None:
        """The connection of a task is gone, with what was under way on it."""
        if task.ended:
            return
        task.connected = False
        self._lose_watch(task)
        self._failed(task, request, ConnectionLost(sent, "ConnectionError"), retry)

    def _failed(
        self, task: Task, request: Request, failure: ConnectionLost | TryAgain, retry: CallRetry | None = None
    ) -> None:
        """Repeat a request, or give the error to the steps."""
        if task.process.paused_until > self.clock.now:
            self.at(task.process.paused_until, lambda: self._failed(task, request, failure, retry))
            return
        watching = task.watch_lost or task.watching is not None
        retry = retry or CallRetry(request, "the simulation", self.clock.monotonic() + task.timeout, watching)
        try:
            pause = retry.after(failure)
        except ReliqError as error:
            refused = error
            self.note(task.name, f"{label(request)}: {type(refused).__name__}")
            self.at(self.clock.now, lambda: self._go_on(task, lambda: task.steps.throw(refused)))
        else:
            self.at(self.clock.now + pause, lambda: self._send(task, request, retry))

    def _arrives_late(self, task: Task, request: Request, late: int) -> None:
        """Carry out a request that its caller has given up, unless its connection was ended since."""
        if task.late != late or self.away_until > self.clock.now:
            return
        self.observer.budgets.asked(request)
        with contextlib.suppress(TryAgain, ReliqError):
            self.server.perform(request)
        self.observer.after(task.process, causes(request))
        self.note(task.name, f"LATE {label(request)}", self.observer.moves)

    # --- waiting on the server ---

    def _length(self, key: str) -> int:
        if key in self.observer.contents:
            return len(self.observer.contents[key])
        return self.server.length("LLEN", key) if key.endswith(":freed") else 0

    def _check_look(self, task: Task, request: Request, until: float) -> None:
        """After the slow look nobody waits any more for what is there."""
        blocks = blocking(request)
        if blocks is not None and (task, request, until) in self._parked and (left := self._length(blocks[0])):
            raise Violation(f"{task.name} waits for {blocks[0]}, which has {left}: it was not told, and does not look")

    def _serve_parked(self) -> None:
        if self.loses_wake_ups:
            return
        for task, request, until in list(self._parked):
            blocks = blocking(request)
            assert blocks is not None
            if self._length(blocks[0]):
                self._unpark(task, request, until)

    def _unpark(self, task: Task, request: Request, until: float) -> None:
        if (task, request, until) in self._parked:
            self._parked.remove((task, request, until))
            self._arrive(task, request, None, "", last=True)

    # --- watches ---

    def _end_watch(self, task: Task) -> None:
        if task.watching is not None:
            self.server.unwatch(task.watching)
        task.watching, task.watch_lost = None, False

    def _lose_watch(self, task: Task) -> None:
        if task.watching is not None:
            self.server.unwatch(task.watching)
            task.watching, task.watch_lost = None, True

    def run_of_steps(self, task: Task, steps: Steps[T]) -> Steps[T]:
        """Run steps to their end, and end their watch, as a store does."""
        try:
            return (yield from steps)
        finally:
            self._end_watch(task)

    # --- for the reader ---

    def note(self, who: str, what: str, moves: list[str] | None = None) -> None:
        self.history.append((self.seconds, who, what, moves or []))
