"""Consuming for kombu: a thread for each queue claims its messages, and kombu's own thread receives them.

kombu works in one thread and must not wait for Redis there: a reader waits, and wakes kombu's event loop through a
socket. Acks leave kombu's thread as notes; the reader takes them along with its next claim, or the settler sends them
while the reader waits for messages. Leases are renewed by a third thread, however long a task takes.
"""

import contextlib
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reliq import Message, ops
from reliq.client.heartbeat import Heartbeat
from reliq.contract import values
from reliq.errors import ReliqError
from reliq.model.keys import new_owner
from reliq.protocol.lease import Lease
from reliq.protocol.outcomes import released
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store
from reliq.worker.exchange import Exchange

log = logging.getLogger("reliq.kombu")

_GATHER_CLAIM = 0.002  #: seconds in which more messages may be settled before the next claim
_GATHER_ACKS = 0.005  #: seconds in which a reader may take acks along before the settler sends them
_LOOK = 0.1  #: seconds between two looks whether Celery wants another message, where only it knows
_READ_AHEAD = 100  #: messages brought for a channel without prefetch count before it receives them
_STOP = 5.0  #: seconds to wait for the end of a thread


@dataclass(slots=True, eq=False)
class Subscription:
    """What a channel consumes: one queue, and whom to call with its messages."""

    queue: str  #: reliq's name
    exchange: Exchange
    no_ack: bool
    deliver: Callable[["Subscription", Message], None]
    active: bool = True
    place: int = 0  #: among the subscriptions of the channel to this queue: each has an exchange of its own


class Inbox:
    """The messages that readers have brought for a kombu connection, and the socket that wakes its event loop."""

    def __init__(self) -> None:
        self._brought: deque[tuple[Subscription, Message]] = deque()
        self._lock = threading.Lock()
        self._waking, self._woken = socket.socketpair()
        self._woken.settimeout(0)
        self._waking.settimeout(0)
        self._poked = False

    def __len__(self) -> int:
        return len(self._brought)

    def fileno(self) -> int:
        return self._woken.fileno()

    def put(self, subscription: Subscription, messages: list[Message]) -> bool:
        """Add messages; False if the subscription has ended, and they must go back."""
        with self._lock:
            if not subscription.active:
                return False
            self._brought.extend((subscription, message) for message in messages)
        self.poke()
        return True

    def end(self, subscription: Subscription) -> list[Message]:
        """End a subscription, and return the messages brought for it that were not received."""
        with self._lock:
            subscription.active = False
            mine = [message for one, message in self._brought if one is subscription]
            others = [pair for pair in self._brought if pair[0] is not subscription]
            self._brought.clear()
            self._brought.extend(others)
        return mine

    def next(self) -> tuple[Subscription, Message] | None:
        """Return the next message, if there is one."""
        with self._lock:
            return self._brought.popleft() if self._brought else None

    def poke(self) -> None:
        """Wake the event loop."""
        if not self._poked:
            self._poked = True
            with contextlib.suppress(OSError):
                self._waking.send(b"!")

    def calm(self) -> None:
        """Note that the event loop is awake and looks for messages next; what is put from then on wakes it again.

        The socket is emptied first: what wakes it later than that must not be taken for read.
        """
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(64):
                pass
        self._poked = False

    def wait(self, timeout: float | None) -> None:
        """Wait until there may be messages; raises TimeoutError."""
        self._woken.settimeout(timeout)
        try:
            self._woken.recv(1)
        except BlockingIOError:
            raise TimeoutError("no message") from None
        finally:
            self._woken.settimeout(0)
        self._poked = False

    def close(self) -> None:
        self._waking.close()
        self._woken.close()


class Credit:
    """How many messages the readers of a channel may bring: its prefetch count, for all its queues."""

    def __init__(self, qos: Any) -> None:
        self._qos = qos
        self._changed = threading.Condition()
        self._brought = 0  #: by readers, or about to be brought, and not received yet

    @property
    def _decided_elsewhere(self) -> bool:
        """Whether Celery's worker_disable_prefetch decides, message by message; it does not announce a change."""
        return "can_consume" in vars(self._qos)

    def _room(self) -> int:
        prefetch = self._qos.prefetch_count
        room = prefetch - self._brought - len(self._qos.unacked) if prefetch else _READ_AHEAD - self._brought
        if self._decided_elsewhere:
            return int(self._brought == 0 and room > 0 and self._qos.can_consume())
        return min(room, _READ_AHEAD)

    def reserve(self, stopping: threading.Event) -> int:
        """Wait until there is room, and return for how many messages; 0 when stopping, or when others were quicker."""
        with self._changed:
            while self._room() <= 0 and not stopping.is_set():
                self._changed.wait(_LOOK if self._decided_elsewhere else None)
            if self._qos.unacked:  # tasks are running, and may be about to end
                half = max(1, self._qos.prefetch_count // 2)
                self._changed.wait_for(lambda: stopping.is_set() or self._room() >= half, _GATHER_CLAIM)
            room = 0 if stopping.is_set() else max(0, self._room())
            self._brought += room
            return room

    def accept(self, count: int) -> int:
        """Return how many of so many messages, brought without a reservation, there is room for."""
        with self._changed:
            accepted = max(0, min(count, self._room()))
            self._brought += accepted
            return accepted

    def give_back(self, count: int) -> None:
        """Note messages that were received, or were not brought after all."""
        with self._changed:
            self._brought -= count
            self._changed.notify_all()

    def changed(self) -> None:
        """Note that messages were acked, or that the prefetch count is another one."""
        with self._changed:
            self._changed.notify_all()


class Reader(threading.Thread):
    """Claims the messages of one queue, as many as the channel has room for."""

    def __init__(
        self, subscription: Subscription, inbox: Inbox, credit: Credit, settler: "Settler", renew: Callable[[], None]
    ) -> None:
        """`renew` is called when the consumer begins a new life after a lost lease."""
        super().__init__(name=f"reliq-reader-{subscription.queue}", daemon=True)
        self._subscription = subscription
        self._exchange = subscription.exchange
        self._inbox = inbox
        self._credit = credit
        self._settler = settler
        self._renew = renew
        self._life = self._exchange.steps.consumer
        self._stopping = threading.Event()
        self._waiting = False
        self._outage = OutageLog(log, f"reading {subscription.queue}")

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                if not (room := self._credit.reserve(self._stopping)):
                    continue
                self._receive(self._claim(room))
            except ReliqError as error:
                if not self._stopping.is_set():
                    self._outage.failed(error)
                    self._stopping.wait(values.RECONNECT_PAUSE)
            except Exception:
                log.exception("reading %s failed; retrying", self._subscription.queue)
                self._stopping.wait(1.0)
            else:
                self._outage.over()

    def _claim(self, room: int) -> list[Message]:
        """Claim without waiting, or else wait for messages; `room`: how many were reserved."""
        messages: list[Message] = []
        try:
            messages = self._exchange.settle_and_claim(room)
        finally:
            self._credit.give_back(room - len(messages))
        return messages or self._wait(room)

    def _wait(self, room: int) -> list[Message]:
        self._waiting = True
        try:
            messages = [] if self._stopping.is_set() else self._exchange.wait(room)
        finally:
            self._waiting = False
        accepted = self._credit.accept(len(messages))
        self._return(messages[accepted:])  # the readers of other queues were quicker
        return messages[:accepted]

    def _receive(self, messages: list[Message]) -> None:
        if self._exchange.steps.consumer != self._life:
            self._life = self._exchange.steps.consumer
            self._renew()
        if messages and not self._inbox.put(self._subscription, messages):
            self._credit.give_back(len(messages))
            self._return(messages)

    def _return(self, messages: list[Message]) -> None:
        hand_back(self._exchange, messages)
        self._settler.wake()

    def stop(self) -> None:
        """Stop, in the middle of waiting too."""
        self._stopping.set()
        self._credit.changed()
        if self._waiting:
            self._exchange.interrupt()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(timeout=_STOP)


class Settler(threading.Thread):
    """Sends the acks that no reader takes along."""

    def __init__(self, store: Store, exchanges: Callable[[], list[Exchange]]) -> None:
        super().__init__(name="reliq-settler", daemon=True)
        self._connection = store.connection()
        self._exchanges = exchanges
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._outage = OutageLog(log, "settling")
        self.wake = self._woken.set

    def run(self) -> None:
        while not self._stopping.is_set():
            self._woken.wait()
            if self._stopping.wait(_GATHER_ACKS):
                break
            self._woken.clear()
            if failed := self._settle():
                self._outage.failed(failed)
                self._stopping.wait(values.RECONNECT_PAUSE)
                self._woken.set()
            else:
                self._outage.over()
        self._connection.close()

    def _settle(self) -> ReliqError | None:
        """Send what waits in each exchange; return an error of those whose node is away, after all others."""
        failed: ReliqError | None = None
        for exchange in self._exchanges():
            try:
                with exchange.watched() as stays:  # a consumer that leaves gives back what it still holds
                    if stays:
                        exchange.relieve(self._connection)
            except ReliqError as error:
                failed = error
        return failed

    def stop(self) -> None:
        self._stopping.set()
        self._woken.set()
        if self.is_alive():
            self.join(timeout=_STOP)


class Holder:
    """The consumers of one owner in Redis, a queue each, and the heartbeat of their leases."""

    def __init__(self, store: Store, lease: float) -> None:
        self._store = store
        self._lease = lease
        self.owner = new_owner()
        self._heartbeat: Heartbeat | None = None
        self.exchanges: dict[str, Exchange] = {}

    def hold(self, queue: str) -> Exchange:
        """Return a consumer of a queue that this owner does not consume yet."""
        # Without marks: Celery runs redelivered messages beside others.
        exchange = Exchange(self._store, queue, self.owner, self._lease, _ignore, keeps_marks=False)
        self.exchanges[queue] = exchange
        if self._heartbeat is None:
            self._heartbeat = Heartbeat(self._store, self.owner, self._lease, self._leases, self._lost)
            self._heartbeat.start()
        return exchange

    def drop(self, queue: str) -> bool:
        """Unregister a consumer; what it holds goes back. If Redis is away, a guard or a monitor does so later.

        Return whether Redis was there.
        """
        exchange, left = self.exchanges.pop(queue), False
        with contextlib.suppress(ReliqError):
            self._store.call(ops.ping(), timeout=0)  # there may be many queues, each of which would wait for Redis
            exchange.relieve()
            left = exchange.leave(lambda: False)
        exchange.close()
        if not self.exchanges and self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
            self.owner = new_owner()
        return left

    def _leases(self) -> list[Lease]:
        living = [one.steps for one in list(self.exchanges.values()) if one.steps.alive]
        return [Lease(steps.keys, steps.consumer, self._lease, steps.trust.renewed) for steps in living]

    def _lost(self, lease: Lease) -> None:
        for exchange in list(self.exchanges.values()):
            if exchange.steps.consumer == lease.consumer and exchange.steps.keys.queue == lease.keys.queue:
                log.warning("the lease of %s was lost: other workers may run its messages", lease.keys.queue)
                exchange.steps.lose()


def hand_back(exchange: Exchange, messages: list[Message], *, started: bool = False) -> None:
    """Note that messages go back to where they were taken from, in their order, not counted as delivered.

    `started`: their tasks may run.
    """
    for message in reversed(messages):
        if not message.lost:
            exchange.move(released(message, started=started))


def _ignore(_: object) -> None:
    """Note nothing of messages that died on their arrival: their counters and their letters tell of them."""
