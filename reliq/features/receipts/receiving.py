"""A receive from one home.

It is one script, which puts ready messages in flight, where each has a time of its own. What has to be looked at is
left to an ordinary claim, with all that a claim knows of limits, expired messages and large bodies; another script then
moves what was claimed from the processing list into flight.
"""

import contextlib
import time
from collections.abc import Sequence

from reliq import ops
from reliq.contract import values
from reliq.errors import RedisUnavailable, ReliqError, TooManyInFlight
from reliq.features.receipts import ops as own
from reliq.features.receipts.model import DONE, FIRST_RECEIVED, LATEST_RECEIVED, Receipt, Received, ReceiveRequest
from reliq.features.receipts.ops import Flight
from reliq.features.receipts.ready import RETURNED_AT_ONCE, is_plain, receive_ready
from reliq.model.element import Undecodable
from reliq.model.keys import QueueKeys, new_owner
from reliq.model.message import Message
from reliq.ops import Destination, Move, Steps
from reliq.ops.browse import GROUP_AND_TURN
from reliq.ops.partitions import HOMEWARD
from reliq.ops.schema import Counter
from reliq.protocol.bodies import read_bodies
from reliq.protocol.claiming import claim_within
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.forwarding import RECEIVED_ELSEWHERE, forward, number
from reliq.protocol.outcomes import released
from reliq.protocol.producer import ProducerPool

_LEASE = 30.0  #: seconds for which a claimed message that did not get into flight stays away
_CLAIMS = 1.0  #: seconds for which receives go through a claim, after one that needed it
_TRIES = 5  #: claims of one receive, as long as all that they bring has died
_UNKNOWN_LOOK = 0.1  #: seconds between two looks whether there is such a queue by now


class HomeReceiver:
    """Receives from one home of a queue."""

    def __init__(self, keys: QueueKeys, pool: ProducerPool) -> None:
        self.keys = keys
        self._pool = pool
        self._idle: list[ConsumerSteps] = []  #: registered, holding nothing
        self._in_flight: int | None = None  #: as last read
        self._per_head = 1.0  #: messages of the latest receive, for each one that was claimed
        self._claims_until = 0.0  #: by time.monotonic(): receives are claims
        self.next_due = float("inf")  #: by time.monotonic(): when the first message in flight is due

    def receive(self, wanted: ReceiveRequest, timeout: float) -> Steps[list[Received]]:
        """Receive messages; wait at most `timeout` seconds where there are none. Raises TooManyInFlight."""
        yield from self._check_room(wanted)
        if timeout or not is_plain(wanted) or self._claims_until > time.monotonic():
            return (yield from self.claimed(wanted, timeout))
        messages, ready = yield from receive_ready(self.keys, wanted)
        received = [shown(self.keys, one, one) for one in messages]
        self._in_flight = ready.in_flight
        if not ready.rest or len(received) == wanted.limit:
            return received
        if ready.rest == "claim" and not received:
            self._claims_until = time.monotonic() + _CLAIMS
        try:
            rest = wanted._replace(limit=wanted.limit - len(received))
            return received + (yield from self.claimed(rest, 0.0))
        except ReliqError:
            if not received:
                raise
            return received

    def claimed(self, wanted: ReceiveRequest, timeout: float) -> Steps[list[Received]]:
        """Receive by a claim, which knows limits, expired messages and whatever else may forbid a receive."""
        consumer = self._consumer()
        for _ in range(_TRIES):
            # A consumer makes its queue known: a receive that waits must not bring back one that was deleted.
            if not consumer.alive and not (yield from self._is_known()):
                yield ops.Sleep(min(timeout, _UNKNOWN_LOOK))
                return []
            heads = self._heads(wanted)
            messages = yield from claim_within(consumer, heads, timeout)
            missing = wanted.limit - len(messages)
            early: Sequence[bytes] = ()
            if len(messages) < heads and (not messages or self._in_flight != 0):
                returned, due, early = yield own.return_due(self.keys, RETURNED_AT_ONCE)
                self.next_due = float("inf") if due < 0 else time.monotonic() + due / 1000
                if returned:
                    messages += yield from claim_within(consumer, missing)
            early = early if self._takes_followers(consumer, wanted) else ()
            if not messages and not early:
                if consumer.alive:
                    break
                consumer = self._consumer()  # it went with the queue, which was deleted and made again
                continue
            living = yield from self._living(consumer, messages, wanted)
            if living or early:
                received = yield from self._put_in_flight(consumer, living, wanted, early)
                if received:
                    self._idle.append(consumer)
                    return received
        self._idle.append(consumer)
        return []

    def _is_known(self) -> Steps[bool]:
        """Whether there is such a queue; yes where the node with the names of all queues is away."""
        if (yield ops.exists(self.keys.producers)):
            return True
        try:
            return bool((yield ops.is_queue(self.keys.queue)))
        except RedisUnavailable:
            return True

    def _heads(self, wanted: ReceiveRequest) -> int:
        """Return how many messages to claim: fewer, if each one lately brought others that wait for its key."""
        return max(1, round(wanted.limit / self._per_head)) if wanted.runs else wanted.limit

    def _consumer(self) -> ConsumerSteps:
        """Return a consumer that holds nothing and is used by no other call."""
        while self._idle:
            one = self._idle.pop()
            if not one.is_parents and one.alive and not one.trust.until.passed():
                return one
        return ConsumerSteps(self.keys, new_owner(connected=False), _LEASE, may_age=True)

    def _check_room(self, wanted: ReceiveRequest) -> Steps[None]:
        """Raise TooManyInFlight; the number is read only where it may be near the limit."""
        most = wanted.most_in_flight
        if most is None or (self._in_flight or 0) + 10 * wanted.limit < most:
            return
        self._in_flight = yield own.in_flight(self.keys)
        if self._in_flight >= most:
            raise TooManyInFlight(
                f"{self._in_flight} messages of queue {self.keys.logical!r} are in flight, and at most {most} may "
                "be: delete some first"
            )

    def _living(
        self, consumer: ConsumerSteps, messages: Sequence[Message], wanted: ReceiveRequest
    ) -> Steps[Sequence[Message]]:
        """Return the messages that may be received; those that were received too often become dead letters."""
        most = wanted.most_receives
        if most is None or all(_receives(one) <= most for one in messages):
            return messages
        reason = "max_deliveries"
        moves = [
            Move(one.element, Destination.DEAD, Counter.dead(reason), one.id, one.buried(reason))
            for one in messages
            if _receives(one) > most
        ]
        yield from consumer.settle((), moves)
        if to := (yield ops.dead_to(self.keys)):
            with contextlib.suppress(ReliqError):  # they are dead letters, which a monitor sends on
                yield from forward(self.keys, to, self._pool, len(moves))
        return [one for one in messages if _receives(one) <= most]

    def _put_in_flight(
        self, consumer: ConsumerSteps, messages: Sequence[Message], wanted: ReceiveRequest, early: Sequence[bytes]
    ) -> Steps[list[Received]]:
        """Put claimed messages in flight, and with them those that wait behind them for their keys.

        `early`: keys whose first waiting message comes before those in flight.
        """
        now = round((time.monotonic() + consumer.arrivals.clock_offset) * 1000)
        chosen = [(b"", one) for one in messages]
        if early or (wanted.limit > 1 and self._takes_followers(consumer, wanted)):
            chosen = yield from self._with_followers(messages, wanted, now, early)
            if len(chosen) < wanted.limit and len(messages) == self._heads(wanted) < wanted.limit:
                others = yield from claim_within(consumer, wanted.limit - len(chosen))
                messages = [*messages, *(yield from self._living(consumer, others, wanted))]
                chosen = yield from self._with_followers(messages, wanted, now, early)
            claimed = sum(1 for line, _ in chosen if not line)
            if surplus := messages[claimed:]:
                yield from consumer.settle((), [released(one) for one in reversed(surplus)])
            if claimed:
                self._per_head = len(chosen) / claimed
        flying = [_flying(one, now) for _, one in chosen]
        flights = [
            Flight(before.element, again.element, line) for (line, before), again in zip(chosen, flying, strict=True)
        ]
        yield from consumer.count_arrived()
        codes, self._in_flight = yield own.receive(
            self.keys, consumer.consumer, wanted.visibility, flights, wanted.attempt
        )
        consumer.note_settled([one.element for one in messages])
        return [
            shown(self.keys, again, before)
            for again, (_, before), code in zip(flying, chosen, codes, strict=True)
            if code == DONE
        ]

    @staticmethod
    def _takes_followers(consumer: ConsumerSteps, wanted: ReceiveRequest) -> bool:
        """Whether a receive takes what waits for a key: not in a queue with limits, which count what is claimed."""
        return wanted.runs and not consumer.limits.apply

    def _with_followers(
        self, messages: Sequence[Message], wanted: ReceiveRequest, now: int, early: Sequence[bytes]
    ) -> Steps[list[tuple[bytes, Message]]]:
        """Choose each message with those that wait behind it for its key, up to the limit.

        Returns them with their places in line, which claimed ones do not have. What was claimed and is not among them
        are the last ones.
        """
        keyed = {one.element: one.group.encode() for one in messages if one.key and one.group and not one.in_cycle}
        groups = [*keyed.values(), *early]
        answers = (yield [own.next_of_key(self.keys, one, wanted.limit) for one in groups]) if groups else []
        lines = dict(zip(keyed, answers, strict=False))
        chosen: list[tuple[bytes, Message]] = []

        def choose(line: Sequence[bytes]) -> None:
            for entry in line[: wanted.limit - len(chosen)]:
                following = self._next(entry, wanted, now)
                if following is None:
                    break
                chosen.append((entry[:GROUP_AND_TURN], following))

        for message in messages[: wanted.limit]:
            if len(chosen) < wanted.limit:
                chosen.append((b"", message))
            choose(lines.get(message.element, ()))
        for line in answers[len(keyed) :]:  # the script takes what comes before the messages in flight
            choose(line)
        yield from read_bodies(self.keys, [one for line, one in chosen if line])
        return [(line, one) for line, one in chosen if one.body_is_read]

    def _next(self, entry: bytes, wanted: ReceiveRequest, now: int) -> Message | None:
        """Return the message in a line that a receive gets next, or None."""
        message = next_in_line(self.keys.logical, entry, now)
        too_often = message and wanted.most_receives is not None and _receives(message) > wanted.most_receives
        return None if too_often else message


def next_in_line(queue: str, entry: bytes, now: int) -> Message | None:
    """Return the message of an entry in a line; None: the line ends here for now, and a claim decides."""
    if entry.startswith(HOMEWARD, GROUP_AND_TURN - own.TURN):
        return None
    try:
        message = Message.decode(queue, entry[GROUP_AND_TURN:])
    except Undecodable:
        return None
    return None if 0 < message.expires_at <= now else message


def _receives(message: Message) -> int:
    """Return how often the message was received, with the next time included."""
    return message.deliveries + message.failures + 1


def _flying(message: Message, now: int) -> Message:
    """Return a message as it is in flight from now on."""
    time = LATEST_RECEIVED if FIRST_RECEIVED in message.headers else FIRST_RECEIVED
    headers = {time: str(now), **{name: value for name, value in message.headers.items() if name != time}}
    deliveries = min(message.deliveries + 1, values.MAX_COUNT)
    return message.pushed_again(deliveries=deliveries, headers=headers)


def shown(keys: QueueKeys, message: Message, before: Message) -> Received:
    """Return a message in flight; its body was read as that of the message `before`."""
    receipt, headers = Receipt.of(keys.queue, message), message.headers
    first = number(headers.pop(FIRST_RECEIVED, ""))
    latest = number(headers.pop(LATEST_RECEIVED)) if LATEST_RECEIVED in headers else first
    elsewhere = number(headers[RECEIVED_ELSEWHERE]) if RECEIVED_ELSEWHERE in headers else 0
    return Received(message.with_body(before.body), receipt, elsewhere + _receives(message) - 1, first, latest)
