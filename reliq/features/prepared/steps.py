"""The steps of prepared messages: prepare, commit, roll back, check back."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from reliq import ops
from reliq.contract import values
from reliq.contract.values import Duration
from reliq.errors import InvalidMessage, PreparedClosed, QueueFull, ReliqError
from reliq.features.prepared import ops as own
from reliq.features.prepared.ops import Decision
from reliq.model.element import Undecodable, is_made_here
from reliq.model.found import Place
from reliq.model.keys import QueueKeys, digest_in
from reliq.model.message import Message, undecodable_letter
from reliq.model.outgoing import NewMessage
from reliq.ops import Steps, Together, at_most
from reliq.protocol.batch import encoded
from reliq.protocol.bodies import read_bodies
from reliq.protocol.dedup import first_elsewhere
from reliq.protocol.durability import ANY, MEMORY, Terms, confirm, durability
from reliq.protocol.features import Hidden
from reliq.protocol.home import Moved, at_limit, count_rejected
from reliq.protocol.homes import LayoutWait, QueueHomes
from reliq.protocol.producer import ProducerPool, ProducerSession, enqueue_with_bodies
from reliq.protocol.sending import around_send, ready

T = TypeVar("T")

CHECK_AFTER = 60.0  #: seconds until the first check-back, and between two of them
_CHECK_SOONEST = 0.1
CHECKS = 15  #: check-backs without an answer, after which the message becomes a dead letter
REMEMBERED = 600.0  #: seconds for which a decision is remembered
_PAGE = 100


class PreparedSteps:
    """The operations on the prepared messages of one home of a queue, as steps."""

    def __init__(self, keys: QueueKeys, pool: ProducerPool) -> None:
        self._keys = keys
        self._pool = pool

    def prepare(self, message: NewMessage, check_after: float, checks: int, terms: Terms) -> Steps[None]:
        """Raises QueueFull, InvalidMessage where its id is in use, and Moved where the home takes none."""
        keys, bodies = self._keys, list[ops.StoredBody]()
        entry = ops.Entry(
            message.id, encoded(message, self._pool.clock.now(), bodies), message.delay, message.dedup_key,
            message.window, message.digest,
        )  # fmt: skip
        with self._pool.session([entry.id]) as session:
            prepare = own.prepare(keys, entry, check_after, checks, session.producer, session.sequence)
            introduction: list[ops.Op[Any]] = [ops.announce(keys.queue), ops.introduction(keys)]
            (_, known), answer = yield from enqueue_with_bodies(
                [keys], bodies, session, at_most(prepare, terms.retries), introduction
            )
            self._pool.clock.note(answer.now, session.called_at)
            if answer.status == "moved":
                raise Moved(keys.queue, [entry.id], [])
            if answer.status == "full":
                yield from count_rejected((keys, 1))
                holds = at_limit(keys, answer)
                raise QueueFull(f"{holds}, besides prepared ones, which count, too; nothing was prepared")
            if answer.status == "id_in_use":
                raise _in_use(entry.id)
            yield from self._confirm(terms, known, session, "prepared")

    def commit(self, identity: str, terms: Terms = ANY) -> Steps[str]:
        """Commit a message; return its id or, for a duplicate, the id of the first message. Raises PreparedClosed."""
        with self._pool.session([identity]) as session:
            known, answer = yield [
                ops.introduction(self._keys),
                self._decision(identity, "committed", terms, session.producer, session.sequence),
            ]
            if answer.decision == "key":
                (elsewhere,) = (yield from first_elsewhere(self._keys, [(digest_in(answer.id), answer.group)])) or [b""]
                answer = yield self._decision(
                    identity, "committed", terms, session.producer, session.sequence, answer.id, elsewhere
                )
            _check(self._keys.logical, identity, "committed", answer.decision)
            yield from self._confirm(terms, known, session, "committed")
            first: str = answer.id
            return first

    def rollback(self, identity: str, terms: Terms = ANY) -> Steps[None]:
        """Roll back a message; raises PreparedClosed."""
        answer = yield self._decision(identity, "rolled_back", terms)
        _check(self._keys.logical, identity, "rolled_back", answer.decision)

    def _decision(
        self,
        identity: str,
        decision: Decision,
        terms: Terms,
        producer: str = "",
        sequence: int = 0,
        dedup: str = "",
        elsewhere: bytes = b"",
    ) -> ops.Op[own.Decided]:
        decide = own.decide(self._keys, identity, decision, REMEMBERED, producer, sequence, dedup, elsewhere)
        return at_most(decide, terms.retries)

    def _confirm(self, terms: Terms, known: ops.Introduction, session: ProducerSession, done: str) -> Steps[None]:
        sure = terms.wanted or durability(known.durability or MEMORY.name)
        if sure.waits:
            yield from confirm(self._keys, sure, session.producer, session.sequence, done)

    def purge(self) -> Steps[int]:
        """Remove all prepared messages; return how many."""
        removed = 0
        while ids := (yield own.prepared_ids(self._keys, _PAGE)):
            answers = yield [own.decide(self._keys, identity, "purged", REMEMBERED) for identity in ids]
            removed += sum(answer.decision == "purged" for answer in answers)
            lost = [identity for identity, answer in zip(ids, answers, strict=True) if answer.decision == "unknown"]
            if lost:
                yield own.forget_prepared(self._keys, lost)
        return removed

    def question(self) -> Steps[Message | None]:
        """Take one of the messages that await a check-back; None without one."""
        while (identity := (yield own.question(self._keys))) is not None:
            element = yield own.prepared_element(self._keys, identity)
            if element is None:  # decided meanwhile
                continue
            with contextlib.suppress(Undecodable):  # it cannot be decided: it dies after too many check-backs
                message = Message.decode(self._keys.logical, element)
                yield from read_bodies(self._keys, [message])
                if message.body_is_read:  # else it was decided meanwhile
                    return message
        return None


class PreparedQueue:
    """The operations on the prepared messages of a queue, as steps."""

    def __init__(self, homes: QueueHomes, pool: ProducerPool) -> None:
        self._homes = homes
        self._pool = pool

    def prepare(self, message: NewMessage, timeout: Duration, checks: int, terms: Terms) -> Steps[None]:
        """Prepare the message in the home of its key, else in that of its id.

        Raises QueueFull, and InvalidMessage where its id is in use.
        """
        check_after = values.seconds(timeout, "timeout", shortest=_CHECK_SOONEST)
        values.whole(checks, "checks", 0, 1000)
        if message.replace:
            raise InvalidMessage(
                "a prepared message cannot replace another one: replace is True; send it, or leave it out"
            )
        yield from ready(self._pool, terms, [message])
        steps = self._prepare(message, check_after, checks, terms)
        yield from around_send(self._pool, self._homes.queue, [message], steps, prepared=True)

    def _prepare(self, message: NewMessage, check_after: float, checks: int, terms: Terms) -> Steps[list[str]]:
        layout_wait = LayoutWait(self._homes)
        while True:
            keys = yield from self._homes.home_of(message)
            yield from self._check_unused(message.id, keys)
            try:
                yield from PreparedSteps(keys, self._pool).prepare(message, check_after, checks, terms)
                return [message.id]
            except Moved:  # by a layout that was read a while ago
                yield from layout_wait.look_again(1)

    def _check_unused(self, identity: str, home: QueueKeys) -> Steps[None]:
        """Raise InvalidMessage if another home, of another key, has prepared a message with this id.

        As far as homes answer, and only for ids that a user has chosen; two calls at the same time both succeed.
        """
        others = [one.keys for one in (yield from self._homes.every()) if one.keys.queue != home.queue]
        if not others or is_made_here(identity):
            return
        found = yield Together([ops.one(own.prepared_element(keys, identity)) for keys in others])
        if any(isinstance(one, bytes) for one in found):
            raise _in_use(identity)

    def commit(self, identity: str, terms: Terms = ANY) -> Steps[str]:
        """Commit a message; return its id or, for a duplicate, the id of the first message. Raises PreparedClosed."""
        first = yield from self._decide(identity, lambda steps: steps.commit(identity, terms))
        if first == identity:
            for tell in self._pool.on_commit:
                tell(self._homes.queue, identity)
        return first

    def rollback(self, identity: str, terms: Terms = ANY) -> Steps[None]:
        """Roll back a message; raises PreparedClosed."""
        yield from self._decide(identity, lambda steps: steps.rollback(identity, terms))

    def question(self) -> Steps[Message | None]:
        """Take one of the messages that await a check-back; None without one."""
        for home in (yield from self._homes.every()):
            message = yield from PreparedSteps(home.keys, self._pool).question()
            if message is not None:
                return message
        return None

    def _decide(self, identity: str, decide: Callable[[PreparedSteps], Steps[T]]) -> Steps[T]:
        """Decide about a message in the home that knows it: mostly that of its id."""
        every = yield from self._homes.every(complete=True)
        of_id = self._homes.home_of_id(identity)
        *others, last = sorted(every, key=lambda home: home.keys.queue != of_id)
        for home in others:
            try:
                return (yield from decide(PreparedSteps(home.keys, self._pool)))
            except PreparedClosed as closed:
                if closed.outcome != "unknown":
                    raise
        return (yield from decide(PreparedSteps(last.keys, self._pool)))


def _in_use(identity: str) -> InvalidMessage:
    return InvalidMessage(f"message {identity} is prepared already: queue.prepared(id) is its handle")


def _check(queue: str, identity: str, wanted: Decision, found: str) -> None:
    if found == wanted:
        return
    said = {
        "committed": "is committed, it cannot be rolled back any more",
        "rolled_back": "is rolled back, it cannot be committed any more",
        "purged": "was removed with everything else that was in the queue",
        "undecided": "was not decided in its time: it is a dead letter (undecided); redrive it, or purge it",
        "unknown": f"is not known: never prepared, deleted with its queue, or decided more than "
        f"{REMEMBERED / 60:g} minutes ago",
    }
    raise PreparedClosed(f"prepared message {identity} of queue {queue!r} {said[found]}", found)


def ask_overdue(keys: QueueKeys, overdue: list[bytes]) -> Steps[tuple[int, int]]:
    """Put a question about each overdue message, or make it a dead letter; return how many of each. For monitors."""
    ids = [one.decode() for one in overdue]
    records = yield [own.check_backs(keys, identity) for identity in ids]
    answers = yield [
        own.ask(keys, identity, _letter(keys.queue, record.element) if record.asks >= record.most else b"", REMEMBERED)
        for identity, record in zip(ids, records, strict=True)
    ]
    return answers.count("asked"), answers.count("dead")


def _letter(queue: str, element: bytes | None) -> bytes:
    if element is None:  # decided meanwhile
        return b""
    try:
        return Message.decode(queue, element).buried("undecided")
    except Undecodable:
        return undecodable_letter(element)[1]


def overdue(keys: QueueKeys, now: int) -> ops.Op[list[bytes]]:
    """Return the op that reads the overdue messages."""
    return own.prepared_overdue(keys, now, _PAGE)


def not_rolled_back(identity: str, failure: ReliqError) -> str:
    return f"prepared message {identity} could not be rolled back, its check-back decides: {failure}"


def _purge(keys: QueueKeys) -> Steps[int]:
    return (yield from PreparedSteps(keys, ProducerPool()).purge())


def _withdraw(keys: QueueKeys, identity: str, call: str) -> Steps[bool]:
    """Roll back a message that its producer has not decided about."""
    if (yield own.prepared_element(keys, identity)) is None:
        return False
    answer = yield own.decide(keys, identity, "rolled_back", REMEMBERED)
    return bool(answer.decision == "rolled_back")


UNDECIDED = Hidden(Place.PREPARED, own.prepared_element, _withdraw, _purge)
