"""The steps of messages in flight, of a queue with all of its homes."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter

from reliq import ops
from reliq.features.receipts import ops as own
from reliq.features.receipts.model import (
    CODES,
    DONE,
    UNKNOWN,
    Handle,
    Received,
    ReceiveRequest,
    by_queue,
)
from reliq.features.receipts.ready import RETURNED_AT_ONCE
from reliq.features.receipts.receiving import HomeReceiver, shown
from reliq.model.delayed_message import DelayedMessage
from reliq.model.found import Place
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Steps, Together
from reliq.protocol.bodies import read_bodies
from reliq.protocol.claiming import from_any
from reliq.protocol.features import Hidden
from reliq.protocol.homes import QueueHomes, checked
from reliq.protocol.listing import walk
from reliq.protocol.producer import ProducerPool
from reliq.runtime.pieces import pieces

_DELETED_AT_ONCE = 1000  #: by the script for nearly all deletes
_LOOK = 1.0  #: seconds after which who waits looks again, as another receiver may be gone
_SOON = 0.05  #: seconds between two looks for messages that are due
_PURGED_AT_ONCE = 500
_CHANGED_AT_ONCE = 100


class ReceiptSteps:
    """The operations on messages in flight, of all homes of a queue."""

    def __init__(self, homes: QueueHomes, pool: ProducerPool) -> None:
        self._homes = homes
        self._pool = pool
        self._receivers: dict[str, HomeReceiver] = {}  #: by home

    @property
    def queue(self) -> str:
        return self._homes.queue

    @property
    def has_several_homes(self) -> bool:
        """Whether a receive asks each of several homes once; the call to a single one is repeated as any other."""
        return self._homes.layout.several

    @property
    def awaited(self) -> list[str]:
        """The keys that exist when a receive may bring messages, where there are several homes: it does not wait."""
        return self._homes.awaited

    @property
    def look(self) -> float:
        """Seconds for which a receive may wait in a single home: until its first message in flight is due, or one."""
        return min(max(self._receiver(self._homes.first.keys).next_due - time.monotonic(), _SOON), _LOOK)

    def receive(self, wanted: ReceiveRequest, timeout: float = 0.0) -> Steps[list[Received]]:
        """Receive from the homes in turn; wait at most `timeout` seconds, where there is one.

        An attempt that was made before is repeated, in whichever home it was.
        """
        every = yield from self._homes.known()
        if wanted.attempt is not None and (again := (yield from self._again(every, wanted))):
            return again
        if len(every) == 1:
            return (yield from self._receiver(every[0]).receive(wanted, timeout))
        failing, ready = self._homes.failing, self._homes.ready_counts
        received = yield from from_any(every, failing, ready, lambda keys: self._receiver(keys).receive(wanted, 0.0))
        if not received:
            early = [keys for _, keys in (yield from self._return_everywhere()) if keys]
            received = yield from self._first_early(early if wanted.runs else (), wanted)
        return received

    def _first_early(self, homes: Sequence[QueueKeys], wanted: ReceiveRequest) -> Steps[list[Received]]:
        """Receive from the first of these homes that gives something: a count of ready messages does not show them."""
        for keys in homes:
            if received := (yield from self._receiver(keys).receive(wanted, 0.0)):
                return received
        return []

    def _receiver(self, keys: QueueKeys) -> HomeReceiver:
        receiver = self._receivers.get(keys.queue)
        if receiver is None:
            receiver = self._receivers[keys.queue] = HomeReceiver(keys, self._pool)
        return receiver

    def _again(self, every: Sequence[QueueKeys], wanted: ReceiveRequest) -> Steps[list[Received]]:
        """Repeat an earlier receive with the same attempt, in the home where it was."""
        found = yield [own.receive_again(keys, wanted.attempt or "", wanted.visibility) for keys in every]
        for keys, elements in zip(every, found, strict=True):
            messages = [Message.decode(self.queue, element) for element in elements]
            yield from read_bodies(keys, messages)
            if received := [shown(keys, one, one) for one in messages if one.body_is_read]:
                return received
        return []

    def return_due(self) -> Steps[int]:
        """Make the messages visible again whose time is over; return how many."""
        return sum(count for count, _ in (yield from self._return_everywhere()))

    def _return_everywhere(self) -> Steps[list[tuple[int, QueueKeys | None]]]:
        return (yield from self._homes.act("the return", _return_due))

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

    def change_delay(self, seconds: float) -> Steps[int]:
        """Set the delay, from their sends on, of delayed messages that wait for no retry; return how many."""
        return sum(
            (yield from self._homes.act("the change of the delay", partial(_change_delay, round(seconds * 1000))))
        )

    def forget_deduplication(self) -> Steps[None]:
        """Forget all deduplication keys: a message with a key that was used before is accepted."""
        yield from self._homes.act("forgetting the deduplication keys", _forget_dedup)


def _change(times: Sequence[float], late: bool, keys: QueueKeys, some: Sequence[tuple[int, Handle]]) -> Steps[str]:
    """Set the visibility of the messages of one home, each of the time at its position."""
    changes = [(one.name, times[at], one.group) for at, one in some]
    # A longer time may be set twice. A message that became visible may be another receiver's when the call is repeated.
    call = None if all(visible for _, visible, _ in changes) else keys.new_call()
    codes: str = yield own.set_visibility(keys, changes, late, call)
    return codes


def _delete(late: bool, keys: QueueKeys, some: Sequence[tuple[int, Handle]]) -> Steps[str]:
    return (yield from delete_of_home(keys, [(one.name, one.group) for _, one in some], late))


def delete_of_home(keys: QueueKeys, handles: Sequence[tuple[bytes, str]], late: bool) -> Steps[str]:
    """Delete messages of one home, by their names and the groups of their keys; return a letter for each."""
    if len(handles) <= _DELETED_AT_ONCE and (yield own.delete_flying(keys, [name for name, _ in handles], late)):
        return DONE * len(handles)
    codes: str = yield own.delete_received(keys, handles, late)
    return codes


def _return_due(keys: QueueKeys) -> Steps[tuple[int, QueueKeys | None]]:
    """Return how many messages of a home were due, and the home if messages are visible before others in flight."""
    total, count, early = 0, RETURNED_AT_ONCE, []
    while count == RETURNED_AT_ONCE:
        count, _, early = yield own.return_due(keys, RETURNED_AT_ONCE)
        total += count
    return total, keys if early else None


def _purge(keys: QueueKeys) -> Steps[int]:
    total = 0
    while count := (yield own.purge_received(keys, _PURGED_AT_ONCE, keys.new_call())):
        total += count
    return total


def _change_delay(delay: int, keys: QueueKeys) -> Steps[int]:
    """Read them all first, as a walk must not come across what it has moved; what is due becomes ready at once."""
    changes: list[tuple[str, int]] = []

    def note(messages: list[DelayedMessage]) -> Steps[bool]:
        changes.extend((one.id, one.enqueued_at + delay) for one in messages)
        return True
        yield

    yield from walk(DelayedMessage, keys, keys.delayed, ("-inf", "+inf"), _is_as_sent, note, removing=False, shown=0)
    total = 0
    for some in pieces(sorted(changes, key=itemgetter(1)), _CHANGED_AT_ONCE):
        total += yield own.change_delay(keys, some)
    while (yield ops.promote(keys, _CHANGED_AT_ONCE))[0] == _CHANGED_AT_ONCE:
        pass
    return total


def _is_as_sent(message: DelayedMessage) -> bool:
    """Whether a message waits since it was sent: not for a retry, and no handler has begun and let it rest."""
    return message.readable and not message.failures and not message.was_started


def _forget_dedup(keys: QueueKeys) -> Steps[bool]:
    cursor, beginning = 0, keys.dedup_of("").encode()
    while True:
        cursor, names = yield ops.scan_lasting(keys, cursor)
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
