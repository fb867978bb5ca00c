# Generated from reliq/aio/holding.py by tools/generate_sync.py: do not edit
"""What a consumer by hand holds of one home of its queue."""

from collections.abc import Callable, Sequence
from typing import Any

from reliq import ops
from reliq.client.connections import Connections
from reliq.client.unbroken import bring, finish
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Move, Settled
from reliq.protocol.away import AwayNodes
from reliq.protocol.claimant import settlements
from reliq.protocol.claiming import PATIENCE, claim_within
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.lease import Lease
from reliq.protocol.outcomes import released
from reliq.protocol.oversized import takeable
from reliq.protocol.settlement import advise_about, lease_lost, settleable, settled_before
from reliq.runtime.moment import Moment
from reliq.transport.store import Store


class Holding:
    """Messages of one home of a queue, with their lease, and the connections that claim and settle them.

    One caller claims at a time; others may settle meanwhile. `consumer`: the id at first; the homes of a
    consumer have one owner, so that a monitor knows what they held together.
    """

    def __init__(self, store: Store, keys: QueueKeys, lease: float, consumer: str, connections: Connections) -> None:
        self._store = store
        self.steps = ConsumerSteps(keys, consumer, lease, may_age=True)
        self.keys = keys
        self.steps.run_report = self._report
        self._connections = connections
        self._waiting = False  #: a claim waits for messages
        connections.use(self.steps)

    @property
    def id(self) -> str:
        """The id of its consumer in Redis; a new one after every lost lease."""
        return self.steps.consumer

    @property
    def owes(self) -> bool:
        """Whether it may hold messages that its caller has not received: the next claim finds out."""
        return bool(self.steps.arrivals.messages) or self.steps.to_be_verified

    def holds(self, message: Message) -> bool:
        """Whether the message was claimed here."""
        return isinstance(message, Message) and message.holder is self.steps

    def leave(self, away: AwayNodes | None = None) -> None:
        """Give back what is held, and unregister the consumer; do not wait for a node that is `away`."""
        if self.steps.is_parents:  # a forked child leaves its parent what that holds
            return
        try:
            if away is not None and self.steps.alive:
                away.check(self.keys)
            with self._connections.lock:
                self.steps.end_lost_life()
                self._store.run(self.steps.leave(), self._connections.main)
        finally:
            self._connections.leave(self.steps)

    def claim(self, limit: int, timeout: float = 0, patience: float | None = None) -> list[Message]:
        """Claim up to `limit` messages; wait for them at most `timeout` seconds.

        `patience`: seconds for which a failed call is repeated; None: as long as any call of the application.
        """
        return bring(self._claim(limit, timeout, patience), self.give_back, self._waits_alone, self._recall)

    def _waits_alone(self) -> bool:
        """Whether a claim waits that can be broken off: not in a queue with limits, where it may wait for others."""
        return self._waiting and not self.steps.limits.apply

    def _recall(self) -> list[Message]:
        """Return what a claim that was broken off has taken: Redis may have given it a message just then.

        While Redis is away, that comes with the next claim.
        """
        with self._connections.lock:
            return self._store.run(self.steps.recall(), self._connections.main, PATIENCE)

    def _claim(self, limit: int, timeout: float, patience: float | None) -> list[Message]:
        with self._connections.lock:
            self._connections.claiming, self._waiting = True, timeout > 0
            self.steps.arrivals.accepted()
            try:
                messages = self._store.run(claim_within(self.steps, limit, timeout), self._connections.main, patience)
                return self._begun(messages) if messages else messages
            except BaseException:  # what was claimed must not be forgotten: it comes with the next claim
                self.steps.arrivals.not_received()
                raise
            finally:
                self._connections.claiming = self._waiting = False

    def _begun(self, messages: list[Message]) -> list[Message]:
        """Return those of the claimed messages that are still held, with what an earlier consumer has reported."""
        if self.steps.trust.until.passed():  # suspended on the way: they may be others' by now
            self.heartbeat()
        held = [message for message in messages if not message.lost]
        for message in held:
            if message.was_started:
                self._report(self.steps.lives.begin(message))
        return held

    def give_back(self, messages: Sequence[Message]) -> None:
        """Give back messages whose claim was broken off; those that cannot be given back come with the next claim."""
        finish(self._given_back(messages))

    def _given_back(self, messages: Sequence[Message]) -> bool:
        try:
            self.settle(messages[::-1], released)  # each goes to the head
        except ReliqError:
            self.steps.arrivals.not_received(messages)
            return False
        return True

    def settle(self, messages: Sequence[Message], move: Callable[[Message], Move] | None = None) -> None:
        """Ack the messages, or move them; raises LeaseLost after it has settled those that were still held."""
        if not messages:
            return
        acks, moves = settleable(self.steps, messages, move)
        settled = settled_before(self.steps, messages)
        if self._connections.busy:
            codes = self._settle_on_second(acks, moves)
        else:
            with self._connections.lock:
                codes, _ = self._store.run(self.steps.settle(acks, moves), self._connections.main)
        lost = len(messages) - len(codes) + codes.count(Settled.LOST)
        if lost:
            raise lease_lost(self.keys.logical, lost, len(messages))
        advise_about(settled)

    def _settle_on_second(self, acks: Sequence[bytes], moves: Sequence[Move]) -> str:
        """Settle while a claim waits, which has its connection for up to a second."""
        with self._connections.second() as connection:
            moves = self._store.run(takeable(moves), connection)
            codes = ""
            for some, others in settlements(acks, moves):
                answer: ops.Claimed = self._store.call(self.steps.settle_op(some, others), connection)
                codes += self.steps.note_answer(some, others, answer.codes)
        self._report(self.steps.after_settling(acks, moves, codes))
        return codes

    def _report(self, steps: ops.Steps[Any]) -> Any:
        with self._connections.second() as connection:
            return self._store.run(steps, connection)

    def heartbeat(self) -> bool:
        """Renew the lease now; False when it is lost."""
        for lease in self.leases():
            with self._connections.second() as connection:
                sent_at = Moment.now()
                beat: list[ops.Op[Any]] = [ops.heartbeat(self.keys, self.id, lease.length), ops.told(self.keys)]
                alive, told = self._store.call(beat, connection)
            if alive:
                lease.renewed(sent_at)
                lease.told(told)
                return True
            self.steps.lose()
        return False

    def leases(self) -> list[Lease]:
        """Return its lease, if there is one to renew."""
        one = self.steps
        return [Lease(one.keys, one.consumer, one.lease, one.trust.renewed, one.note_cancelled)] if one.alive else []
