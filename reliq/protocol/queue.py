"""The steps of a queue: send, statistics, policy, pause, purge."""

from collections.abc import Iterable, Sequence
from functools import partial

from reliq import ops
from reliq.contract import values
from reliq.contract.counter_names import Counter
from reliq.contract.keywords import BatchOptions, Config, ConfigChanges, MessageOptions
from reliq.contract.values import Duration
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import Body, NewMessage, check_option_names
from reliq.model.stats import Stats, whole
from reliq.model.upgrades import stamp
from reliq.ops import Steps
from reliq.ops.schema import Config as Field
from reliq.protocol import spread
from reliq.protocol.batch import checked, checked_many
from reliq.protocol.done_in_part import counted
from reliq.protocol.durability import Terms, check_possible, durability
from reliq.protocol.features import FORGETS, HIDDEN
from reliq.protocol.forwarding import check_target
from reliq.protocol.homes import QueueHomes
from reliq.protocol.policy import check_burst, checked_setting, read_config, weight_digests
from reliq.protocol.producer import ProducerPool
from reliq.protocol.relocation import withdraw
from reliq.protocol.sending import around_send, ready
from reliq.protocol.shares import configure, switch
from reliq.protocol.stats import stats_of
from reliq.runtime import tracing

_PURGE_STEP = 60  #: messages in one call, also where each of them lets another one of its key go
_PURGE = "the purge"


class QueueSteps:
    """The operations on a queue, as steps. Those that read or change messages concern all of its homes."""

    def __init__(self, name: str, pool: ProducerPool, max_body: int = values.BODY_LIMIT) -> None:
        self.homes = QueueHomes(name, pool)
        self.keys = self.homes.first.keys  #: nearly all queues have no other home
        self.pool = self._pool = pool
        self._max_body = max_body

    def send_many(
        self, messages: Sequence[NewMessage], sure: str | None = None, retries: int | None = None
    ) -> Steps[list[str]]:
        """Enqueue messages, up to 1,000 in one step; return the ids, for a duplicate that of the first message.

        `sure`: the requested durability; None = that of the queue.
        """
        terms = Terms.of(sure, retries)
        if terms.wanted is not None or not self._pool.clock.known:
            yield from ready(self._pool, terms, messages)
        return (yield from around_send(self._pool, self.keys.queue, messages, spread.send(self.homes, messages, terms)))

    @property
    def version(self) -> int:
        """The version of the bodies that this application sends to the queue."""
        return self._pool.versions.get(self.keys.queue, 1)

    def prepared(self, body: Body | NewMessage, options: MessageOptions) -> NewMessage:
        """Return a message for the body, checked before anything is sent; raises InvalidMessage or InvalidName."""
        check_option_names(options, MessageOptions)
        message = checked(body if isinstance(body, NewMessage) else NewMessage(body, **options), self._max_body)
        if self._pool.versions:
            stamp([message], self.version)
        return message

    def prepared_many(self, bodies: Iterable[Body | NewMessage], options: BatchOptions) -> Sequence[NewMessage]:
        version = self.version
        plain = version == 1 and not self._pool.middleware and tracing.active is None
        messages = checked_many(bodies, options, self._max_body, plain=plain)
        if version > 1:
            stamp(messages, version)
        return messages

    def stats(self) -> Steps[Stats]:
        parts = yield from self.homes.counted(stats_of)
        return whole(parts, len(self.homes.layout.every(self.keys.queue)) - len(parts))

    def config(self) -> Steps[Config]:
        return read_config((yield ops.read_hash(self.keys.config)))

    def configure(self, changes: ConfigChanges) -> Steps[Config]:
        """Set the given fields; None resets a field to its default. Raises InvalidSetting without changing anything."""
        checked = {name: checked_setting(name, value) for name, value in changes.items()}
        if Field.RATE in checked and checked[Field.RATE] is None:
            checked.setdefault(Field.BURST, None)
        if checked.get(Field.BURST) is not None:
            check_burst(checked[Field.RATE] if Field.RATE in checked else (yield from self.config()).rate)
        if checked.get(Field.DEAD_TO) is not None:
            check_target(self.keys.queue, checked[Field.DEAD_TO])
        if changes.get(Field.DURABILITY) is not None:
            yield from check_possible(durability(changes[Field.DURABILITY]), undone="changed")
        if changes.get(Field.MAX_BYTES) is not None:  # a server without MEMORY refuses here, not at the first send
            yield ops.bytes_used(self.keys.messages)
        to_set = {name: value for name, value in checked.items() if value is not None}
        to_reset = [name for name, value in checked.items() if value is None]
        if Field.WEIGHTS in to_set:
            to_set[Field.WEIGHT_DIGESTS] = weight_digests(to_set[Field.WEIGHTS])
        if Field.WEIGHTS in to_reset:
            to_reset.append(Field.WEIGHT_DIGESTS)
        yield from configure(self.homes, to_set, to_reset, self._pool.sharded)
        if to_reset:
            yield from self.homes.act("the change of the policy", lambda keys: _forget(keys, to_reset))
        return (yield from self.config())

    def pause(self) -> Steps[None]:
        yield from switch(self.homes, "the pause", paused=True)

    def resume(self) -> Steps[None]:
        yield from switch(self.homes, "the end of the pause", paused=False)

    def open_breaker(self, duration: Duration) -> Steps[None]:
        open_for = values.seconds(duration, "duration", shortest=0.1)
        yield from self.homes.act("the opening of the breaker", lambda keys: _open_breaker(keys, open_for))

    def close_breaker(self) -> Steps[bool]:
        closing = "the closing of the breaker"
        before = yield from self.homes.act(closing, lambda keys: ops.one(ops.switch_breaker(keys, 0, keys.new_call())))
        return any(one != "closed" for one in before)

    def purge(self) -> Steps[int]:
        """Delete ready, waiting, delayed and hidden messages; return how many."""
        removed = 0
        while True:
            come: list[str] = []
            removed += sum((yield from self.homes.act(_PURGE, partial(_purge, come=come))))
            if not come:  # else to homes that may have been purged by then
                return removed


def _forget(keys: QueueKeys, settings: Sequence[str]) -> Steps[bool]:
    """Delete what features keep for settings that were reset."""
    for forget in FORGETS:
        yield from forget(keys, settings)
    return True


def _open_breaker(keys: QueueKeys, seconds: float) -> Steps[bool]:
    yield [ops.announce(keys.queue), ops.switch_breaker(keys, seconds)]
    return True


def _purge(keys: QueueKeys, come: list[str]) -> Steps[int]:
    """Purge one home; `come` gets the homes of messages that waited here for a monitor, and had come there before."""
    removed, more = 0, True
    with counted(_PURGE, keys, lambda: removed):
        while more:
            step = yield ops.purge(keys, _PURGE_STEP, keys.new_call())
            removed, more = removed + step.removed, step.more
            if step.strays:
                withdrawn = yield from withdraw(keys, step.strays, Counter.PURGED)
                removed += withdrawn.removed
                come += withdrawn.come
        for hidden in HIDDEN:
            removed += yield from hidden.purge(keys)
    return removed
