"""Producers and operators: applications that call one operation after another."""

import contextlib
from collections.abc import Generator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from reliq.contract import values
from reliq.errors import (
    InvalidName,
    InvalidSetting,
    OutcomeUnknown,
    PreparedClosed,
    QueueFull,
    RedisUnavailable,
    ReliqError,
    SignalRefused,
)
from reliq.features.batches.steps import BatchSteps
from reliq.features.flows.model import FLOW, FlowMessage, Plan
from reliq.features.flows.sending import Sending
from reliq.features.flows.steps import cancelled_queues, note_cancelled
from reliq.features.prepared.steps import PreparedQueue
from reliq.features.receipts.model import Received, ReceiveRequest
from reliq.features.receipts.steps import ReceiptSteps
from reliq.features.schedules.decorator import Every
from reliq.features.steps.signals import SignalSteps
from reliq.features.topics.client import TopicCalls
from reliq.features.tracking.steps import Tracking
from reliq.model.outgoing import NewMessage
from reliq.ops import Sleep, Steps
from reliq.protocol.dead_letters import DeadLetterQueue, Filter, RedriveOptions
from reliq.protocol.durability import ANY
from reliq.protocol.queue import QueueSteps
from tests.simulation.choices import Action
from tests.simulation.clock import EPOCH
from tests.simulation.flowing import Member
from tests.simulation.kernel import Kernel
from tests.simulation.processes import Process, Task
from tests.simulation.resting import PRODUCER

LARGE = b"x" * (2 * values.INLINE_BODY_BYTES)
FAILED = (RedisUnavailable, OutcomeUnknown, QueueFull)
PATIENCE = 40  #: tries to change the number of partitions while an earlier change is under way


class Sender(Every, TopicCalls):
    """An application that sends in all ways."""


class Caller:
    """A process with one thread, which does what its actions say, one after another."""

    def __init__(self, kernel: Kernel, process: Process, actions: Iterable[Action]) -> None:
        self._kernel = kernel
        self._observer = kernel.observer
        self._process = process
        self._application = Sender("redis://simulated", None, None)
        self._actions = sorted(actions, key=lambda one: one.at)
        self.task = kernel.start(process, "calls", self._run, timeout=values.SEND_TIMEOUT)

    def _run(self, task: Task) -> Generator[Any, Any, None]:
        for number, action in enumerate(self._actions):
            if (wait := action.at - self._kernel.seconds) > 0:
                yield Sleep(wait)
            act = getattr(self, f"_{action.what}")
            self._kernel.note(self._process.name, f"{action.what} {action.queue} {action.options or ''}")
            steps = act(action.queue, f"{self._process.name}-{number}", **action.options)
            with contextlib.suppress(*FAILED):
                yield from self._kernel.run_of_steps(task, steps)

    def _queue(self, queue: str) -> QueueSteps:
        return self._application._queue_steps(queue)


class Producer(Caller):
    """Sends messages in all ways."""

    def _messages(
        self,
        queues: Iterable[str],
        name: str,
        count: int = 1,
        plan: tuple[str, ...] = (),
        large: bool = False,
        takes: float = 0.02,
        script: tuple[tuple[str, str, float], ...] = (),
        check: str = "",
        keys: tuple[str, ...] = (),
        charges: tuple[int, ...] = (),
        **options: Any,
    ) -> list[NewMessage]:
        """Make messages, and tell the observer what becomes of each in these queues."""
        made = []
        for number in range(count):
            body = b"%d" % number + (LARGE if large else b"")
            if keys:
                options["key"] = keys[number] or None
            message = NewMessage(body, id=f"{name}-{number:02}", **options)
            made.append(message)
            dedup = None if message.dedup_key is None else (message.dedup_key, message.window)
            for queue in queues:
                self._observer.calls.sends(
                    queue, message.id, delay=message.delay, ttl=message.ttl, key=message.key,
                    limit_key=message.limit_key, dedup=dedup, replace=message.replace, large=large, plan=plan,
                    takes=takes, script=script, prepared=bool(check), check=check, cost=message.cost,
                    charges=charges,
                )  # fmt: skip
        return made

    @contextlib.contextmanager
    def _told(self, queues: Iterable[str], messages: Iterable[NewMessage]) -> Generator[None]:
        """Tell the observer how a send has failed."""
        try:
            yield
        except FAILED as error:
            is_known = not isinstance(error, OutcomeUnknown) and self._process.late_until < self._kernel.clock.now
            status = "refused" if is_known else "unknown"
            for queue in queues:
                for message in messages:
                    self._observer.calls.answered(queue, message.id, "answered" if message.id in error.sent else status)
            raise

    def _send(self, queue: str, name: str, **options: Any) -> Steps[None]:
        yield from self._send_all(queue, self._messages([queue], name, **options))

    def _send_all(self, queue: str, messages: list[NewMessage]) -> Steps[None]:
        with self._told([queue], messages):
            ids = yield from self._queue(queue).send_many(messages)
        for message, first in zip(messages, ids, strict=True):
            self._observer.calls.answered(queue, message.id, "answered" if first == message.id else "duplicate", first)

    def _publish(self, queue: str, name: str, **options: Any) -> Steps[None]:
        queues = self._kernel.bound
        (message,) = self._messages(queues, name, **options)
        with self._told(queues, [message]):
            reached = yield from self._application._topics.publish("order.created", message)
        for one in queues:
            self._observer.calls.answered(one, message.id, "answered" if one in reached else "refused")

    def _prepare(self, queue: str, name: str, decision: str, after: float, check: str, **options: Any) -> Steps[None]:
        of, care = self._queue(queue), ANY
        steps = PreparedQueue(of.homes, of.pool)
        (message,) = self._messages([queue], name, check=check, **options)
        with self._told([queue], [message]):
            yield from steps.prepare(message, 0.8, 2, care)
        self._observer.calls.answered(queue, message.id, "answered")
        yield Sleep(after)
        with contextlib.suppress(PreparedClosed):
            if decision == "commit":
                yield from steps.commit(message.id, care)
                self._observer.calls.committed(queue, message.id)
            elif decision == "rollback":
                yield from steps.rollback(message.id, care)
                self._observer.calls.cancelled(queue, message.id)

    def _batch(self, queue: str, name: str, **options: Any) -> Steps[None]:
        end = NewMessage(b"end", id=f"{name}-end")
        batch = BatchSteps((queue, end), None, {})
        yield from batch.open()
        try:
            yield from batch.enlist(queue)
            messages = self._messages([queue], name, **options)
            self._observer.calls.sends(queue, end.id, of_batch=tuple((queue, one.id) for one in messages))
            yield from self._send_all(queue, batch.marked(messages))
        except InvalidSetting:
            if not self._observer.restarted:
                raise
            self._kernel.note(self._process.name, f"batch {batch.id} is lost")
            return
        except FAILED:
            yield from batch.close(abandon=True)
            raise
        yield from batch.close(abandon=False)
        self._observer.expected.add((queue, end.id))

    def _flow(self, queue: str, name: str, members: tuple[Member, ...], cancel: float | None) -> Steps[None]:
        plan, made, handles = Plan(), list[NewMessage](), list[FlowMessage]()
        plan.begin()
        for number, one in enumerate(members):
            made += self._messages([one.queue], f"{name}-{number}", **one.options)
            handles.append(plan.add(one.queue, made[-1], [handles[before] for before in one.after], one.rule))
        known = [((one.queue, message.id), one.after, one.rule) for one, message in zip(members, made, strict=True)]
        graph = self._observer.graphs.begins(plan.id, known, self._process)
        try:
            with plan.ending(given_up=False):
                yield from Sending(plan, self._queue).steps()
        except ReliqError as error:
            graph.given_up, graph.refused = True, isinstance(error, QueueFull)
            for (at, identity), _, _ in known:
                self._observer.calls.answered(at, identity, "unknown")
            if isinstance(error, FAILED) or self._observer.excused(self._process):
                self._kernel.note(self._process.name, f"flow {plan.id}: {type(error).__name__}")
                return
            raise
        graph.sent = True
        for (at, identity), _, _ in known:
            self._observer.calls.answered(at, identity, "answered")
        if cancel is not None:
            yield Sleep(cancel)
            graph.given_up = True
            self._observer.cancels |= {one for one, _, _ in known}
            queues = yield from cancelled_queues(plan.id)
            for flow, home in queues:
                yield from Tracking(self._queue(home).homes).cancel_many(None, {FLOW: flow}, dry_run=False)
            yield from note_cancelled(queues)

    def _schedule(self, queue: str, name: str, when: str, ends: float, catch_up: str) -> Steps[None]:
        end = datetime.fromtimestamp(EPOCH + ends, UTC)
        steps = self._application._schedules
        definition = steps.define(name, when, queue, b"tick", {"end": end, "catch_up": catch_up})
        self._observer.schedules[queue, name] = definition
        began = self._kernel.clock.now
        yield from steps.put([definition])
        try:
            stored = yield from steps.get(name)
        except InvalidName:
            if not self._observer.restarted_since(began):
                raise
            return  # what `put` wrote is not in the state from which the server was restarted
        if catch_up == "all" and stored.due is not None:
            ticks = [stored.due, *definition.ticks(stored.due, 100)]
            self._observer.expected |= {(queue, definition.message_id(tick)) for tick in ticks}


class Operator(Caller):
    """Looks after queues."""

    def _pause(self, queue: str, name: str, seconds: float) -> Steps[None]:
        yield from self._queue(queue).pause()
        yield Sleep(seconds)
        yield from self._queue(queue).resume()

    def _break(self, queue: str, name: str, seconds: float) -> Steps[None]:
        """Open the breaker for longer than that, and close it; should that fail, it closes by itself."""
        yield from self._queue(queue).open_breaker(2 * seconds)
        yield Sleep(seconds)
        yield from self._queue(queue).close_breaker()

    def _cancel(self, queue: str, name: str, which: int) -> Steps[None]:
        ids = [identity for (at, identity), story in self._observer.stories.items() if at == queue and story.entered_at]
        if not ids:
            return
        identity = ids[which % len(ids)]
        self._observer.cancels.add((queue, identity))
        answer = yield from Tracking(self._queue(queue).homes).cancel(identity)
        self._kernel.note(self._process.name, f"cancel {identity}: {answer.value}")
        if answer:
            self._observer.calls.cancelled(queue, identity)

    def _cancel_many(self, queue: str, name: str, key: str) -> Steps[None]:
        self._observer.cancels.add((queue, key))
        yield from Tracking(self._queue(queue).homes).cancel_many(key, None, dry_run=False)

    def _signal(self, queue: str, name: str, which: int, signal: str, early: bool = False) -> Steps[None]:
        """Give a signal to a durable message, of which perhaps nothing is known yet."""
        known = [identity for (at, identity), story in self._observer.stories.items() if at == queue and story.script]
        if early or not known:
            known = [f"{PRODUCER}-{number}-00" for number in range(8)]
        identity, value = known[which % len(known)], name
        records, message = self._observer.records, (queue, known[which % len(known)])
        records.offers(message, signal, value)
        try:
            taken = yield from SignalSteps(self._queue(queue).homes).give(identity, signal, value)
        except SignalRefused as refused:
            records.refused(message, signal, value, refused.outcome)
            self._kernel.note(self._process.name, f"signal {signal} of {identity}: {refused.outcome}")
        else:
            records.answered(message, signal, value, taken=taken)
            self._kernel.note(self._process.name, f"signal {signal} of {identity}: {taken}")

    def _purge(self, queue: str, name: str) -> Steps[None]:
        yield from self._queue(queue).purge()

    def _redrive(self, queue: str, name: str) -> Steps[None]:
        yield from DeadLetterQueue(self._queue(queue).homes).redrive(Filter(), RedriveOptions())

    def _purge_dead(self, queue: str, name: str) -> Steps[None]:
        yield from DeadLetterQueue(self._queue(queue).homes).purge(Filter(), everything=True)

    def _resize(self, queue: str, name: str, count: int) -> Steps[None]:
        """Change the number of partitions, as soon as an earlier change has ended."""
        for _ in range(PATIENCE):
            try:
                yield from self._queue(queue).configure({"partitions": count})
            except InvalidSetting:
                yield Sleep(0.25)
            else:
                return


class Receiver(Caller):
    """Receives messages, and deletes them by their receipts, extends them, returns them, or leaves them."""

    def __init__(self, kernel: Kernel, process: Process, actions: Iterable[Action]) -> None:
        process.receives = True
        self._receipts: dict[str, ReceiptSteps] = {}
        super().__init__(kernel, process, actions)

    def _receive(
        self,
        queue: str,
        name: str,
        limit: int,
        visibility: float,
        runs: bool,
        wait: float,
        takes: float,
        then: tuple[str, ...],
    ) -> Steps[None]:
        if queue not in self._receipts:
            of = self._queue(queue)
            self._receipts[queue] = ReceiptSteps(of.homes, of.pool)
        steps = self._receipts[queue]
        received = yield from steps.receive(ReceiveRequest(limit, visibility, runs=runs), wait)
        for one in received:
            self._kernel.note(self._process.name, f"received {one.message.id}")
        yield Sleep(takes)
        for one, what in zip(received, then, strict=False):
            with contextlib.suppress(*FAILED):
                yield from self._end(steps, queue, one, what)

    def _end(self, steps: ReceiptSteps, queue: str, one: Received, what: str) -> Steps[None]:
        message, flights = (queue, one.message.id), self._observer.flights
        nonce = one.message._envelope.nonce
        if what.startswith("delete"):
            late = what == "delete late"
            flights.deletes(message, nonce, late=late)
            (code,) = yield from steps.delete([one.receipt], late=late)
            if code == "deleted":
                flights.deleted(message)
        elif what != "leave":
            if what == "return":
                flights.returns(message, nonce)
            (code,) = yield from steps.change_visibility([(one.receipt, 0.0 if what == "return" else 1.0)])
        else:
            return
        self._kernel.note(self._process.name, f"{what} {one.message.id}: {code}")


CALLERS: Mapping[str, type[Caller]] = {"producer": Producer, "operator": Operator, "receiver": Receiver}
