"""One message on its way to every queue that is bound."""

from collections.abc import Sequence
from typing import Any

from reliq import ops
from reliq.errors import OutcomeUnknown, QueueFull, ReliqError
from reliq.features.topics import ops as own
from reliq.features.topics.destinations import Destination, Group, Offer
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.ops import Steps, Together
from reliq.ops.topology import slot_of
from reliq.protocol.batch import encoded
from reliq.protocol.durability import Terms, confirm
from reliq.protocol.home import Home, at_limit, count_rejected
from reliq.protocol.homes import QueueHomes
from reliq.protocol.producer import ProducerPool, ProducerSession, enqueue_with_bodies
from reliq.runtime.pieces import grouped, pieces

_Op = ops.Op[own.Published]

_AT_ONCE = 16  #: groups that are asked at the same time, each over a connection of its own


class Publication:
    """A message, on its way to these queues."""

    def __init__(
        self, pool: ProducerPool, routing_key: str, message: NewMessage, queues: Sequence[QueueHomes], terms: Terms
    ) -> None:
        self._pool = pool
        self._routing_key = routing_key
        self._message = message
        self._destinations = [Destination(homes, message) for homes in queues]
        self._terms = terms
        self._reached: list[str] = []  #: queues that have the message
        self._full: list[tuple[QueueKeys, own.Published]] = []
        self._error: ReliqError | None = None

    def publish(self) -> Steps[dict[str, str]]:
        """Enqueue the message in every queue, in one atomic step per server; return its id by queue.

        Raises QueueFull, whose `reached` has the queues that got it, and OutcomeUnknown if one got it and another did
        not or may not; any other error means that none did.
        """
        identity, left = self._message.id, self._destinations
        try:
            while left:  # until the homes of the message's key take it, where these change
                offers: list[Offer] = []
                for one in left:
                    offers += [Offer(one, (yield from one.choose_home()))]
                with self._pool.session([identity]) as session:
                    left = yield from self._offer(session, offers)
        except QueueFull as full:
            full.reached = dict.fromkeys(self._reached, identity)
            if self._reached or not full.of_redis:
                full.args = (f"{full}; {self._others}",)
            raise
        except OutcomeUnknown:
            raise
        except ReliqError as error:
            if not self._reached:
                raise
            raise OutcomeUnknown(f"{error}; {self._others}", (identity,)) from None
        return dict.fromkeys((one.queue for one in self._destinations), identity)

    @property
    def _others(self) -> str:
        got = f"only {', '.join(self._reached)} got it"
        return got if self._reached else "nothing was enqueued in any bound queue"

    def _offer(self, session: ProducerSession, offers: Sequence[Offer]) -> Steps[list[Destination]]:
        """Offer the message to these homes; return the queues that it is to be offered to once more."""
        groups = self._groups(offers)
        bodies: list[ops.StoredBody] = []
        element = encoded(self._message, self._pool.clock.now(), bodies, self._routing_key)
        publish = [self._op(group, element, session) for group in groups]
        if len(groups) > 1 and not bodies and not any(one.to.free for one in offers):
            answers = yield from self._together(groups, publish)
        else:
            answers = yield from self._each(groups, publish, bodies, session)
        answered = list(zip(groups, answers, strict=True))
        left = [one for group, answer in answered for one in self._noted(group, answer)]
        given = [(group, answer) for group, answer in answered if isinstance(answer, own.Published)]
        if given:
            self._pool.clock.note(given[0][1].now, session.called_at)
        yield from self._raise()
        yield from self._confirm([group for group, answer in given if answer.status != "moved"], session, offers)
        return left

    def _confirm(self, groups: Sequence[Group], session: ProducerSession, offers: Sequence[Offer]) -> Steps[None]:
        """Wait until these groups have the message as surely as asked; by default as the surest queue asks."""
        durabilities = (one.home.durability for one in offers)
        sure = self._terms.wanted or max(durabilities, key=lambda one: (one.replicas, one.disks))
        if sure.waits:
            for group in groups:
                yield from confirm(group[0].keys, sure, session.producer, session.sequence)

    def _groups(self, offers: Sequence[Offer]) -> Sequence[Group]:
        """Group the homes that one atomic step can reach: all of them or, on a cluster, those of one hash slot."""
        if not self._pool.sharded:
            return [offers]
        return [*grouped((slot_of(one.keys.messages), one) for one in offers).values()]

    def _op(self, group: Group, element: bytes, session: ProducerSession) -> _Op:
        versions = {place: one.to.homes.layout.version for place, one in enumerate(group)}
        homes = {place: (version, group[place].to.waits) for place, version in versions.items() if version}
        publish = own.publish(
            [one.keys for one in group], self._message.id, element, self._message.delay, session.producer,
            session.sequence, homes,
        )  # fmt: skip
        return ops.at_most(publish, self._terms.retries)

    def _together(self, groups: Sequence[Group], publish: Sequence[_Op]) -> Steps[list[Any]]:
        """Publish in all groups with one request, whose error does not say which of them has failed."""
        strangers = [one.home for group in groups for one in group if one.home.unknown]
        known, answers = yield from ops.together(_introductions(strangers), publish)
        _note_introduced(strangers, known)
        return answers

    def _each(
        self,
        groups: Sequence[Group],
        publish: Sequence[_Op],
        bodies: Sequence[ops.StoredBody],
        session: ProducerSession,
    ) -> Steps[list[Any]]:
        """Publish in each group with a request of its own; return answers and errors, None for those not asked.

        After an error no others are asked.
        """
        answers: list[Any] = []
        for some in pieces([*zip(groups, publish, strict=True)], _AT_ONCE):
            answers += yield from _outcomes([_publish(group, one, bodies, session) for group, one in some])
            if any(isinstance(one, ReliqError) for one in answers):
                break
        return answers + [None] * (len(groups) - len(answers))

    def _noted(self, group: Group, answer: Any) -> list[Destination]:
        """Note the answer of a group; return which of its queues the message is to be offered to once more."""
        if answer is None:
            return [one.to for one in group]
        if isinstance(answer, ReliqError):
            others = [one.to.note_failure(one.keys.queue, answer) for one in group]
            if not all(others):
                self._fail(answer)
            return [one.to for one in group]
        if answer.status == "full":
            self._full.append((group[answer.refuser].keys, answer))
            return []
        if answer.status == "moved":
            for place in answer.moved:
                group[place].to.note_refusal(group[place].keys.queue, place in answer.held)
            return [one.to for one in group]
        self._reached += [one.to.queue for one in group]
        return []

    def _fail(self, error: ReliqError) -> None:
        """Note why a queue did not get the message; that it is not known of one outweighs the rest."""
        if isinstance(error, OutcomeUnknown) or self._error is None:
            self._error = error

    def _raise(self) -> Steps[None]:
        """Raise what the answers say, if a queue did not get the message and will not."""
        if self._full:
            yield from count_rejected(*((keys, 1) for keys, _ in self._full))
        if self._error is not None:
            raise self._error
        if self._full:
            raise QueueFull(at_limit(*self._full[0]))


def _publish(
    group: Group, publish: _Op, bodies: Sequence[ops.StoredBody], session: ProducerSession
) -> Steps[own.Published]:
    strangers = [one.home for one in group if one.home.unknown]
    introductions = _introductions(strangers)
    known, answer = yield from enqueue_with_bodies([one.keys for one in group], bodies, session, publish, introductions)
    _note_introduced(strangers, known)
    return answer


def _introductions(strangers: Sequence[Home]) -> list[ops.Op[Any]]:
    return [op for home in strangers for op in home.introduction()]


def _note_introduced(strangers: Sequence[Home], known: Sequence[Any]) -> None:
    for home, announced, told in zip(strangers, known[::2], known[1::2], strict=True):
        home.introduced(announced, told)


def _outcomes(steps: Sequence[Steps[Any]]) -> Steps[list[Any]]:
    """Run steps at the same time; return what each returns, or its error."""
    if len(steps) > 1:
        return (yield Together(steps))  # type: ignore[no-any-return]
    try:
        return [(yield from steps[0])]
    except ReliqError as error:
        return [error]
