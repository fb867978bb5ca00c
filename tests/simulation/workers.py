"""Workers: what a worker process does, made of the steps and outcomes that reliq's own loops use."""

import contextlib
import time
from collections import deque
from collections.abc import Generator, Iterable
from typing import Any

from reliq import ops
from reliq.contract import values
from reliq.errors import InvalidMessage, PreparedClosed, ReliqError, StepsChanged, TimeLimitExceeded
from reliq.features.charges.steps import _charged_here
from reliq.features.prepared.steps import PreparedQueue
from reliq.model.backoff import steps as delays
from reliq.model.handlers import Handler
from reliq.model.keys import QueueKeys, connection_name
from reliq.model.message import Message
from reliq.model.policy import Again, Dead, RunOver
from reliq.ops import Move, Sleep, Steps
from reliq.protocol.application import Application
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.outcomes import cancelled, released
from reliq.runtime.moment import Moment
from reliq.worker.assignment import LOOK_EVERY, Assignment
from reliq.worker.exchange import QUARANTINE_PAUSE
from reliq.worker.outcome import after_error, after_return
from reliq.worker.trials import ALONE, Trials
from tests.simulation.handlers import Apart, DurableHandler
from tests.simulation.kernel import Kernel
from tests.simulation.processes import Process, Task
from tests.simulation.stories import Run, Story, Violation

RETRIES = delays(0.4, 0.9, 0.2)  #: seconds before each try of a message that failed
TIME_LIMIT = 1.5  #: seconds of one run
CAUTION = 0.3  #: seconds without harm after which several redelivered messages may run at a time
PATIENCE = 0.05  #: seconds that a message may wait behind a slow one

Thread = Generator[Any, Any, None]


class Worker:
    """A worker process: a loop for each partition it serves, a heartbeat, a watchdog, and answers to check-backs."""

    def __init__(self, kernel: Kernel, process: Process, queues: Iterable[str], lease: float, limit: int) -> None:
        self.kernel = kernel
        self.process = process
        self.limit = limit
        self.trials = Trials(CAUTION)
        self.application = Application("redis://simulated", None, None)
        self._lease = lease
        self._loops: list[Loop] = []
        self._assignments = [Assignment(queue, process.owner) for queue in queues]
        self._handlers = {
            queue: self.application.handlers.add(
                queue, lambda message: None, retry=RETRIES, retry_on=BaseException, dead_on=(), time_limit=TIME_LIMIT
            )
            for queue in queues
        }
        kernel.start(process, "beat", self._beat, connection_name=connection_name(process.owner))
        for queue in queues:
            self._serve(queue, queue)
        kernel.start(process, "watchdog", self._watch)
        if any(queue in kernel.partitioned for queue in queues):
            kernel.start(process, "share", self._share)
        if kernel.plan_has("prepare"):
            kernel.start(process, "checks", self._answer_checks, timeout=values.SEND_TIMEOUT)

    def _serve(self, queue: str, partition: str) -> None:
        loop = Loop(self, self._handlers[queue], partition, self._lease)
        self._loops.append(loop)
        name = connection_name(self.process.owner)
        task = self.kernel.start(self.process, partition, loop.run, connection_name=name)
        task.on_connect = loop.consumer.connected

    def _share(self, task: Task) -> Thread:
        """Serve the partitions that are this process's: begin a loop for each new one, end those of the others."""
        while True:
            for assignment in self._assignments:
                there = {loop.partition: loop for loop in self._loops if loop.queue == assignment.queue}
                yield from assignment.look(max((loop.progress_at for loop in there.values()), default=0.0))
                for loop in there.values():
                    loop.stopping = loop.stopping or loop.partition not in assignment.mine
                for partition in assignment.mine:
                    if partition not in there:
                        self._serve(assignment.queue, partition)
            yield Sleep(LOOK_EVERY)

    def left(self, loop: "Loop") -> None:
        """Note that a loop has ended."""
        self._loops.remove(loop)

    def _beat(self, task: Task) -> Thread:
        """Renew all leases, three times in their length; tell of cancelled messages."""
        while True:
            yield Sleep(self._lease / values.HEARTBEATS_PER_LEASE)
            beating = [(loop, loop.consumer.consumer) for loop in self._loops if loop.consumer.alive]
            if not beating:
                continue
            try:
                sent_at = Moment.now()
                answers = yield [ops.heartbeat(loop.consumer.keys, name, self._lease) for loop, name in beating]
                for (loop, name), alive in zip(beating, answers, strict=True):
                    if alive:
                        loop.consumer.trust.renewed(sent_at)
                    elif loop.consumer.consumer == name:
                        loop.lose()
                told = yield [ops.told(loop.consumer.keys) for loop, _ in beating]
                for (loop, _), ids in zip(beating, told, strict=True):
                    loop.cancel_runs(ids)
            except ReliqError:
                yield Sleep(values.RECONNECT_PAUSE)

    def _watch(self, task: Task) -> Thread:
        """End runs that take too long, and settle for loops that wait for a slow handler."""
        while True:
            yield Sleep(0.1)
            for loop in list(self._loops):
                loop.end_overdue()
                with contextlib.suppress(ReliqError):
                    yield from loop.relieve_if_stuck()

    def _answer_checks(self, task: Task) -> Thread:
        """Decide about prepared messages whose producers are silent, as each of them says."""
        while True:
            yield Sleep(0.5)
            for queue in self._handlers:
                of = self.application._queue_steps(queue)
                steps = PreparedQueue(of.homes, of.pool)
                with contextlib.suppress(ReliqError):
                    yield from self._answer_check(queue, steps)

    def _answer_check(self, queue: str, steps: Any) -> Steps[None]:
        while (message := (yield from steps.question())) is not None:
            answer = self.kernel.observer.stories[queue, message.id].check
            with contextlib.suppress(PreparedClosed):
                if answer == "commit":
                    yield from steps.commit(message.id)
                elif answer == "rollback":
                    yield from steps.rollback(message.id)


class Loop:
    """What a worker does for one partition of a queue: claim, run, settle with the next claim."""

    def __init__(self, worker: Worker, handler: Handler, partition: str, lease: float) -> None:
        self.queue = handler.queue
        self.partition = partition
        self.stopping = False  #: whether another process serves the partition from now on
        self.consumer = ConsumerSteps(QueueKeys(partition), worker.process.owner, lease, may_age=True, keeps_marks=True)
        self.consumer.handles = self._handles
        self.consumer.run_over = self._run_over
        self.progress_at = 0.0  #: by time.monotonic()
        self._worker = worker
        self._observer = worker.kernel.observer
        self._handler = handler
        self._acks: list[bytes] = []
        self._moves: list[Move] = []
        self._unstarted: deque[Message] = deque()
        self._running: tuple[Message, Run] | None = None
        self._at_a_time = ALONE  #: how many redelivered messages run at a time with the one in trial, at most

    def run(self, task: Task) -> Thread:
        while True:
            try:
                if self.stopping:
                    yield from self._leave()
                    return
                yield from self.consumer.ensure_registered()
                if not self._unstarted:
                    self._take((yield from self._settle(self._worker.limit)))
                if not self._unstarted:
                    seconds = min(values.BLOCK, self.consumer.lease / values.HEARTBEATS_PER_LEASE)
                    self._take((yield from self.consumer.wait(1, seconds)))
                while self._unstarted:
                    message = self._unstarted.popleft()
                    yield from (self._try(message) if message.redelivered else self._perform(message))
            except ReliqError:
                yield Sleep(values.RECONNECT_PAUSE)

    def _leave(self) -> Steps[None]:
        """Settle what has ended, give back the rest, and unregister the consumer."""
        self._moves += [released(message) for message in reversed(self._unstarted) if not message.lost]
        self._unstarted.clear()
        yield from self._settle(0)
        yield from self.consumer.leave()
        self._worker.left(self)

    def _take(self, messages: list[Message]) -> None:
        self.progress_at = time.monotonic()
        self._unstarted.extend(messages)

    def _settle(self, limit: int) -> Steps[list[Message]]:
        """Settle what has ended, and claim; after an error the same is settled again."""
        acks, moves = self._take_outcomes()
        try:
            _, messages = yield from self.consumer.settle(self.consumer.in_order(acks), moves, limit)
        except BaseException:
            self._acks, self._moves = acks + self._acks, moves + self._moves
            raise
        return messages

    def _take_outcomes(self) -> tuple[list[bytes], list[Move]]:
        acks, moves = self._acks, self._moves
        self._acks, self._moves = [], []
        return acks, moves

    def _try(self, message: Message) -> Steps[None]:
        """Run a redelivered message and settle it, or put it back for now if other loops have enough in trial."""
        trials = self._worker.trials
        if not (count := trials.begin(message)):
            self._moves.append(released(message, QUARANTINE_PAUSE))
            return
        self._at_a_time = count
        try:
            yield from self._perform(message)
            yield from self._settle(0)
        finally:
            trials.end(message.element)

    def _perform(self, message: Message) -> Steps[None]:
        if message.was_started and not (yield from self._begin_again(message)):
            return
        while not message.lost and self.consumer.trust.until.passed():
            yield from self._renew(message)
        if message.lost:
            return
        story, kernel = self._observer.stories[message.queue, message.id], self._worker.kernel
        run = self._observer.runs.starts(self._worker.process, self.consumer.consumer, message)
        tries = sum(one.outcome != "rests" for one in story.runs)
        outcome = story.plan[tries - 1] if tries <= len(story.plan) else "ack"
        self._running, self.progress_at = (message, run), time.monotonic()
        kernel.note(self._worker.process.name, f"runs {message.id} ({outcome})")
        error = None
        if story.script:
            error = yield from self._perform_script(message, run, story)
            outcome = "fail" if error else outcome
        for actual in story.charges:
            yield from self._charge(message, actual)
        yield Sleep(story.takes)
        if outcome == "crash":
            run.outcome = run.outcome or "crash"
            kernel.kill(self._worker.process)
            return
        if self._running is None:  # it was ended by its time limit
            return
        self._running = None
        move = self._after(message, outcome, error)
        outcome = "dead" if isinstance(error, Dead) else outcome
        run.outcome = "cancelled" if message.cancelled and move is not None else outcome
        if move is None:
            self._acks.append(message.element)
        else:
            self._moves.append(move)

    def _perform_script(self, message: Message, run: Run, story: Story) -> Steps[BaseException | None]:
        """Run a durable handler; return what it raises. If its message rests then, nothing runs any more."""

        def crash() -> None:
            run.outcome = run.outcome or "crash"
            self._worker.kernel.kill(self._worker.process)

        handler = DurableHandler(self.consumer, message, story, self._observer.records, self._observer.outputs, crash)
        try:
            yield from handler.run()
        except (InvalidMessage, StepsChanged) as error:
            raise Violation(f"the handler of {message.id} gets {type(error).__name__}: {error}") from error
        except (RunOver, ReliqError, RuntimeError) as error:
            self._worker.kernel.note(self._worker.process.name, f"{message.id} raises {type(error).__name__}")
            return error
        return None

    def _charge(self, message: Message, actual: int) -> Steps[None]:
        """Do what `Message.charge` does. The handler goes on where it fails."""
        if self.consumer.runs(message):
            yield Apart([_charged_here(self.consumer, message, actual)])

    def _handles(self, element: bytes) -> bool:
        return self._running is not None and self._running[0].element == element

    def _run_over(self, message: Message, _: Exception | None) -> None:
        if self._handles(message.element):
            self._running = None

    def _after(self, message: Message, outcome: str, raised: BaseException | None) -> Move | None:
        if outcome == "ack":
            return after_return(message, None)
        if outcome == "again":
            return after_return(message, Again(delay=0.0 if len(message.id) % 2 else 0.3))
        if message.cancelled:
            return cancelled(message)
        error = raised or (Dead("as planned") if outcome == "dead" else RuntimeError("as planned"))
        return after_error(self._handler, message, error, self.consumer.consumer)

    def _renew(self, message: Message) -> Steps[None]:
        """Renew the lease before a message starts; without an answer it goes back."""
        name, sent_at = self.consumer.consumer, Moment.now()
        try:
            alive = yield ops.heartbeat(self.consumer.keys, name, self.consumer.lease)
        except ReliqError:
            self._give_back(message)
            return
        if alive:
            self.consumer.trust.renewed(sent_at)
        elif name == self.consumer.consumer:
            self.lose()

    def _begin_again(self, message: Message) -> Steps[bool]:
        keys, name = self.consumer.keys, self.consumer.consumer
        if message.redelivered:
            alone = self._at_a_time == ALONE
            self._observer.stories[message.queue, message.id].tries += alone
            with contextlib.suppress(ReliqError):
                several = ops.mark_several(keys, name, self._at_a_time)
                yield ops.mark_tried(keys, name, message.tag) if alone else several
        try:
            yield from self.consumer.lives.begin(message)
            if message.redelivered:
                self.cancel_runs((yield ops.told(keys)))
        except ReliqError:
            self._give_back(message)
        return not message.lost

    def _give_back(self, message: Message) -> None:
        self._moves.append(released(message))
        message.lost = True

    # --- heartbeat and watchdog ---

    def lose(self) -> None:
        self.consumer.lose()

    def cancel_runs(self, ids: ops.Told) -> None:
        running = self._running and self._running[0]
        for message in self.consumer.note_cancelled(ids):
            if message is not running:
                self._moves.append(cancelled(message))
                message.lost = True

    def end_overdue(self) -> None:
        """A run that exceeds the time limit has failed, whatever it returns."""
        if self._running is None or time.monotonic() - self.progress_at <= TIME_LIMIT:
            return
        message, run = self._running
        self._running, run.outcome, run.overdue = None, "fail", True
        error = TimeLimitExceeded("as planned")
        self._moves.append(after_error(self._handler, message, error, self.consumer.consumer))
        message.lost = True

    def relieve_if_stuck(self) -> Steps[None]:
        """Settle what has ended, and hand back what waits behind a slow handler."""
        if self._running is None or time.monotonic() - self.progress_at <= PATIENCE:
            return
        waiting = [released(message) for message in reversed(self._unstarted) if not message.lost]
        self._unstarted.clear()
        acks, moves = self._take_outcomes()
        moves += waiting
        if not (acks or moves):
            return
        try:
            answer = yield self.consumer.settle_op(acks, moves)
        except BaseException:
            self._acks, self._moves = acks + self._acks, moves + self._moves
            raise
        codes = self.consumer.note_answer(acks, moves, answer.codes)
        yield from self.consumer.after_settling(acks, moves, codes)
