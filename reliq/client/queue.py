# Generated from reliq/aio/queue.py by tools/generate_sync.py: do not edit
"""A queue: send, look, set its policy."""

from collections.abc import Iterable
from typing import Unpack

from reliq.client.consumer import Consumer
from reliq.client.dead_letters import DeadLetters
from reliq.client.delayed import Delayed
from reliq.contract import values
from reliq.contract.keywords import BatchOptions, Config, ConfigChanges, MessageOptions
from reliq.contract.values import Duration
from reliq.features.cycle.client import CycleCalls
from reliq.features.output.client import OutputReads
from reliq.features.prepared.client import PreparedCalls
from reliq.features.receipts.client import ReceiveCalls
from reliq.features.results.client import ResultCalls
from reliq.features.steps.client import SignalCalls
from reliq.features.tracking.client import TrackingCalls
from reliq.model.outgoing import Body, NewMessage
from reliq.model.stats import Stats
from reliq.protocol.partition_progress import PartitionProgress, progress
from reliq.protocol.queue import QueueSteps
from reliq.runtime.advice import renamed
from reliq.transport.store import Store


class Queue(CycleCalls, OutputReads, PreparedCalls, ReceiveCalls, ResultCalls, SignalCalls, TrackingCalls):
    """A queue, from `Reliq.queue(name)`. Threads or tasks share it in the same way as its application."""

    def __init__(self, store: Store, steps: QueueSteps) -> None:
        self._store = store
        self._steps = steps
        self.name = steps.keys.queue
        self.dead = DeadLetters(store, steps.homes)
        self.delayed = Delayed(store, steps.homes)

    def send(
        self,
        body: Body | NewMessage,
        *,
        durability: str | None = None,
        repeats: int | None = None,
        retries: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> str:
        """Enqueue one message and return its id; the other options are those of MessageOptions.

        `durability`: "memory", "fsync" (the server's disk) or "replicas=1" (or more) before this returns; None = the
        queue's. If it is not reached: OutcomeUnknown; if the server has no such level: DurabilityUnavailable. reliq
        repeats a call without a reply for 5 seconds (`send_timeout`) and at most `repeats` times (formerly `retries`),
        and enqueues once. Raises InvalidMessage, InvalidName, QueueFull, RedisUnavailable (not enqueued), and
        OutcomeUnknown (it may be).
        """
        message = self._steps.prepared(body, options)
        (sent,) = self._store.run(self._steps.send_many([message], durability, renamed(repeats, retries)))
        return sent

    def send_many(
        self,
        bodies: Iterable[Body | NewMessage],
        *,
        durability: str | None = None,
        repeats: int | None = None,
        retries: int | None = None,
        **options: Unpack[BatchOptions],
    ) -> list[str]:
        """Enqueue many, up to 1,000 in one step, and return their ids. Bodies, or NewMessages with their own options.

        The other options are those of BatchOptions, for all bodies of the call.
        All are checked before the first is sent: InvalidMessage names the index. Otherwise raises as `send`; the
        error's `sent` has the ids of the batches that were enqueued.
        """
        messages = self._steps.prepared_many(bodies, options)
        return self._store.run(self._steps.send_many(messages, durability, renamed(repeats, retries)))

    def stats(self) -> Stats:
        """Return how many messages are in each state, and the counters."""
        return self._store.run(self._steps.stats())

    def config(self) -> Config:
        """Return the policy that is in force."""
        return self._store.run(self._steps.config())

    def configure(self, **changes: Unpack[ConfigChanges]) -> Config:
        """Change the policy: limits of its size, retention, durability, and of what consumers get.

        The settings are those of ConfigChanges. None = back to the default.
        """
        return self._store.run(self._steps.configure(changes))

    def pause(self) -> None:
        """Let no worker start a message of this queue; sends continue, and running handlers finish."""
        self._store.run(self._steps.pause())

    def resume(self) -> None:
        """Resume a paused queue."""
        self._store.run(self._steps.resume())

    def open_breaker(self, duration: Duration = "1h") -> None:
        """Open the circuit breaker by hand: no worker gets a message for `duration`, then one message is tried.

        Without a handler that has a breaker, the queue continues after that time.
        """
        self._store.run(self._steps.open_breaker(duration))

    def close_breaker(self) -> bool:
        """Close the circuit breaker, and return whether it was open: consumers get messages again."""
        return self._store.run(self._steps.close_breaker())

    def partitions(self) -> PartitionProgress:
        """Return the partitions of the queue, and the progress of a change of their number."""
        return self._store.run(progress(self._steps.homes))

    def purge(self) -> int:
        """Delete the ready, delayed, parked and prepared messages; return how many."""
        return self._store.run(self._steps.purge())

    def consumer(self, lease: Duration = values.LEASE) -> Consumer:
        """Return a consumer to claim and settle by hand, as a context."""
        return Consumer(self._store, self._steps.homes, lease)

    def __repr__(self) -> str:
        return f"<Queue {self.name} at {self._store.where}>"
