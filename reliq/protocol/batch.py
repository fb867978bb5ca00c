"""The messages of one call, all checked before anything is sent."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import NamedTuple, overload

from reliq import ops
from reliq.contract import values
from reliq.contract.keywords import BatchOptions
from reliq.contract.options import SEND_MANY, options_of
from reliq.errors import InvalidMessage, InvalidName
from reliq.model.element import new_ids
from reliq.model.outgoing import (
    Body,
    NewMessage,
    check_option_names,
    elements_of,
    encode_body,
    reference_to,
    too_large,
)
from reliq.ops import StoredBody

_NO_OPTIONS = {option.name: option.default for option in options_of(SEND_MANY)}

_NO_MESSAGE = NewMessage(b"")
_CALL_BYTES = 16 * 1024 * 1024  #: of bodies in one call
#: What it costs when `enqueue` takes a message without options, with some, or in a call with dedup keys; pushed: 1.
_ENQUEUED, _PLACED, _LOOKED_UP = 4, 10, 16


class RawBatch(Sequence[NewMessage]):
    """Messages without options: bodies and ids. A NewMessage is created only for those that are accessed."""

    def __init__(self, bodies: list[bytes], ids: list[str], references: Sequence[bytes] = ()) -> None:
        """Set the bodies, their ids and, if some bodies are stored apart, the references to them."""
        self._bodies = bodies
        self._references = references
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> NewMessage: ...
    @overload
    def __getitem__(self, place: slice) -> "RawBatch": ...
    def __getitem__(self, place: int | slice) -> "NewMessage | RawBatch":
        if isinstance(place, slice):
            return RawBatch(self._bodies[place], self.ids[place], self._references[place])
        return NewMessage(self._bodies[place], id=self.ids[place])

    def elements(self, now: int) -> list[bytes]:
        return elements_of(self.ids, self._bodies, self._references, now)

    def apart(self) -> list[StoredBody]:
        pairs = zip(self._references, self._bodies, strict=True) if self._references else ()
        return [StoredBody(reference, body) for reference, body in pairs if reference]

    @property
    def sizes(self) -> list[int]:
        """The bytes of each body."""
        return list(map(len, self._bodies))


def encoded(message: NewMessage, now: int, bodies: list[StoredBody], routing_key: str = "") -> bytes:
    """Return the element of a push of a message; add its body to `bodies` if it is apart.

    Each push has a reference of its own: a message that is sent twice would lose the body of both with one of them.
    """
    reference = reference_to(message.body)
    if reference:
        bodies.append(StoredBody(reference, message.body))
    return message.element(now, routing_key, reference)


class Route(NamedTuple):
    """By what a home was chosen for the messages of a call."""

    version: int = 0  #: of the layout by which they belong there; 0: the queue has one home
    free: bool = False  #: whether any other home may take them
    waiting: Collection[str] = ()  #: ids of messages that wait there: the former home of their key has others of it


DIRECT = Route()


@dataclass(slots=True)
class Call:
    """The messages of one call of a script, encoded once, whichever script takes them."""

    messages: Sequence[NewMessage]
    ids: list[str]
    plain: list[bytes]  #: elements of the messages without options
    placed: Sequence[NewMessage]  #: the others: the script `enqueue` decides where each goes
    entries: list[ops.Entry]  #: of `placed`
    bodies: list[StoredBody]
    batches: Mapping[str, int]  #: how many of the plain ones are of each batch

    @property
    def ordered(self) -> bool:
        """Whether its first message has an ordering key."""
        return bool(self.placed and self.placed[0].key)

    @property
    def keyed(self) -> bool:
        """Whether all have keys and no other option: all of them ordering keys or none, and deduplication keys too."""
        if self.plain or not self.placed:
            return False
        first = self.placed[0]
        kind = bool(first.key), first.dedup_key is not None
        return any(kind) and all(
            one.only_keyed and (bool(one.key), one.dedup_key is not None) == kind for one in self.placed
        )

    @classmethod
    def of(cls, messages: Sequence[NewMessage], now: int, route: Route = DIRECT) -> "Call":
        """Encode the messages as sent at `now`."""
        if type(messages) is RawBatch:
            return cls(messages, messages.ids, messages.elements(now), (), [], messages.apart(), ops.NO_BATCHES)
        placed, others = _parted(messages)
        bodies: list[StoredBody] = []
        entries = [
            ops.Entry(
                one.id, encoded(one, now, bodies), one.debounce or one.delay, one.dedup_key, one.window, one.digest,
                one.replace, one.id in route.waiting, one.at_most,
            )
            for one in placed
        ]  # fmt: skip
        ids = [message.id for message in messages]
        plain = [encoded(one, now, bodies) for one in others]
        batched = [one.batch for one in others if one.batch]
        batches = Counter(batched) if batched else ops.NO_BATCHES
        return cls(messages, ids, plain, placed, entries, bodies, batches)

    def at(self, positions: Collection[int]) -> list[str]:
        """Return the ids of the messages at these positions among `placed`; -1 stands for the others."""
        ids = [self.placed[position].id for position in positions if position >= 0]
        if -1 in positions:
            placed = {one.id for one in self.placed}
            ids += [one for one in self.ids if one not in placed]
        return ids

    def enqueued(self, answer: ops.Enqueued) -> list[str]:
        """Note the duplicates that the script has found; return the ids, for a duplicate that of the first message."""
        if not answer.first_ids:
            return self.ids
        firsts = {}
        for position, first in answer.first_ids.items():
            duplicate = self.placed[position]
            duplicate.duplicate, duplicate.conflict = True, position in answer.conflicts
            duplicate.first_id = firsts[id(duplicate)] = first
        return [firsts.get(id(message), message.id) for message in self.messages]


def _parted(messages: Sequence[NewMessage]) -> tuple[Sequence[NewMessage], Sequence[NewMessage]]:
    """Return the messages that a script places, and those that it does not.

    With a deduplication key it places all: the order within a call is kept, and one key must be looked up in it.
    """
    placed = [message for message in messages if message.placed]
    if not placed:
        return placed, messages
    if any(message.dedup_key is not None for message in placed):
        return messages, []
    return placed, [message for message in messages if not message.placed]


def calls_of(messages: Sequence[NewMessage], pushed: bool) -> Iterator[Sequence[NewMessage]]:
    """Yield the messages of one call after another: up to 1,000 are one, with 16 MiB of bodies or one larger body.

    Redis closes a connection with more than 1 GiB of unread arguments, and serves no other client during a call: of
    more messages, a call has as many as take it one to two milliseconds. `pushed`: those without options go by `push`.
    """
    if len(messages) == 1:
        yield messages
        return
    sizes = messages.sizes if isinstance(messages, RawBatch) else [len(message.body) for message in messages]
    costs = _costs(messages, pushed) if len(messages) > values.MAX_BATCH else repeat(1, len(messages))
    spent = [0, *accumulate(costs)]
    start = 0
    while start < len(messages):
        end = bisect_right(spent, spent[start] + values.MAX_BATCH) - 1
        while sum(sizes[start:end]) > _CALL_BYTES and end - start > 1:
            end = start + (end - start) // 2
        yield messages[start:end]
        start = end


def _costs(messages: Sequence[NewMessage], pushed: bool) -> Iterable[int]:
    """Return what each message costs Redis, in units of the cheapest."""
    plain = 1 if pushed else _ENQUEUED
    if isinstance(messages, RawBatch):
        return repeat(plain, len(messages))
    if any(one.dedup_key is not None for one in messages):  # all of them are placed one by one
        return repeat(_LOOKED_UP, len(messages))
    return [_PLACED if one.placed else _ENQUEUED if one.batch else plain for one in messages]


def checked(message: NewMessage, max_body: int) -> NewMessage:
    """Return the message if its body is not too large; raises InvalidMessage."""
    if len(message.body) > max_body:
        raise InvalidMessage(too_large(len(message.body), max_body))
    return message


def checked_many(
    bodies: Iterable[Body | NewMessage], options: BatchOptions, max_body: int, *, plain: bool
) -> Sequence[NewMessage]:
    """Return the messages of a call; raises InvalidMessage, which names the first invalid one.

    `plain`: whether nothing is changed in them later: without any option they are a RawBatch then.
    """
    check_option_names(options, BatchOptions)
    if type(bodies) is not list and (
        isinstance(bodies, (str, bytes, bytearray, dict)) or not isinstance(bodies, Iterable)
    ):
        raise InvalidMessage(f"send_many takes a list of bodies, not one {type(bodies).__name__}: use send")
    bodies = list(bodies)
    made_before = bool(bodies) and not [one for one in bodies if not isinstance(one, NewMessage)]
    ids = [""] * len(bodies) if made_before else new_ids(len(bodies))
    plain = plain and not made_before and (not options or {**_NO_OPTIONS, **options} == _NO_OPTIONS)
    if plain and (raw := _raw_batch(bodies, ids, max_body)) is not None:
        return raw
    alike = _NO_MESSAGE if made_before and not options else NewMessage(b"", **options)
    made: list[NewMessage] = []
    try:
        for body, identity in zip(bodies, ids, strict=True):
            message = body if isinstance(body, NewMessage) else alike.like(body, identity)
            made.append(checked(message, max_body))
    except (InvalidMessage, InvalidName) as error:
        index = len(made)
        raise InvalidMessage(f"message {index} of the call: {error}; nothing was enqueued", index) from None
    return made


def _raw_batch(bodies: Sequence[Body | NewMessage], ids: list[str], max_body: int) -> RawBatch | None:
    """Return the batch, or None if an item is not a valid bare body."""
    try:
        encoded = [encode_body(body) for body in bodies]  # type: ignore[arg-type]
    except InvalidMessage:
        return None
    largest = max(map(len, encoded), default=0)
    if largest > max_body:
        return None
    return RawBatch(encoded, ids, [*map(reference_to, encoded)] if largest > values.INLINE_BODY_BYTES else ())
