"""The steps of topics: bind, publish, read the bindings."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reliq import ops
from reliq.contract.keywords import PublishOptions
from reliq.errors import InvalidMessage, QueueFull, Unroutable
from reliq.features.topics import ops as own
from reliq.features.topics.routing import Routes, check_pattern, check_routing_key
from reliq.model.keys import QueueKeys, check_grammar, check_name, new_topics_call
from reliq.model.outgoing import Body, NewMessage, check_option_names
from reliq.model.upgrades import VERSION_HEADER, stamp
from reliq.ops import Steps
from reliq.ops.schema import Counter as Field
from reliq.ops.schema import Topics
from reliq.ops.topology import slot_of
from reliq.protocol.batch import checked, encoded
from reliq.protocol.durability import Terms, confirm
from reliq.protocol.home import Home, at_limit
from reliq.protocol.producer import ProducerPool, ProducerSession, stored
from reliq.protocol.queue import QueueSteps
from reliq.protocol.sending import around_send, ready

_FRESH = 0.5  #: seconds for which known bindings are used without asking Redis


class Binding(NamedTuple):
    """A subscription: the queue receives messages with routing keys that match the pattern."""

    queue: str
    pattern: str


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Statistics of all bindings. `unroutable`: messages that matched no binding while no alternate queue was set."""

    bindings: int
    alternate: str | None
    unroutable: int


class TopicSteps:
    """The operations on topics, as steps."""

    def __init__(self, queue: Callable[[str], QueueSteps], pool: ProducerPool, max_body: int) -> None:
        self._queue = queue
        self._pool = pool
        self._max_body = max_body
        self._routes = Routes()
        self._alternate: str | None = None
        self._version: str | None = ""  #: version of the compiled bindings; None = there are no bindings
        self._looked_at = float("-inf")

    def prepared(self, body: Body | NewMessage, options: PublishOptions) -> NewMessage:
        """Return a message for the body, checked; raises InvalidMessage or InvalidName."""
        check_option_names(options, PublishOptions)
        message = checked(body if isinstance(body, NewMessage) else NewMessage(body, **options), self._max_body)
        if message.dedup_key is not None or message.replace:
            raise InvalidMessage(
                "publish takes no dedup_key, and so no replace: each queue would have its own; use send"
            )
        return message

    def publish(
        self,
        routing_key: str,
        message: NewMessage,
        mandatory: bool = False,
        sure: str | None = None,
        retries: int | None = None,
        check: Callable[[Sequence[str]], None] | None = None,
    ) -> Steps[dict[str, str]]:
        """Enqueue a message in every bound queue, in one atomic step per server; return its id by queue.

        `check` gets exactly the queues that the message would enter, and raises to refuse them.
        """
        check_routing_key(routing_key)
        terms = Terms.of(sure, retries)
        yield from ready(self._pool, terms, [message])
        queues = yield from self._reached(routing_key)
        if not queues and self._alternate is not None and not mandatory:
            queues = (self._alternate,)
        if queues and check is not None:
            check(queues)
        self._stamp(message, queues)
        to = [self._queue(name) for name in queues]
        steps = self._publish(routing_key, message, to, terms) if to else self._reach_none(routing_key, mandatory)
        return (yield from around_send(self._pool, routing_key, [message], steps))

    def _reach_none(self, routing_key: str, mandatory: bool) -> Steps[dict[str, str]]:
        if mandatory:
            raise Unroutable(f"no queue is bound to a pattern that matches {routing_key!r}; nothing was enqueued")
        yield ops.count_unroutable(1)
        return {}

    def _stamp(self, message: NewMessage, queues: Sequence[str]) -> None:
        """Note the version of the body, which is that of the queues of this application; raises InvalidMessage."""
        versions = {self._pool.versions[queue] for queue in queues if queue in self._pool.versions}
        if len(versions) > 1 and VERSION_HEADER not in message.headers:
            raise InvalidMessage(
                f"the bodies of {', '.join(queues)} have the versions {sorted(versions)}: "
                f"give the one of this body in the header {VERSION_HEADER}"
            )
        for version in versions:
            stamp([message], version)

    def publish_now(self, routing_key: str, message: NewMessage) -> Steps[dict[str, str]]:
        """Publish by the bindings that Redis has at this moment; without a matching one nothing happens."""
        check_routing_key(routing_key)
        self._looked_at = float("-inf")
        if not (yield from self._reached(routing_key)):
            return {}
        return (yield from self.publish(routing_key, message))

    def _publish(
        self, routing_key: str, message: NewMessage, queues: Sequence[QueueSteps], terms: Terms
    ) -> Steps[dict[str, str]]:
        left, held = list(queues), set[str]()
        refused: dict[str, list[str]] = {queue.keys.queue: [] for queue in queues}
        while left:  # until the homes of the message's key take it, where these change
            homes: list[Home] = []
            for queue in left:
                name = queue.keys.queue
                homes += [(yield from queue.homes.offered(message, refused[name]))]
                if not refused[name]:
                    held.discard(name)
            versions = {queue.keys.queue: queue.homes.layout.version for queue in left}
            known = {name: (version, name in held) for name, version in versions.items() if version}
            with self._pool.session([message.id]) as session:
                moved = yield from self._publish_in(session, routing_key, message, homes, known, terms)
            for keys, is_moved, _ in moved:
                refused[keys.logical] += [keys.queue] if is_moved else []
            held |= {keys.logical for keys, _, has_others in moved if has_others}
            again = {keys.logical for keys, _, _ in moved}
            left = [queue for queue in left if queue.keys.queue in again]
        return dict.fromkeys((queue.keys.queue for queue in queues), message.id)

    def _publish_in(
        self,
        session: ProducerSession,
        routing_key: str,
        message: NewMessage,
        queues: Sequence[Home],
        known: Mapping[str, tuple[int, bool]],
        terms: Terms,
    ) -> Steps[list[tuple[QueueKeys, bool, bool]]]:
        """Publish in these homes.

        Return those that did not get it, whether it belongs elsewhere, and whether others of its key are there.
        `known`: by queue, where it has several, the version of their layout and whether the message waits for those.
        """
        bodies: list[ops.StoredBody] = []
        element = encoded(message, self._pool.clock.now(), bodies, routing_key)
        groups = self._groups(queues)
        strangers = [queue for queue in queues if queue.unknown]
        announcements = [ops.announce(queue.keys.queue) for queue in strangers]
        introductions = [ops.introduction(queue.keys) for queue in strangers]
        publish = [
            ops.at_most(_publication(group, message, element, session, known), terms.retries) for group in groups
        ]
        if bodies:
            announced, told = (yield from ops.together(announcements, introductions)) if strangers else ([], [])
            answers = []
            for group, one in zip(groups, publish, strict=True):
                _, answer = yield from stored(group, bodies, session, one)
                answers.append(answer)
        else:
            announced, told, answers = yield from ops.together(announcements, introductions, publish)
        for queue, name, known_now in zip(strangers, announced, told, strict=True):
            queue.introduced(name, known_now)
        self._pool.clock.note(answers[0].now, session.called_at)
        yield from _refuse_full(groups, answers, message.id)
        sure = terms.wanted or max((queue.durability for queue in queues), key=lambda one: (one.replicas, one.disks))
        moved: list[tuple[QueueKeys, bool, bool]] = []
        for group, answer in zip(groups, answers, strict=True):
            if answer.status == "moved":
                moved += [(keys, place in answer.moved, place in answer.held) for place, keys in enumerate(group)]
            elif sure.waits:
                yield from confirm(group[0], sure, session.producer, session.sequence)
        return moved

    def _groups(self, queues: Sequence[Home]) -> Sequence[Sequence[QueueKeys]]:
        """Group the queues that one atomic step can reach: all of them or, on a cluster, those of one hash slot."""
        if not self._pool.sharded:
            return [[queue.keys for queue in queues]]
        groups: dict[int, list[QueueKeys]] = {}
        for queue in queues:
            groups.setdefault(slot_of(queue.keys.messages), []).append(queue.keys)
        return [*groups.values()]

    def _reached(self, routing_key: str) -> Steps[tuple[str, ...]]:
        """Return the matching queues; the bindings may be half a second old."""
        now = time.monotonic()
        if now - self._looked_at > _FRESH:
            if (yield own.bindings_version()) != self._version:
                yield from self._compile()
            self._looked_at = now
        return self._routes.match(routing_key)

    def _compile(self) -> Steps[None]:
        found = yield own.topics()
        self._routes = Routes(_bindings(found))
        self._alternate = found.get(Topics.ALTERNATE)
        self._version = found.get(Topics.VERSION)

    def match(self, routing_key: str) -> Steps[list[str]]:
        """Return the queues that would receive the message, by the current bindings in Redis."""
        check_routing_key(routing_key)
        yield from self._compile()
        return list(self._routes.match(routing_key))

    def list(self) -> Steps[list[Binding]]:
        return sorted(_bindings((yield own.topics())))

    def bind(self, queue: str, *patterns: str) -> Steps[bool]:
        bindings = _fields(check_name(queue), patterns)
        _, changed = yield [ops.announce(queue), own.bind("bind", bindings, new_topics_call())]
        self._looked_at = float("-inf")
        return bool(changed)

    def unbind(self, queue: str, *patterns: str) -> Steps[bool]:
        changed = yield own.bind("unbind", _fields(queue, patterns), new_topics_call())
        self._looked_at = float("-inf")
        return bool(changed)

    def set_alternate(self, queue: str | None) -> Steps[None]:
        if queue is None:
            yield own.no_alternate()
        else:
            yield [ops.announce(check_name(queue)), own.alternate(queue)]
        self._looked_at = float("-inf")

    def stats(self) -> Steps[TopicStats]:
        found = yield own.topics()
        return TopicStats(len(_bindings(found)), found.get(Topics.ALTERNATE), int(found.get(Topics.UNROUTABLE, 0)))


def read_routes() -> Steps[tuple[Routes, str | None]]:
    """Read the current bindings and the alternate queue from Redis."""
    found = yield own.topics()
    return Routes(_bindings(found)), found.get(Topics.ALTERNATE)


def _publication(
    group: Sequence[QueueKeys],
    message: NewMessage,
    element: bytes,
    session: ProducerSession,
    known: Mapping[str, tuple[int, bool]],
) -> ops.Op[own.Published]:
    """Return the op that publishes in the homes of one group; `known`: as for `_publish_in`."""
    homes = {place: known[keys.logical] for place, keys in enumerate(group) if keys.logical in known}
    return own.publish(group, message.id, element, message.delay, session.producer, session.sequence, homes)


def _refuse_full(groups: Sequence[Sequence[QueueKeys]], answers: Sequence[own.Published], identity: str) -> Steps[None]:
    refusals = [(group, one) for group, one in zip(groups, answers, strict=True) if one.status == "full"]
    if not refusals:
        return
    reached = [keys.logical for group, one in zip(groups, answers, strict=True) if one.status == "ok" for keys in group]
    yield [ops.count(group[one.refuser], Field.REJECTED) for group, one in refusals]
    group, full = refusals[0]
    others = f"only {', '.join(reached)} got it" if reached else "nothing was enqueued in any bound queue"
    raise QueueFull(
        f"{at_limit(group[full.refuser], full)}; {others}",
        dict.fromkeys(reached, identity),
    )


def _bindings(found: Mapping[str, str]) -> list[Binding]:
    """Return the fields that are bindings, recognized by the blank between queue and pattern."""
    return [Binding(*field.split(" ", 1)) for field in found if " " in field]


def _fields(queue: str, patterns: Sequence[str]) -> list[str]:
    if not patterns:
        raise InvalidMessage(f"no pattern for {queue!r}: give one, such as order.created.*")
    return [f"{check_grammar(queue)} {check_pattern(pattern)}" for pattern in patterns]
