"""Runs of a stream: a micro-batch with a message of a key takes those that wait behind it too, in order.

They are in flight, as those of a receive with `runs`, so that the key waits until the batch is acked; the list of an
attempt has their names in order, for as long as they are in flight.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from reliq import ops
from reliq.contract.values import MAX_BATCH
from reliq.features.receipts import ops as own
from reliq.features.receipts.model import DONE
from reliq.features.receipts.ops import Flight
from reliq.features.receipts.receiving import next_in_line
from reliq.features.receipts.steps import delete_of_home
from reliq.model.element import decode_envelope, encode_envelope, id_in_name
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Steps
from reliq.ops.browse import GROUP_AND_TURN
from reliq.runtime.pieces import pieces

_LONGEST = 1000  #: messages that one takes with it
# So that a call keeps Redis for 1 to 2 ms: the medians for 10,000 messages of 10, or of 1,000 keys.
_MOVES, _ENDS = 60, 50  #: messages of a call
_KEPT = 250  #: messages of which a call renews the lease


class Runs:
    """What a micro-batch has in flight. Its rows show each message as it was before."""

    def __init__(self, keys: QueueKeys, consumer: str, lease: float) -> None:
        self._keys, self._consumer, self._lease = keys, consumer, lease
        self._attempt = f"batch {consumer}"

    def count(self) -> ops.Op[int]:
        return own.attempt_length(self._keys, self._attempt)

    def take(self, heads: Sequence[Message], room: int, *, evenly: bool) -> Steps[int]:
        """Put those of the claimed messages in flight behind which others wait, with up to `room` of these.

        Those that the limits of the queue hold back go on waiting.
        """
        keyed = [one for one in heads if one.key and one.group and not one.in_cycle] if room > 0 else []
        waiting = (yield [own.waiting_count(self._keys, one.group) for one in keyed]) if keyed else []
        longest = -(-room // len(keyed)) if evenly and keyed else _LONGEST
        taken, ended = 0, set[str]()
        for some in _shares(keyed, waiting, room, min(longest, _LONGEST)):
            taken += yield from self._fly([one for one in some if one.group not in ended], ended)
        return taken

    def _fly(self, some: Sequence["_Share"], ended: set[str]) -> Steps[int]:
        """Put shares of runs in flight; return how many messages that waited. Runs that end are added to `ended`."""
        if not some:
            return 0
        now, *lines = yield [
            ops.server_time(),
            *(own.next_of_key(self._keys, one.group.encode(), one.count) for one in some),
        ]
        flights, groups = list[Flight](), list[str]()
        for one, line in zip(some, lines, strict=True):
            run = []
            for entry in line:
                following = next_in_line(self._keys.logical, entry, now)
                if following is None:
                    break
                run.append(_flight(following, entry[:GROUP_AND_TURN]))
            if len(run) < one.count:
                ended.add(one.group)
            flights += [_flight(one.head), *run] if one.head is not None and run else run
            groups += [one.group] * (len(flights) - len(groups))
        if not flights:
            return 0
        codes, _ = yield own.receive(self._keys, self._consumer, self._lease, flights, self._attempt, self._lease)
        ended.update(group for group, code in zip(groups, codes, strict=True) if code != DONE)  # also by limits
        return sum(code == DONE for flight, code in zip(flights, codes, strict=True) if flight.line)

    def keep(self) -> Steps[int]:
        parts = yield from self._keep_all()
        return sum(map(len, parts))

    def _keep_all(self) -> Steps[list[list[bytes]]]:
        """Renew the lease; return the names of those that are still in flight, in parts."""
        found: list[list[bytes]] = []
        first, seen = 0, _KEPT
        while seen == _KEPT:
            seen, names = yield own.keep_received(self._keys, self._attempt, self._lease, first, _KEPT)
            found.append(names)
            first += len(names)
        return found

    def cuts(self, size: int) -> Steps[list[tuple[int, int]]]:
        count = yield self.count()
        groups: list[bytes] = []
        for first in range(0, count, MAX_BATCH):
            entries = yield own.attempt_entries(self._keys, self._attempt, first, first + MAX_BATCH)
            groups += [entry.partition(b" ")[0][1:] for entry in entries]
        first, found = 0, list[tuple[int, int]]()
        for at, (one, following) in enumerate(zip(groups, [*groups[1:], None], strict=True), 1):
            if one != following and (at - first >= size or following is None):
                found.append((first, at))
                first = at
        return found

    def read(self, first: int, after: int) -> Steps[list[bytes]]:
        entries = yield own.attempt_entries(self._keys, self._attempt, first, after)
        marks, names = zip(*(entry.split(b" ", 1) for entry in entries), strict=True) if entries else ((), ())
        elements = yield from self._elements(names)
        return [_before(element, mark) for element, mark in zip(elements, marks, strict=True) if element is not None]

    def _elements(self, names: Sequence[bytes]) -> Steps[list[bytes | None]]:
        """Return the elements of those in flight by these names."""
        if not names:
            return []
        found = yield [own.records(self._keys, [id_in_name(name) for name in names]), own.records(self._keys, names)]
        return [
            next((one for one in both if one is not None and one.startswith(name)), None)
            for name, *both in zip(names, *found, strict=True)
        ]

    def ack(self) -> Steps[int]:
        return (yield from self._end(lambda some: delete_of_home(self._keys, [(one, "") for one in some], late=False)))

    def release(self) -> Steps[int]:
        def release(some: Sequence[bytes]) -> Steps[str]:
            return ops.one(own.set_visibility(self._keys, [(one, 0.0, "") for one in some], call=self._keys.new_call()))

        return (yield from self._end(release))

    def _end(self, end: Callable[[Sequence[bytes]], Steps[str]]) -> Steps[int]:
        ended = 0
        for names in (yield from self._keep_all()):
            for some in pieces(names, _ENDS):
                codes = yield from end(some)
                ended += codes.count(DONE)
        yield own.forget_attempt(self._keys, self._attempt)
        return ended


@dataclass(frozen=True)
class _Share:
    """A part of a run for one call. `head`: the claimed message before it; None: it goes on behind the call before."""

    head: Message | None
    group: str
    count: int


def _shares(heads: Sequence[Message], waiting: Sequence[int], room: int, longest: int) -> Iterator[list[_Share]]:
    """Yield shares for one call each; messages behind which none waits are left out."""
    some, space = list[_Share](), _MOVES
    for one, count in zip(heads, waiting, strict=True):
        left = min(count, room, longest)
        head: Message | None = one
        room -= left
        while left > 0:
            if space < 2:
                yield some
                some, space = [], _MOVES
            share = min(left, space - (head is not None))
            some.append(_Share(head, one.group, share))
            space -= share + (head is not None)
            left, head = left - share, None
    if some:
        yield some


def _flight(message: Message, line: bytes = b"") -> Flight:
    """Return a message with a mark that says whether it was delivered before, and which key it has."""
    mark = f"{message.redelivered:d}{message.group}".encode()
    return Flight(message.element, message.again(redelivered=True), line, mark)


def _before(element: bytes, mark: bytes) -> bytes:
    if mark.startswith(b"1"):
        return element
    envelope = decode_envelope(element)
    return encode_envelope(msgspec.structs.replace(envelope, redelivered=False))
