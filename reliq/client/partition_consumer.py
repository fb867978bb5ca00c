"""Claiming and settling by hand, from one partition of a queue."""

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from reliq import ops
from reliq.client.heartbeat import Heartbeat, Lease
from reliq.contract import values
from reliq.contract.values import Duration, seconds, whole
from reliq.errors import InvalidSetting, OutcomeUnknown
from reliq.model.keys import QueueKeys, connection_name, new_owner
from reliq.model.life import DONE
from reliq.model.message import Message
from reliq.ops import Move, Settled, Steps
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.outcomes import buried, failure_now, released, retried
from reliq.protocol.settlement import advise_about, checked_lease, lease_lost, settleable, settled_before
from reliq.runtime.moment import Moment
from reliq.transport.store import Store


class PartitionConsumer:
    """Claims and settles by hand, from one partition of a queue; see reliq.Consumer. A thread renews the lease."""

    def __init__(self, store: Store, keys: QueueKeys, lease: Duration = values.LEASE) -> None:
        self.lease = checked_lease(lease)
        self._store = store
        self._owner = new_owner()
        self._steps = ConsumerSteps(keys, self._owner, self.lease)
        self._connection = store.connection(connection_name(self._owner))
        self._connection.on_connect = self._steps.connected
        self._steps.run_report = self._report
        self._heartbeat: Heartbeat | None = None
        self._closed = False
        self._lock = threading.RLock()  # the heartbeat may find the lease lost at any moment

    @property
    def keys(self) -> QueueKeys:
        return self._steps.keys

    def holds(self, message: Message) -> bool:
        """Whether the message was claimed here."""
        return isinstance(message, Message) and message.holder is self._steps

    @property
    def steps(self) -> ConsumerSteps:
        return self._steps

    @property
    def closed(self) -> bool:
        """Whether its context has ended."""
        return self._closed

    @property
    def idle(self) -> bool:
        """Whether it holds no messages."""
        return not self._steps.held

    @property
    def owes(self) -> bool:
        """Whether it may hold messages that its caller has not received: the next claim finds out."""
        return bool(self._steps.arrivals.messages) or self._steps.to_be_verified

    @property
    def id(self) -> str:
        """Its id in Redis; a new one after every lost lease."""
        return self._steps.consumer

    def __enter__(self) -> Self:
        self._heartbeat = Heartbeat(self._store, self._owner, self.lease, self._leases, self._lost)
        self._heartbeat.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._steps.is_parents:  # a forked child leaves its parent what that holds
            return
        self._closed = True
        try:
            with self._lock:
                self._store.run(self._steps.leave(), self._connection)
        finally:
            if self._heartbeat is not None:
                self._heartbeat.stop()
            self._connection.close()

    def claim(self, limit: int = 1, wait: Duration = 0, patience: float | None = None) -> list[Message]:
        """Up to `limit` messages; empty when nothing came within `wait` seconds. Raises InvalidSetting once closed.

        `patience`: seconds for which a failed call is repeated; None: as long as any call of the application.
        """
        if self._closed:
            raise InvalidSetting("this consumer has ended with its `with` block: make a new one")
        whole(limit, "limit", 1, values.MAX_BATCH)
        until = time.monotonic() + seconds(wait, "wait")
        with self._lock:
            self._steps.accepted()
            try:
                return self._claim(limit, until, patience)
            except BaseException:  # an interrupt: what was claimed must not be forgotten
                self._steps.interrupted()
                raise

    def take_back(self, messages: Sequence[Message]) -> None:
        """Note that the caller did not receive messages of the latest claim: they come with the next one."""
        with self._lock:
            self._steps.not_received(messages)

    def _claim(self, limit: int, until: float, patience: float | None) -> list[Message]:
        messages = self._run(lambda: self._steps.claim(limit), patience)
        while not messages and (left := until - time.monotonic()) > 0.001:
            timeout = min(left, values.BLOCK, self.lease / values.HEARTBEATS_PER_LEASE)
            messages = self._run(lambda timeout=timeout: self._steps.wait(limit, timeout), patience)  # type: ignore[misc]
        if messages and self._steps.trusted_until.passed():  # suspended on the way: they may be others' by now
            self.heartbeat()
        held = [message for message in messages if not message.lost]
        for message in held:
            if message.was_started:
                self._store.run(self._steps.lives.begin(message), self._connection)
        return held

    def _report(self, steps: Steps[None]) -> Awaitable[None]:
        with self._lock:
            self._store.run(steps, self._connection)
        return DONE

    def _run(self, steps: Callable[[], Steps[list[Message]]], patience: float | None) -> list[Message]:
        try:
            return self._store.run(steps(), self._connection, patience)
        except OutcomeUnknown:  # the answer was lost: the second try reads back what the first one moved
            return self._store.run(steps(), self._connection, patience)

    def ack(self, *messages: Message) -> None:
        """Handled: gone for good. Raises LeaseLost when the monitor had taken one back before."""
        self._settle(messages)

    def retry(self, message: Message, delay: Duration = 0, error: str = "retried by its consumer") -> None:
        """Failed: try again after `delay`. Counts as a failure."""
        failure = failure_now(self.id, "Retry", error)
        self._settle((message,), lambda one: retried(one, failure, seconds(delay, "delay")))

    def dead(self, message: Message, reason: str) -> None:
        """Give up: to the dead letters, with reason `rejected` and this text as its last error."""
        failure = failure_now(self.id, "Dead", str(reason))
        self._settle((message,), lambda one: buried(one, failure, "rejected"))

    def release(self, *messages: Message) -> None:
        """Hand back untouched: to the tail of the queue, taken next, nothing counted."""
        self._settle(messages, released)

    def heartbeat(self) -> bool:
        """Renew the lease now; False when it is lost. The context's thread does it anyway."""
        with self._lock:
            if not self._steps.alive:
                return False
            keys, sent_at = self._steps.keys, Moment.now()
            beat: list[ops.Op[Any]] = [ops.heartbeat(keys, self.id, self.lease), ops.told(keys)]
            alive, told = self._store.call(beat, self._connection)
            if not alive:
                self._steps.end_life()
                return False
            self._steps.renewed(sent_at)
            self._steps.tell(told)
            return True

    def _settle(self, messages: Sequence[Message], move: Callable[[Message], Move] | None = None) -> None:
        """Ack the messages, or move them; raises LeaseLost after it has settled those that were still held."""
        acks, moves = settleable(self._steps, messages, move)
        settled = settled_before(self._steps, messages)
        with self._lock:
            codes, _ = self._store.run(self._steps.settle(acks, moves), self._connection)
        lost = len(messages) - len(codes) + codes.count(Settled.LOST)
        if lost:
            raise lease_lost(self._steps.keys.queue, lost, len(messages))
        advise_about(settled)

    def _leases(self) -> list[Lease]:
        steps = self._steps
        return [Lease(steps.keys, steps.consumer, self.lease, steps.renewed, steps.tell)] if steps.alive else []

    def _lost(self, lease: Lease) -> None:
        with self._lock:
            if lease.consumer == self._steps.consumer:
                self._steps.end_life()
