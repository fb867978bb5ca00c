"""The steps that append to the output of a message, and read it while its handler runs and afterwards."""

import itertools
import secrets
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from reliq import ops
from reliq.contract.values import Duration, check_id, seconds
from reliq.errors import InvalidMessage
from reliq.features.output import ops as own
from reliq.features.output.model import MAX_CHUNKS, MAX_OUTPUT_BYTES, Chunk, Emit, check_after, stored_chunk
from reliq.features.output.ops import Emitted
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Steps, Together
from reliq.ops.coming import Coming
from reliq.ops.held import Hold, not_held
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.features import Act, Carried
from reliq.protocol.holds import of_handler, of_lease
from reliq.protocol.homes import QueueHomes, checked

PAGE = 100  #: chunks that one call reads
LOOK_EVERY = 0.5  #: seconds between two looks whether the message has ended, while no chunk comes
_BLIND = 0.2  #: seconds between two looks at all homes for a message that has emitted nothing


def append(hold: Hold, token: str, chunk: bytes) -> Steps[None]:
    """Append a chunk to the output of a message; raises LeaseLost, InvalidMessage. `token`: of the call."""
    status = yield own.emit(hold, token, chunk)
    if status == "lost":
        raise not_held(hold.message)
    if status == "full":
        raise InvalidMessage(
            f"message {hold.message.id} of {hold.keys.logical!r} has emitted as much as it may: {MAX_CHUNKS:,} chunks, "
            f"{MAX_OUTPUT_BYTES:,} bytes; emit larger chunks, or store them elsewhere and emit a reference"
        )


def _emit(consumer: ConsumerSteps, message: Message, asked: Emit) -> Any:
    """Do what a handler asks for; an async handler gets what it is to await."""
    hold = of_handler(consumer, message)
    return consumer.run_report(append(hold, next_token(consumer, message), asked.chunk))


def next_token(consumer: ConsumerSteps, message: Message) -> str:
    """Return the token of the next call of a handler: branches of it may call at the same time."""
    life = consumer.lives.of(message)
    if life.calls is None:
        handler = secrets.token_hex(8)
        life.calls = (f"#{handler}.{number}" for number in itertools.count(1))
    return next(life.calls)


EMITS = Act({Emit: "emit"}, _emit)


def emit_leased(keys: QueueKeys, lease: str, identity: str, value: object, token: str) -> Steps[None]:
    """Append a chunk to the output of a message of a lease over HTTP; raises LeaseLost, InvalidMessage."""
    chunk = stored_chunk(value)
    hold = yield from of_lease(keys, lease, identity)
    yield from append(hold, token or secrets.token_hex(8), chunk)


class Reading:
    """One reader of the output of a message, from one chunk on to the next."""

    def __init__(
        self, homes: QueueHomes, identity: str, after: str = "", *, follow: bool = True, wait: Duration = 0
    ) -> None:
        """`follow`: until the message has ended. `wait`: how long to wait for the first chunk."""
        self._homes = homes
        self._id = check_id(identity)
        self.after = check_after(after)
        self._follow = follow
        self._wait = seconds(wait, "wait")
        self._until: float | None = None
        self._read: deque[Chunk] = deque()
        self.ended = False

    def next(self) -> Steps[Chunk | None]:
        """Return the next chunk; None: that was all."""
        while not self._read and not self.ended:
            self._read.extend((yield from self.some()))
        return self._read.popleft() if self._read else None

    def some(self, within: float = LOOK_EVERY) -> Steps[list[Chunk]]:
        """Return the next chunks; none: none came within that time, or that was all (`ended`)."""
        keys, emitted = yield from self._look()
        if emitted.entries:
            return self._noted(emitted.chunks)
        self.ended = not self._goes_on(emitted)
        if self.ended or not within:
            return []
        if keys is None:
            yield ops.Sleep(_BLIND)
            return []
        return self._noted((yield own.awaited(keys, self._id, self.after, PAGE, within)))

    def page(self) -> Steps[tuple[list[Chunk], bool]]:
        """Return the next chunks that are there, and whether more may come, or is there."""
        _, emitted = yield from self._look()
        return self._noted(emitted.chunks), emitted.open or len(emitted.entries) == PAGE

    def latest(self, most: int) -> Steps[list[Chunk]]:
        """Return the latest chunks, oldest first."""
        keys, _ = yield from self._look()
        return [] if keys is None else (yield own.latest(keys, self._id, most))

    def _look(self) -> Steps[tuple[QueueKeys | None, Emitted]]:
        """Read from the home that has output of the message; None: none of several has."""
        every = [one.keys for one in (yield from self._homes.every())]
        if len(every) == 1:
            return every[0], (yield own.emitted(every[0], self._id, self.after, PAGE))
        answers = yield Together([ops.one(own.emitted(one, self._id, self.after, PAGE)) for one in every])
        found = [(keys, one) for keys, one in zip(every, answers, strict=True) if isinstance(one, Emitted)]
        there = [one for one in found if one[1].head] or [one for one in found if one[1].exists]
        if not there:
            checked(answers)
        return there[0] if there else (None, Emitted("", exists=False, entries=()))

    def _goes_on(self, emitted: Emitted) -> bool:
        """Whether more may come."""
        if not self._follow or emitted.head or emitted.exists or self.after:
            return self._follow and emitted.open
        if self._until is None:
            self._until = time.monotonic() + self._wait
        return time.monotonic() < self._until

    def _noted(self, chunks: list[Chunk]) -> list[Chunk]:
        if chunks:
            self.after = chunks[-1].id
        return chunks


def _carry(keys: QueueKeys, home: QueueKeys, coming: Sequence[Coming]) -> Steps[None]:
    """Copy the output of messages that are taken to another home."""
    parts = yield [own.emitted(keys, one.id, "", PAGE) for one in coming]
    for one, emitted in zip(coming, parts, strict=True):
        if not emitted.head:
            continue
        first, part = emitted.chunks[0].id if emitted.entries else "", emitted
        yield own.put_output(home, one, first, part)
        while len(part.entries) == PAGE:
            part = yield own.emitted(keys, one.id, part.chunks[-1].id, PAGE)
            yield own.put_output(home, one, first, part)


CARRIED = Carried(_carry)
