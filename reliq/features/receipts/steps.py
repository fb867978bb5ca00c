"""The steps of messages in flight.

A receive is one script, which puts ready messages in flight, where each has a time of its own. What has to be looked at
is left to an ordinary claim, with all that a claim knows of limits, expired messages and large bodies; another script
then moves what was claimed from the processing list into flight.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

from reliq import ops
from reliq.contract import values
from reliq.errors import ReliqError, TooManyInFlight
from reliq.features.receipts import ops as own
from reliq.features.receipts.model import (
    CODES,
    DONE,
    FIRST_RECEIVED,
    LATEST_RECEIVED,
    UNKNOWN,
    Handle,
    Receipt,
    Received,
    Wanted,
    by_queue,
)
from reliq.features.receipts.ops import Flight
from reliq.features.receipts.ready import RETURNED_AT_ONCE, is_plain, receive_ready
from reliq.model.element import Undecodable
from reliq.model.found import Place
from reliq.model.keys import QueueKeys, new_owner
from reliq.model.message import Message
from reliq.ops import Destination, Move, Steps, Together
from reliq.ops.browse import GROUP_AND_TURN
from reliq.ops.schema import Counter
from reliq.protocol.bodies import read_bodies
from reliq.protocol.claiming import from_any, taken
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.forwarding import RECEIVED_ELSEWHERE, forward, number
from reliq.protocol.hidden import Hidden
from reliq.protocol.homes import QueueHomes, checked
from reliq.protocol.outcomes import released
from reliq.protocol.producer import ProducerPool

_LEASE = 30.0  #: seconds for which a claimed message that did not get into flight stays away
_CLAIMS = 1.0  #: seconds for which receives are claims, after one that had to be
_DELETED_AT_ONCE = 1000  #: by the script for nearly all deletes
_LOOK = 1.0  #: seconds after which who waits looks again, as another receiver may be gone
_SOON = 0.05  #: seconds between two looks for messages that are due
_TRIES = 5  #: claims of one receive, as long as all that they bring has died
_PURGED_AT_ONCE = 500
_AWAY = b"~"  #: how the turn of a message begins that a monitor takes to another home
_SCAN_STEP = 1000


class ReceiptSteps:
    """The operations on messages in flight, of all homes of a queue."""

    def __init__(self, homes: QueueHomes, pool: ProducerPool) -> None:
        self._homes = homes
        self._pool = pool
        self._idle: dict[str, list[ConsumerSteps]] = {}  #: by home: registered, holding nothing
        self._in_flight: dict[str, int] = {}  #: as last read
        self._run_length: dict[str, float] = {}  #: messages of one key in the latest receive
        self._claims_until: dict[str, float] = {}  #: by home, by time.monotonic(): its receives are claims
        self._next_due = float("inf")  #: by time.monotonic(): when the first message in flight of the last home is due

    @property
    def queue(self) -> str:
        return self._homes.queue

    @property
    def awaited(self) -> list[str]:
        """The keys that exist when a receive may bring messages, where there are several homes: it does not wait."""
        return self._homes.awaited

    @property
    def look(self) -> float:
        """Seconds for which a receive may wait: until the first message in flight is due, a second at most."""
        return min(max(self._next_due - time.monotonic(), _SOON), _LOOK)

    def receive(self, wanted: Wanted, timeout: float = 0.0) -> Steps[list[Received]]:
        """Receive from the homes in turn; wait at most `timeout` seconds, where there is one.

        An attempt that was made before is repeated, in whichever home it was.
        """
        every = yield from self._homes.known()
        if wanted.attempt is not None and (again := (yield from self._again(every, wanted))):
            return again
        if len(every) == 1:
            return (yield from self._receive(every[0], wanted, timeout))
        failing, found = self._homes.failing, self._homes.found
        received = yield from from_any(every, failing, found, lambda keys: self._receive(keys, wanted, 0.0))
        if not received:
            yield from self.return_due()
        return received

    def _receive(self, keys: QueueKeys, wanted: Wanted, timeout: float) -> Steps[list[Received]]:
        """Receive from one home."""
        yield from self._check_room(keys, wanted)
        if timeout or not is_plain(wanted) or self._claims_until.get(keys.queue, 0.0) > time.monotonic():
            return (yield from self._claimed(keys, wanted, timeout))
        messages, ready = yield from receive_ready(keys, wanted)
        received = [_shown(keys, one, one) for one in messages]
        self._in_flight[keys.queue] = ready.in_flight
        if not ready.rest or len(received) == wanted.limit:
            return received
        if ready.rest == "claim" and not received:
            self._claims_until[keys.queue] = time.monotonic() + _CLAIMS
        try:
            rest = wanted._replace(limit=wanted.limit - len(received))
            return received + (yield from self._claimed(keys, rest, 0.0))
        except ReliqError:
            if not received:
                raise
            return received

    def _claimed(self, keys: QueueKeys, wanted: Wanted, timeout: float) -> Steps[list[Received]]:
        """Receive by a claim, which knows limits, expired messages and whatever else may forbid a receive."""
        consumer = self._consumer(keys)
        for _ in range(_TRIES):
            heads = self._heads(keys, wanted)
            messages = yield from taken(consumer, heads, timeout)
            missing = wanted.limit - len(messages)
            early: Sequence[bytes] = ()
            if len(messages) < heads and (not messages or self._in_flight.get(keys.queue, 1)):
                returned, due, early = yield own.return_due(keys, RETURNED_AT_ONCE)
                self._next_due = float("inf") if due < 0 else time.monotonic() + due / 1000
                if returned:
                    messages += yield from taken(consumer, missing)
            early = early if self._runs_on(consumer, wanted) else ()
            if not messages and not early:
                if consumer.alive:
                    break
                consumer = self._consumer(keys)  # it went with the queue, which was deleted and made again
                continue
            living = yield from self._living(consumer, messages, wanted)
            if living or early:
                received = yield from self._put_in_flight(consumer, living, wanted, early)
                if received:
                    self._idle.setdefault(keys.queue, []).append(consumer)
                    return received
        self._idle.setdefault(keys.queue, []).append(consumer)
        return []

    def _heads(self, keys: QueueKeys, wanted: Wanted) -> int:
        """Return how many messages to claim: with runs fewer, if each one brought others of its key lately."""
        return max(1, round(wanted.limit / self._run_length.get(keys.queue, 1.0))) if wanted.runs else wanted.limit

    def _consumer(self, keys: QueueKeys) -> ConsumerSteps:
        """Return a consumer that holds nothing and is used by no other call."""
        idle = self._idle.get(keys.queue, [])
        while idle:
            one = idle.pop()
            if not one.is_parents and one.alive and not one.trusted_until.passed():
                return one
        consumer = ConsumerSteps(keys, new_owner(connected=False), _LEASE)
        consumer.lease_may_age = True
        return consumer

    def _check_room(self, keys: QueueKeys, wanted: Wanted) -> Steps[None]:
        """Raise TooManyInFlight; the number is read only where it may be near the limit."""
        most = wanted.most_in_flight
        if most is None or self._in_flight.get(keys.queue, 0) + 10 * wanted.limit < most:
            return
        self._in_flight[keys.queue] = yield own.in_flight(keys)
        if self._in_flight[keys.queue] >= most:
            raise TooManyInFlight(
                f"{self._in_flight[keys.queue]} messages of queue {self.queue!r} are in flight, and at most {most} may "
                "be: delete some first"
            )

    def _living(self, consumer: ConsumerSteps, messages: Sequence[Message], wanted: Wanted) -> Steps[Sequence[Message]]:
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
        if to := (yield ops.dead_to(consumer.keys)):
            yield from forward(consumer.keys, to, self._pool)
        return [one for one in messages if _receives(one) <= most]

    def _put_in_flight(
        self, consumer: ConsumerSteps, messages: Sequence[Message], wanted: Wanted, early: Sequence[bytes]
    ) -> Steps[list[Received]]:
        """Put what was claimed in flight, with what else a receive gets of keys; `early`: groups of such keys."""
        now, keys = round((time.monotonic() + consumer.arrivals.clock_offset) * 1000), consumer.keys
        chosen = [(b"", one) for one in messages]
        if early or (wanted.limit > 1 and self._runs_on(consumer, wanted)):
            chosen = yield from self._runs(keys, messages, wanted, now, early)
            if len(chosen) < wanted.limit and len(messages) == self._heads(keys, wanted) < wanted.limit:
                others = yield from taken(consumer, wanted.limit - len(chosen))
                messages = [*messages, *(yield from self._living(consumer, others, wanted))]
                chosen = yield from self._runs(keys, messages, wanted, now, early)
            claimed = sum(1 for line, _ in chosen if not line)
            if surplus := messages[claimed:]:
                yield from consumer.settle((), [released(one) for one in reversed(surplus)])
            if claimed:
                self._run_length[keys.queue] = len(chosen) / claimed
        flying = [_flying(one, now) for _, one in chosen]
        flights = [
            Flight(before.element, again.element, line) for (line, before), again in zip(chosen, flying, strict=True)
        ]
        codes, self._in_flight[keys.queue] = yield own.receive(
            keys, consumer.consumer, wanted.visibility, flights, wanted.attempt
        )
        consumer.note_settled(one.element for one in messages)
        return [
            _shown(keys, again, before)
            for again, (_, before), code in zip(flying, chosen, codes, strict=True)
            if code == DONE
        ]

    @staticmethod
    def _runs_on(consumer: ConsumerSteps, wanted: Wanted) -> bool:
        """Whether a receive takes what waits for a key: not in a queue with limits, which count what is claimed."""
        return wanted.runs and not consumer.limits.apply

    def _runs(
        self, keys: QueueKeys, messages: Sequence[Message], wanted: Wanted, now: int, early: Sequence[bytes]
    ) -> Steps[list[tuple[bytes, Message]]]:
        """Choose as many messages of one key as there are, then those of the next one.

        Returns them with their places in line, which claimed ones do not have. What was claimed and is not among them
        are the last ones.
        """
        keyed = {one.element: one.group.encode() for one in messages if one.key and one.group and not one.in_cycle}
        groups = [*keyed.values(), *early]
        answers = (yield [own.next_of_key(keys, one, wanted.limit) for one in groups]) if groups else []
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
        yield from read_bodies(keys, [one for line, one in chosen if line])
        return [(line, one) for line, one in chosen if one.body_is_read]

    def _next(self, entry: bytes, wanted: Wanted, now: int) -> Message | None:
        """Return the message in a line that a receive gets next, or None."""
        message = next_in_line(self.queue, entry, now)
        too_often = message and wanted.most_receives is not None and _receives(message) > wanted.most_receives
        return None if too_often else message

    def _again(self, every: Sequence[QueueKeys], wanted: Wanted) -> Steps[list[Received]]:
        """Repeat an earlier receive with the same attempt, in the home where it was."""
        found = yield [own.receive_again(keys, wanted.attempt or "", wanted.visibility) for keys in every]
        for keys, elements in zip(every, found, strict=True):
            messages = [Message.decode(self.queue, element) for element in elements]
            yield from read_bodies(keys, messages)
            if received := [_shown(keys, one, one) for one in messages if one.body_is_read]:
                return received
        return []

    def return_due(self) -> Steps[int]:
        """Make the messages visible again whose time is over; return how many."""
        return sum((yield from self._homes.act("the return", _return_due)))

    def change_visibility(self, changes: Sequence[tuple[str, float]], *, late: bool = False) -> Steps[list[str]]:
        """Set for how many seconds each message stays in flight from now on; return a code for each."""
        change = partial(_change, [visible for _, visible in changes], late)
        return (yield from self._by_receipt([receipt for receipt, _ in changes], change, "changed"))

    def delete(self, receipts: Sequence[str], *, late: bool) -> Steps[list[str]]:
        """Delete messages in flight; return a code for each."""
        return (yield from self._by_receipt(receipts, partial(_delete, late), "deleted"))

    def _by_receipt(
        self, receipts: Sequence[str], act: Callable[[QueueKeys, Sequence[tuple[int, Handle]]], Steps[str]], done: str
    ) -> Steps[list[str]]:
        """Act on the receipts of each home, at the same time; return a code for each receipt."""
        codes = [UNKNOWN] * len(receipts)
        groups = {queue: some for queue, some in by_queue(receipts).items() if self._is_of(queue)}
        if not groups:
            return codes
        if len(groups) == 1:
            ((queue, some),) = groups.items()
            keys = self._homes.first.keys if queue == self.queue else QueueKeys(queue)
            answers = [(yield from act(keys, some))]
        else:
            answers = checked((yield Together([act(QueueKeys(queue), some) for queue, some in groups.items()])))
        words = {**CODES, DONE: done}
        for some, letters in zip(groups.values(), answers, strict=True):
            for (position, _), letter in zip(some, letters, strict=True):
                codes[position] = words[letter]
        return codes

    def _is_of(self, queue: str) -> bool:
        """Whether a receipt is of this queue or of one of its homes."""
        return queue == self.queue or QueueKeys(queue).logical == self.queue

    def purge(self) -> Steps[int]:
        """Delete all messages in flight; return how many."""
        return sum((yield from self._homes.act("the purge", _purge)))

    def forget_deduplication(self) -> Steps[None]:
        """Forget all deduplication keys: a message with a key that was used before is accepted."""
        yield from self._homes.act("forgetting the deduplication keys", _forget_dedup)


def next_in_line(queue: str, entry: bytes, now: int) -> Message | None:
    """Return the message of an entry in a line; None if the line ends here for now: it dies, or moves, when claimed."""
    if entry.startswith(_AWAY, GROUP_AND_TURN - own.TURN):
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


def _shown(keys: QueueKeys, message: Message, before: Message) -> Received:
    """Return a message in flight; its body was read as that of the message `before`."""
    receipt, headers = Receipt.of(keys.queue, message), message.headers
    first = number(headers.pop(FIRST_RECEIVED, ""))
    latest = number(headers.pop(LATEST_RECEIVED)) if LATEST_RECEIVED in headers else first
    elsewhere = number(headers[RECEIVED_ELSEWHERE]) if RECEIVED_ELSEWHERE in headers else 0
    return Received(message.with_body(before.body), receipt, elsewhere + _receives(message) - 1, first, latest)


def _change(times: Sequence[float], late: bool, keys: QueueKeys, some: Sequence[tuple[int, Handle]]) -> Steps[str]:
    """Set the visibility of the messages of one home, each of the time at its position."""
    codes: str = yield own.set_visibility(keys, [(one.name, times[at], one.group) for at, one in some], late)
    return codes


def _delete(late: bool, keys: QueueKeys, some: Sequence[tuple[int, Handle]]) -> Steps[str]:
    if len(some) <= _DELETED_AT_ONCE and (yield own.delete_flying(keys, [one.name for _, one in some], late)):
        return DONE * len(some)
    codes: str = yield own.delete_received(keys, [(one.name, one.group) for _, one in some], late)
    return codes


def _return_due(keys: QueueKeys) -> Steps[int]:
    total, count = 0, RETURNED_AT_ONCE
    while count == RETURNED_AT_ONCE:
        count, *_ = yield own.return_due(keys, RETURNED_AT_ONCE)
        total += count
    return total


def _purge(keys: QueueKeys) -> Steps[int]:
    total = 0
    while count := (yield own.purge_received(keys, _PURGED_AT_ONCE)):
        total += count
    return total


def _forget_dedup(keys: QueueKeys) -> Steps[bool]:
    cursor, beginning = 0, keys.dedup_of("").encode()
    while True:
        cursor, names = yield ops.scan_lasting(keys, cursor, _SCAN_STEP)
        if some := [name for name in names if name.startswith(beginning)]:
            yield ops.unlink(some)
        if not cursor:
            return True


def _cancel(keys: QueueKeys, identity: str, call: str) -> Steps[bool]:
    """Delete a message in flight: it does not become visible again."""
    return bool((yield own.cancel_received(keys, identity, call)))


def _purge_nothing(keys: QueueKeys) -> Steps[int]:
    """Leave messages in flight alone, as a purge leaves those that a consumer holds."""
    return 0
    yield


IN_FLIGHT = Hidden(
    Place.PROCESSING,
    own.flying,
    _cancel,
    _purge_nothing,
    (lambda keys: keys.receipts, lambda record: record[own.TURN :]),
)
