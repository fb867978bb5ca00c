"""The steps that send to one home of a queue; most queues have only one."""

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Protocol

from reliq import ops
from reliq.errors import OutcomeUnknown, QueueFull, RedisUnavailable, ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.ops import Steps, at_most
from reliq.ops.schema import Counter
from reliq.protocol.batch import DIRECT, Call, Route, calls_of
from reliq.protocol.durability import ANY, MEMORY, Terms, confirm, durability
from reliq.protocol.producer import ProducerPool, ProducerSession, enqueue_with_bodies

ANNOUNCE_EVERY = 60.0  #: seconds; a producer then announces the queue again, in case it was deleted


class Moved(ReliqError):
    """Messages belong to another home; nothing of the call was enqueued."""

    def __init__(self, queue: str, ids: Collection[str], held: Collection[str]) -> None:
        super().__init__(f"{len(ids)} messages belong to another home than {queue!r}")
        self.ids = frozenset(ids)  #: of these messages
        self.held = frozenset(held)  #: of those whose ordering key still has messages in this home


class AtLimit(QueueFull):
    """A home is at its share of `max_length` or `max_bytes`; nothing of the call was enqueued or counted."""

    final = False  #: whether the call cannot be carried out later, by a repetition that is still on its way


class Home:
    """One home, as its producers know it."""

    def __init__(self, name: str, pool: ProducerPool) -> None:
        self.keys = QueueKeys(name)
        self.durability = MEMORY  #: the default durability, as last read
        self.layout: str | None = None  #: in the first home: those of the queue, as last read
        self._announced_at = float("-inf")
        self._limited = False  #: whether `enqueue` has to decide, because the queue has a limit, as last seen
        self._pool = pool

    @property
    def unknown(self) -> bool:
        """Whether this producer has not announced the queue yet, or not recently."""
        return time.monotonic() - self._announced_at > ANNOUNCE_EVERY

    def introduction(self) -> list[ops.Op[Any]]:
        """Return the ops before the first message: announce the queue's name, and read what a producer must know."""
        return [ops.announce(self.keys.queue), ops.introduction(self.keys)]

    def introduced(self, announced: int | None, known: ops.Introduction) -> None:
        """Note the answers to these ops; the next send announces the queue again if this one could not."""
        self.durability = durability(known.durability) if known.durability else MEMORY
        self.layout = known.layout
        self._limited = False  # the next send finds out
        if announced is not None:
            self._announced_at = time.monotonic()

    def send(self, messages: Sequence[NewMessage], terms: Terms = ANY, route: Route = DIRECT) -> Steps[list[str]]:
        """Enqueue messages, up to 1,000 in one step; return the ids, for a duplicate that of the first message.

        Raises Moved, AtLimit and OutcomeUnknown; `sent` has the ids of the calls before.
        """
        ids: list[str] = []
        for batch in calls_of(messages, pushed=not self._limited):
            try:
                ids += yield from self._call(batch, terms, route)
            except ReliqError as error:
                error.enqueued = dict(enumerate(ids))
                raise
        return ids

    def _call(self, batch: Sequence[NewMessage], terms: Terms, route: Route) -> Steps[list[str]]:
        """Encode a batch, call the script that takes it, and read the outcome."""
        now = self._pool.clock.now()
        call = Call.of(batch, now, route)
        with self._pool.session(call.ids) as session:
            pushed = False
            if not (self._limited or self.unknown):
                pushed = yield from self._push(call, session, now, terms.retries, route)
            if not pushed:
                session.ids = yield from self._enqueue(call, session, terms.retries, route)
            sure = terms.wanted or self.durability
            if sure.waits:
                yield from confirm(self.keys, sure, session.producer, session.sequence)
            return session.ids

    def _push(self, call: Call, session: ProducerSession, now: int, retries: int | None, route: Route) -> Steps[bool]:
        """Enqueue by one of the scripts for queues without limits; False: that is not possible."""
        request: ops.Op[Any]
        if not (call.entries or call.batches):
            request = ops.push(self.keys, call.plain, session.producer, session.sequence, now, bool(call.bodies))
        elif call.keyed and route == DIRECT:
            request = ops.push_keyed(self.keys, call.entries, session.producer, session.sequence, now, call.ordered)
        else:
            return False
        request = at_most(request, retries)
        if call.bodies:
            _, pushed = yield from enqueue_with_bodies([self.keys], call.bodies, session, request)
        else:
            pushed = yield request
        if isinstance(pushed, ops.Enqueued):
            session.ids = call.enqueued(pushed)
        self._limited = not pushed
        return bool(pushed)

    def _enqueue(self, call: Call, session: ProducerSession, retries: int | None, route: Route) -> Steps[list[str]]:
        """Enqueue by the script that decides where each message goes; raises Moved and AtLimit."""
        request = ops.enqueue(
            self.keys, call.plain, call.entries, session.producer, session.sequence, call.batches, route.version
        )
        introduction = self.introduction() if self.unknown else []
        known, answer = yield from enqueue_with_bodies(
            [self.keys], call.bodies, session, at_most(request, retries), introduction
        )
        if introduction:
            self.introduced(*known)
        self._pool.clock.note(answer.now, session.called_at)
        if answer.status == "moved":
            raise Moved(self.keys.queue, call.at(answer.moved), call.at(answer.held))
        if answer.status == "full":
            full = AtLimit(f"{at_limit(self.keys, answer)}; none of the {len(call.ids)} was enqueued")
            full.final = route.free and (yield from self._ends(session))
            raise full
        return call.enqueued(answer)

    def _ends(self, session: ProducerSession) -> Steps[bool]:
        """Use the next number of a producer: a repetition of its latest call that is on its way will not count.

        Return whether that is certain.
        """
        session.sequence += 1
        try:
            answer: ops.Enqueued = yield ops.enqueue(self.keys, (), (), session.producer, session.sequence)
        except ReliqError:
            return False
        return answer.status != "full"


def count_rejected(*refused: tuple[QueueKeys, int]) -> Steps[None]:
    """Count messages that homes have refused; without an answer they may not be counted."""
    with suppress(QueueFull, RedisUnavailable, OutcomeUnknown):  # the caller is told of the refusal
        yield [ops.count(keys, Counter.REJECTED, messages, once=True) for keys, messages in refused]


class Refusal(Protocol):
    """The answer of a script that adds messages: how full the queue is."""

    @property
    def length(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    @property
    def unit(self) -> str: ...


def at_limit(keys: QueueKeys, answer: Refusal) -> str:
    """Return how full a queue is that has refused messages."""
    return f"queue {keys.logical!r} holds {answer.length} of at most {answer.max_length} {answer.unit}"
