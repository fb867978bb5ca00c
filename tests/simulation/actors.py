"""The processes of a simulation, made of reliq's own steps: workers, monitors, producers, operators."""

import contextlib
from collections import deque
from collections.abc import Generator, Iterable
from typing import Any

from reliq import ops
from reliq.errors import OutcomeUnknown, QueueFull, RedisUnavailable, ReliqError
from reliq.model import settings
from reliq.model.backoff import steps as delays
from reliq.model.keys import QueueKeys, connection_name
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.model.policy import Again, Dead
from reliq.ops import Move, Sleep, Steps
from reliq.protocol.application import Application
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.dead_letters import DeadLetterSteps, Filter
from reliq.protocol.outcomes import cancelled, released
from reliq.protocol.progress import unwatched
from reliq.runtime.moment import Moment
from reliq.worker.outcome import after_error, after_return
from reliq_monitor.attempts import Attempts
from reliq_monitor.batches import end_batches
from reliq_monitor.liveness import Liveness, read_leases
from reliq_monitor.prepared_timeouts import ask_undecided
from reliq_monitor.promote import promote_due
from reliq_monitor.queue_scan import Survey
from reliq_monitor.reclaim import holders_by_process, note_company, take_back
from tests.simulation.choices import Action
from tests.simulation.kernel import Kernel, Process, Task

RETRIES = delays(0.4, 0.9, 0.2)  #: seconds before each try of a message that failed
LARGE = b"x" * (2 * settings.INLINE_BODY_BYTES)


class Worker:
    """A worker process: a loop for each of its queues, and a heartbeat for all of them."""

    def __init__(self, kernel: Kernel, process: Process, queues: Iterable[str], lease: float, limit: int) -> None:
        self._kernel = kernel
        self._observer = kernel.observer
        self._process = process
        self._limit = limit
        self.consumers: list[ConsumerSteps] = []
        application = Application("redis://simulated", None, None)
        name = connection_name(process.owner)
        beat = kernel.start(process, f"{process.name}/beat", lambda task: self._beat(task, lease), 0.0, name)
        self._loops = [Loop(self, application, queue, lease) for queue in queues]
        for loop in self._loops:
            task = kernel.start(process, f"{process.name}/{loop.queue}", loop.run, 0.0, name)
            task.on_connect = loop.consumer.connected
        self._heartbeat = beat

    def _beat(self, task: Task, lease: float) -> Generator[Any, Any, None]:
        """Renew all leases, three times in their length; tell of cancelled messages."""
        while True:
            yield Sleep(lease / settings.HEARTBEATS_PER_LEASE)
            beating = [(loop, loop.consumer.consumer) for loop in self._loops if loop.consumer.alive]
            if not beating:
                continue
            try:
                sent_at = Moment.now()
                answers = yield [ops.heartbeat(loop.consumer.keys, name, lease) for loop, name in beating]
                for (loop, name), alive in zip(beating, answers, strict=True):
                    if alive:
                        loop.consumer.renewed(sent_at)
                    elif loop.consumer.consumer == name:
                        loop.consumer.lose()
                told = yield [ops.told(loop.consumer.keys) for loop, _ in beating]
                for (loop, _), ids in zip(beating, told, strict=True):
                    loop.tell(ids)
            except ReliqError:
                yield Sleep(settings.RECONNECT_PAUSE)

    @property
    def kernel(self) -> Kernel:
        return self._kernel

    @property
    def process(self) -> Process:
        return self._process

    @property
    def limit(self) -> int:
        return self._limit


class Loop:
    """What a worker does for one queue: claim, run, settle with the next claim."""

    def __init__(self, worker: Worker, application: Application, queue: str, lease: float) -> None:
        self.queue = queue
        self.consumer = ConsumerSteps(QueueKeys(queue), worker.process.owner, lease)
        self.consumer.keeps_marks = True
        self._worker = worker
        self._observer = worker.kernel.observer
        self._handler = application.handlers.add(
            queue, lambda message: None, retry=RETRIES, retry_on=BaseException, dead_on=(), time_limit=None
        )
        self._acks: list[bytes] = []
        self._moves: list[Move] = []
        self._unstarted: deque[Message] = deque()
        self._running: Message | None = None

    def run(self, task: Task) -> Generator[Any, Any, None]:
        while True:
            try:
                yield from self.consumer.be_registered()
                if not self._unstarted:
                    self._unstarted.extend((yield from self._settle(self._worker.limit)))
                if not self._unstarted:
                    seconds = min(settings.BLOCK, self.consumer.lease / settings.HEARTBEATS_PER_LEASE)
                    self._unstarted.extend((yield from self.consumer.wait(1, seconds)))
                while self._unstarted:
                    message = self._unstarted.popleft()
                    yield from self._perform(message)
                    if message.redelivered:  # settled before the next one starts: see reclaim
                        yield from self._settle(0)
            except ReliqError:
                yield Sleep(settings.RECONNECT_PAUSE)

    def _settle(self, limit: int) -> Steps[list[Message]]:
        """Settle what has ended, and claim; after an error the same is settled again."""
        acks, moves = self._acks, self._moves
        self._acks, self._moves = [], []
        try:
            _, messages = yield from self.consumer.settle(self.consumer.in_order(acks), moves, limit)
        except BaseException:
            self._acks, self._moves = acks + self._acks, moves + self._moves
            raise
        return messages

    def _perform(self, message: Message) -> Steps[None]:
        if self.consumer.trusted_until.passed():
            yield from self._renew(message)
        if message.lost or (message.was_started and not (yield from self._begin_again(message))):
            return
        story = self._observer.stories[message.queue, message.id]
        run = self._observer.starts(self._worker.process, self.consumer.consumer, message)
        outcome = story.plan[min(len(story.runs), len(story.plan)) - 1] if story.plan else "ack"
        outcome = outcome if len(story.runs) <= len(story.plan) else "ack"
        self._running = message
        self._worker.kernel.note(self._worker.process.name, f"runs {message.id} ({outcome})")
        yield Sleep(0.002 + len(message.body) % 7 / 50)
        self._running = None
        if outcome == "crash":
            run.outcome = "crash"
            self._worker.kernel.kill(self._worker.process)
            return
        move = self._after(message, outcome)
        run.outcome = "cancelled" if message.cancelled and move is not None else outcome
        if move is None:
            self._acks.append(message.element)
        else:
            self._moves.append(move)

    def _after(self, message: Message, outcome: str) -> Move | None:
        if outcome == "ack":
            return after_return(message, None)
        if outcome == "again":
            return after_return(message, Again(delay=0.0 if len(message.id) % 2 else 0.3))
        if message.cancelled:
            return cancelled(message)
        error = Dead("as planned") if outcome == "dead" else RuntimeError("as planned")
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
            self.consumer.renewed(sent_at)
        elif name == self.consumer.consumer:
            self.consumer.lose()

    def _begin_again(self, message: Message) -> Steps[bool]:
        keys, name = self.consumer.keys, self.consumer.consumer
        if message.redelivered:
            with contextlib.suppress(ReliqError):
                yield ops.mark_tried(keys, name, message.tag)
        try:
            yield from self.consumer.lives.begin(message)
            if message.redelivered:
                self.tell((yield ops.told(keys)))
        except ReliqError:
            self._give_back(message)
        return not message.lost

    def _give_back(self, message: Message) -> None:
        self._moves.append(released(message))
        message.lost = True

    def tell(self, ids: ops.Cancelled) -> None:
        for message in self.consumer.tell(ids):
            if message is not self._running:
                self._moves.append(cancelled(message))
                message.lost = True


def monitor(kernel: Kernel, process: Process, interval: float) -> Task:
    """Start a monitor: each of its duties in turn, without a leader, so that several act at once."""

    def steps(task: Task) -> Generator[Any, Any, None]:
        liveness = Liveness()
        attempts = Attempts(lambda home: "", sharded=False)
        next_scan = 0.0
        survey = Survey(attempts)
        while True:
            try:
                if kernel.seconds >= next_scan:
                    survey = Survey(attempts, [QueueKeys(name) for name in (yield ops.queue_names())])
                    next_scan = kernel.seconds + interval
                    yield from kernel.run_of_steps(task, _scan(task, liveness, survey))
                    yield from kernel.run_of_steps(task, ask_undecided(survey))
                    yield from kernel.run_of_steps(task, end_batches(attempts))
                _, due = yield from kernel.run_of_steps(task, promote_due(survey, interval / 4))
            except ReliqError:
                liveness.disturbed()
                yield Sleep(interval)
            else:
                yield Sleep(interval / 4 if due is None else min(interval / 4, max(due, 0.01)))

    return kernel.start(process, f"{process.name}/scan", steps)


def _scan(task: Task, liveness: Liveness, survey: Survey) -> Steps[None]:
    """Find vanished consumers and take back what they held."""
    clients = yield ops.client_list()
    liveness.connections(clients, task.connected_at, task.connects > 1)
    (watched,) = yield from survey.having_each("scan", (lambda keys: keys.consumers,), survey.queues)
    looked, gone = [], {}
    for keys, (now, leases) in (yield from survey.attempts.together("scan", watched, read_leases)):
        looked.append((keys, leases))
        for vanished in liveness.look(keys.queue, leases, now):
            gone[keys.queue, vanished.consumer] = (keys, vanished)
    for holders in holders_by_process(looked, gone).values():
        if len(holders) > 1:
            yield from survey.attempts.of_queue("reclaim", holders[0][0], note_company(holders), None, "company")
    for keys, vanished in gone.values():
        steps = take_back(keys, vanished.consumer, vanished.known_dead)
        yield from survey.attempts.of_queue("reclaim", keys, steps, None, vanished.consumer)


class Producer:
    """A producer or an operator: an application that does one thing after another."""

    def __init__(self, kernel: Kernel, process: Process, actions: Iterable[Action]) -> None:
        self._kernel = kernel
        self._observer = kernel.observer
        self._process = process
        self._application = Application("redis://simulated", None, None)
        self._actions = sorted(actions, key=lambda one: one.at)
        self.task = kernel.start(process, f"{process.name}/calls", self._run, settings.SEND_TIMEOUT)

    def _run(self, task: Task) -> Generator[Any, Any, None]:
        for number, action in enumerate(self._actions):
            if (wait := action.at - self._kernel.seconds) > 0:
                yield Sleep(wait)
            act = getattr(self, f"_{action.what}")
            self._kernel.note(self._process.name, f"{action.what} {action.queue} {action.options or ''}")
            steps = act(action.queue, f"{self._process.name}-{number}", **action.options)
            with contextlib.suppress(RedisUnavailable, OutcomeUnknown, QueueFull):
                yield from self._kernel.run_of_steps(task, steps)

    def _queue(self, queue: str) -> Any:
        return self._application._queue_steps(queue)

    # --- what producers do ---

    def _messages(
        self, queue: str, name: str, count: int, plan: tuple[str, ...], large: bool, **options: Any
    ) -> list[NewMessage]:
        made = []
        for number in range(count):
            body = b"%d" % number + (LARGE if large else b"")
            message = NewMessage(body, id=f"{name}-{number:02}", **options)
            made.append(message)
            dedup = None if message.dedup_key is None else (message.dedup_key, message.window)
            self._observer.sends(
                queue, message.id, delay=message.delay, ttl=message.ttl, key=message.key, dedup=dedup,
                replace=message.replace, large=large, plan=plan,
            )  # fmt: skip
        return made

    def _send(
        self, queue: str, name: str, count: int = 1, plan: tuple[str, ...] = (), large: bool = False, **options: Any
    ) -> Steps[None]:
        messages = self._messages(queue, name, count, plan, large, **options)
        try:
            ids = yield from self._queue(queue).send_many(messages)
        except (QueueFull, RedisUnavailable):
            self._all(queue, messages, "refused")
            raise
        except OutcomeUnknown:
            self._all(queue, messages, "unknown")
            raise
        for message, first in zip(messages, ids, strict=True):
            self._observer.answered(queue, message.id, "answered" if first == message.id else "duplicate", first)

    def _all(self, queue: str, messages: list[NewMessage], status: str) -> None:
        for message in messages:
            self._observer.answered(queue, message.id, status)

    # --- what operators do ---

    def _pause(self, queue: str, name: str, seconds: float) -> Steps[None]:
        yield from self._queue(queue).pause()
        yield Sleep(seconds)
        yield from self._resume(queue, name)

    def _resume(self, queue: str, name: str) -> Steps[None]:
        yield from self._queue(queue).resume()

    def _cancel(self, queue: str, name: str, which: int) -> Steps[None]:
        ids = [identity for (at, identity), story in self._observer.stories.items() if at == queue and story.entered_at]
        if not ids:
            return
        identity = ids[which % len(ids)]
        self._observer.cancels.add((queue, identity))
        answer = yield from self._queue(queue).search.cancel(identity)
        self._kernel.note(self._process.name, f"cancel {identity}: {answer.value}")
        if answer:
            self._observer.cancelled(queue, identity)

    def _cancel_many(self, queue: str, name: str, key: str) -> Steps[None]:
        self._observer.cancels.add((queue, key))
        yield from self._queue(queue).search.cancel_many(key, None, dry_run=False)

    def _purge(self, queue: str, name: str) -> Steps[None]:
        yield from self._queue(queue).purge()

    def _redrive(self, queue: str, name: str) -> Steps[None]:
        letters = DeadLetterSteps(QueueKeys(queue))
        yield from letters.redrive(
            Filter(), rate=None, limit=None, dry_run=False, keep_failures=False, stop_above=None, progress=unwatched
        )

    def _purge_dead(self, queue: str, name: str) -> Steps[None]:
        yield from DeadLetterSteps(QueueKeys(queue)).purge(Filter(), everything=True, counter="purged_dead")
