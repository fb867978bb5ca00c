"""The policy of a queue with partitions: each has its share of it.

The first partition has the policy of the whole queue, and each change replaces there what it has read. The change is
noted (`change` of config) until all the others have their share of it: where one is away meanwhile, or the caller dies,
a monitor finishes it. Who has given out the shares reads the policy again, and gives out what it is by now: the shares
of several calls at once reach the others in any order.
"""

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from reliq import ops
from reliq.contract.settings import BY_NAME
from reliq.errors import ChangeUnderWay, RedisUnavailable
from reliq.model.keys import QueueKeys
from reliq.model.partitions import Layout, read_layout
from reliq.ops import Steps, Together
from reliq.ops.schema import Config
from reliq.protocol.done_in_part import done_everywhere
from reliq.protocol.homes import QueueHomes, checked
from reliq.protocol.policy import SHARED, check_shares, is_paced, read_whole, share
from reliq.protocol.resizing import apply_layout, apply_to_reachable, change, try_to_finish

_Share = dict[str, int | float | str | None]  #: settings as they are stored; None = it is not set
_Policy = Mapping[str, str]

_PATIENCE = 10.0  #: seconds for which a change competes with others
_STEP_BACK = 0.05  #: seconds, at most, for which it lets them go first
_POLICY = (*(name for name in BY_NAME if name != Config.PARTITIONS), Config.WEIGHT_DIGESTS, Config.PAUSED)


def configure(
    homes: QueueHomes, to_set: Mapping[str, int | float | str], to_reset: Sequence[str], sharded: bool
) -> Steps[None]:
    """Set and reset settings of a queue, as they are stored; the number of its partitions is one of them."""
    keys, layout = homes.first.keys, (yield from homes.read())
    count = 1 if Config.PARTITIONS in to_reset else int(to_set.get(Config.PARTITIONS, layout.count))
    to_set = {name: value for name, value in to_set.items() if name != Config.PARTITIONS}
    if not layout.several and count == 1:
        yield from _change_alone(keys, [ops.announce(keys.queue), *ops.configure(keys, to_set, to_reset)])
        return

    def changed(before: _Policy) -> _Policy:
        policy = {**before, **{name: str(value) for name, value in to_set.items()}}
        return {name: value for name, value in policy.items() if name not in to_reset}

    check_shares(changed(policy_of((yield ops.read_hash(keys.config)))), count)
    if count != layout.count:
        layout = yield from change(keys.queue, count, sharded)
    if (yield from take_effect(keys.queue, layout, changed)) and layout.moving:
        yield from try_to_finish(keys.queue, layout)  # at once if no message has to move; else a monitor does
    yield from homes.read()


def take_effect(queue: str, layout: Layout, changed: Callable[[_Policy], _Policy]) -> Steps[bool]:
    """Change the policy, and tell each partition its share, and of which keys it is the home; return as `apply_layout`.

    `changed` returns the policy that replaces another one; it is called again if that is changed meanwhile. Without
    the first partition, nothing is changed. Raises DoneInPart if others are away: a monitor finishes the change.
    """
    yield ops.announce(queue)
    sharing = yield from _share_out(queue, changed, secrets.token_hex(8))
    told, away = yield from apply_to_reachable(queue, layout)
    done_everywhere("the change of the policy", queue, {**sharing.answers, **away}, by_monitor=True)
    yield from _end(queue, sharing)
    return told


def switch(homes: QueueHomes, what: str, *, paused: bool) -> Steps[None]:
    """Pause a queue, or end its pause, in each partition; raises DoneInPart.

    It is carried out also where the first one is away; else a monitor finishes it in those that are.
    """
    every = [one.keys for one in (yield from homes.every(complete=True))]
    if len(every) == 1:
        yield from _change_alone(every[0], _switch_ops(every[0], paused))
        return

    def changed(before: _Policy) -> _Policy:
        others = {name: value for name, value in before.items() if name != Config.PAUSED}
        return {**others, Config.PAUSED: "1"} if paused else others

    try:
        sharing = yield from _share_out(homes.queue, changed, secrets.token_hex(8))
    except RedisUnavailable as error:
        switched = {keys.queue: _switch_ops(keys, paused) for keys in every[1:]}
        done_everywhere(what, homes.queue, {homes.queue: error, **(yield from _make(switched))})
    else:
        done_everywhere(what, homes.queue, sharing.answers, by_monitor=True)
        yield from _end(homes.queue, sharing)


def _switch_ops(keys: QueueKeys, paused: bool) -> list[ops.Op[Any]]:
    return [ops.announce(keys.queue), ops.pause(keys)] if paused else [ops.resume(keys)]


def _change_alone(keys: QueueKeys, changes: Sequence[ops.Op[Any]]) -> Steps[None]:
    """Change the policy of the only partition; others that have come meanwhile get their shares of it."""
    *_, layout = yield [*changes, ops.layout(keys)]
    if layout.several:
        yield from share_again(keys.queue, layout)


def policy_of(values: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the whole queue, and whether it is paused, from the fields of its first partition."""
    return {name: value for name, value in read_whole(values).items() if name in _POLICY}


def finish_change(queue: str, layout: Layout, token: str) -> Steps[bool]:
    """Finish a change of the policy that has not reached all partitions; return as `share_again`."""
    told = yield from share_again(queue, layout)
    yield from _end_change(queue, token, layout)
    return told


def share_again(queue: str, layout: Layout) -> Steps[bool]:
    """Give all partitions their shares of the policy that the queue has; return as `apply_layout`."""
    sharing = yield from _share_out(queue, _unchanged)
    checked(list(sharing.answers.values()))
    if sharing.layout != layout:
        return False
    return not layout.several or (yield from apply_layout(queue, layout))


@dataclass(frozen=True, slots=True)
class _Sharing:
    """How the shares of a policy were given out."""

    layout: Layout
    answers: dict[str, Any]  #: by partition: True, or the error
    token: str | None  #: of the change that is to be ended; None: a monitor shares again, and ends it


def _share_out(queue: str, changed: Callable[[_Policy], _Policy], token: str | None = None) -> Steps[_Sharing]:
    """Replace the policy in the first partition, with a note of the change if it has a token, and give out the shares.

    Raises RedisUnavailable if the first one is away, and ChangeUnderWay if others change it all the time: nothing has
    been changed.
    """
    keys, compared = QueueKeys(queue), (*_POLICY, Config.WHOLE, Config.PARTITIONS, Config.CHANGE)
    alone, answers = True, dict[str, Any]()
    values, until = (yield ops.read_hash(keys.config)), time.monotonic() + _PATIENCE
    while True:
        policy, layout = changed(policy_of(values)), read_layout(values.get(Config.PARTITIONS))
        if token is not None:
            check_shares(policy, layout.count)
            alone = alone and values.get(Config.CHANGE) in (None, token)
        shares = _shares(queue, layout, policy)
        of_first = shares.pop(queue) | ({Config.CHANGE: token} if token else {})
        replaced = yield ops.exchange_policy(keys, {name: values.get(name) for name in compared}, of_first)
        if replaced:
            changed, answers = _unchanged, {queue: True, **(yield from _give(shares))}
        elif time.monotonic() < until:
            yield ops.Sleep(random.uniform(0, _STEP_BACK))
        elif token is None or not answers:
            raise ChangeUnderWay(f"the policy of queue {queue!r} is being changed all the time: try again")
        else:
            return _Sharing(layout, answers, None)
        try:
            values = yield ops.read_hash(keys.config)
        except RedisUnavailable:
            if token is None or not answers:
                raise
            return _Sharing(layout, answers, None)
        if replaced and (policy_of(values), read_layout(values.get(Config.PARTITIONS))) == (policy, layout):
            return _Sharing(layout, answers, token if alone else None)


def _unchanged(policy: _Policy) -> _Policy:
    return policy


def _end(queue: str, sharing: _Sharing) -> Steps[None]:
    if sharing.token is not None:
        yield from _end_change(queue, sharing.token, sharing.layout)


def _end_change(queue: str, token: str, layout: Layout) -> Steps[None]:
    """Note that a change has reached all partitions, unless a later one has begun.

    Also unless they have another layout than this one, by which they got their shares: a monitor shares again.
    """
    keys = QueueKeys(queue)
    if (yield ops.layout(keys)) == layout:
        yield ops.end_change(keys, token)


def _give(shares: Mapping[str, _Share]) -> Steps[dict[str, Any]]:
    """Give partitions their shares; return by partition True, or its error."""
    return (yield from _make({name: [ops.announce(name), *_changes(name, of_it)] for name, of_it in shares.items()}))


def _make(changes: Mapping[str, list[ops.Op[Any]]]) -> Steps[dict[str, Any]]:
    """Make changes of partitions; return by partition True, or its error."""

    def make(ops_of_it: list[ops.Op[Any]]) -> Steps[bool]:
        yield ops_of_it
        return True

    answers = (yield Together([make(one) for one in changes.values()])) if changes else ()
    return dict(zip(changes, answers, strict=True))


def _shares(queue: str, layout: Layout, policy: Mapping[str, str]) -> dict[str, _Share]:
    """Return the share of each partition, by its queue, the first one first.

    Closed partitions take no new messages, but they give out those that they have, and keep dead letters. Those at rest
    have nothing to give out (`resting`).
    """
    every, open_ones, working = layout.every(queue), layout.names(queue), layout.working(queue)
    among = {Config.MAX_LENGTH: open_ones, Config.MAX_BYTES: open_ones, Config.DEAD_MAX_COUNT: every}
    shares = dict[str, _Share]()
    for place, one in enumerate(every):
        of_it: _Share = {**dict.fromkeys(_POLICY), **policy}
        for name in (name for name in SHARED if name in policy):
            some = among.get(name, working)
            at = some.index(one) if one in some else place % len(some)
            of_it[name] = share(name, policy[name], at, len(some))
        if one not in working and is_paced(policy):
            of_it[Config.CONCURRENCY] = 0
        shares[one] = of_it
    whole = {name: value for name, value in policy.items() if name in SHARED} if len(every) > 1 else {}
    shares[queue][Config.WHOLE] = msgspec.json.encode(whole).decode() if whole else None
    return shares


def _changes(queue: str, of_it: _Share) -> list[ops.Op[int]]:
    """Return the ops that give a partition its share."""
    to_set = {name: value for name, value in of_it.items() if value is not None}
    return ops.configure(QueueKeys(queue), to_set, [name for name in of_it if name not in to_set])
