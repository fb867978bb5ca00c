"""The steps of topics: bind, publish, read the bindings."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from reliq import ops
from reliq.contract.keywords import PublishOptions
from reliq.errors import InvalidMessage, OutcomeUnknown, QueueFull, Unroutable
from reliq.features.topics import ops as own
from reliq.features.topics.publishing import Publication
from reliq.features.topics.routing import Routes, check_pattern, check_routing_key
from reliq.model.keys import check_grammar, check_name, new_topics_call
from reliq.model.outgoing import Body, NewMessage, check_option_names
from reliq.model.upgrades import VERSION_HEADER, stamp
from reliq.ops import Steps
from reliq.ops.schema import Topics
from reliq.protocol.batch import checked
from reliq.protocol.durability import Terms
from reliq.protocol.producer import ProducerPool
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
        self.forget()
        pool.learners.add(self)

    def forget(self) -> None:
        """Forget the bindings."""
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
        queues = yield from self._matching_queues(routing_key)
        if not mandatory:
            queues = or_alternate(queues, self._alternate)
        if queues and check is not None:
            check(queues)
        self._stamp(message, queues)
        to = [self._queue(name).homes for name in queues]
        publication = Publication(self._pool, routing_key, message, to, terms)
        steps = publication.publish() if to else self._reach_none(routing_key, mandatory)
        try:
            return (yield from around_send(self._pool, routing_key, [message], steps))
        except QueueFull:
            for homes in to:
                yield from homes.look_when_full()
            raise

    def _reach_none(self, routing_key: str, mandatory: bool) -> Steps[dict[str, str]]:
        if mandatory:
            raise Unroutable(f"no queue is bound to a pattern that matches {routing_key!r}; nothing was enqueued")
        with suppress(OutcomeUnknown):  # it may not be counted: nobody gets it in any case
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
        if not (yield from self._matching_queues(routing_key)):
            return {}
        return (yield from self.publish(routing_key, message))

    def _matching_queues(self, routing_key: str) -> Steps[tuple[str, ...]]:
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
        """Return the queues that would receive the message, by the current bindings and alternate queue in Redis."""
        check_routing_key(routing_key)
        yield from self._compile()
        return list(or_alternate(self._routes.match(routing_key), self._alternate))

    def list(self) -> Steps[list[Binding]]:
        return sorted(_bindings((yield own.topics())))

    def bind(self, queue: str, *patterns: str) -> Steps[bool]:
        bindings = _fields(check_name(queue), patterns)
        _, changed = yield [ops.announce(queue), own.bind("bind", bindings, new_topics_call())]
        self._looked_at = float("-inf")
        return bool(changed)

    def unbind(self, queue: str, *patterns: str) -> Steps[bool]:
        changed = yield own.bind("unbind", _fields(queue, patterns, bound=True), new_topics_call())
        self._looked_at = float("-inf")
        return bool(changed)

    def set_alternate(self, queue: str | None) -> Steps[None]:
        if queue is None:
            yield own.unset_alternate()
        else:
            yield [ops.announce(check_name(queue)), own.set_alternate(queue)]
        self._looked_at = float("-inf")

    def stats(self) -> Steps[TopicStats]:
        found = yield own.topics()
        return TopicStats(len(_bindings(found)), found.get(Topics.ALTERNATE), int(found.get(Topics.UNROUTABLE, 0)))


def read_routes() -> Steps[tuple[Routes, str | None]]:
    """Read the current bindings and the alternate queue from Redis."""
    found = yield own.topics()
    return Routes(_bindings(found)), found.get(Topics.ALTERNATE)


def or_alternate(bound: tuple[str, ...], alternate: str | None) -> tuple[str, ...]:
    """Return the queues that get a message that is not mandatory: those bound, else the alternate one if there is."""
    return bound or ((alternate,) if alternate else ())


def _bindings(found: Mapping[str, str]) -> list[Binding]:
    """Return the fields that are bindings, recognized by the blank between queue and pattern."""
    return [Binding(*field.split(" ", 1)) for field in found if " " in field]


def _fields(queue: str, patterns: Sequence[str], bound: bool = False) -> list[str]:
    if not patterns:
        raise InvalidMessage(f"no pattern for {queue!r}: give one, such as order.created.*")
    return [f"{check_grammar(queue)} {check_pattern(pattern, bound)}" for pattern in patterns]
