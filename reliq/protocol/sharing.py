"""The policy of a queue with partitions: each has its share of it.

The first partition has the policy of the whole queue. A change is noted there (`change` of config) until all the others
have their share of it: where one is away meanwhile, or the caller dies, a monitor finishes it.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from reliq import ops
from reliq.contract.settings import BY_NAME
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.partitions import Layout, read_layout
from reliq.ops import Steps, Together
from reliq.ops.schema import Config
from reliq.protocol.acts import done_everywhere
from reliq.protocol.homes import QueueHomes, checked
from reliq.protocol.policy import SHARED, check_shares, is_paced, read_whole, share
from reliq.protocol.resizing import change, settle, take_in, tell

_Share = dict[str, int | float | str | None]  #: settings as they are stored; None = it is not set

_TRIES = 10
_POLICY = (*(name for name in BY_NAME if name != Config.PARTITIONS), Config.WEIGHT_DIGESTS, Config.PAUSED)


def configure(
    homes: QueueHomes, to_set: Mapping[str, int | float | str], to_reset: Sequence[str], sharded: bool
) -> Steps[None]:
    """Set and reset settings of a queue, as they are stored; the number of its partitions is one of them."""
    keys, layout = homes.first.keys, (yield from homes.read())
    count = 1 if Config.PARTITIONS in to_reset else int(to_set.get(Config.PARTITIONS, layout.count))
    to_set = {name: value for name, value in to_set.items() if name != Config.PARTITIONS}
    if not layout.several and count == 1:
        yield [ops.announce(keys.queue), *ops.configure(keys, to_set, to_reset)]
        return
    before = policy_of((yield ops.read_hash(keys.config)))
    policy = {**before, **{name: str(value) for name, value in to_set.items()}}
    for name in to_reset:
        policy.pop(name, None)
    check_shares(policy, count)
    if count != layout.count:
        layout = yield from change(keys.queue, count, sharded)
    if (yield from take_effect(keys.queue, layout, policy)) and layout.moving:
        yield from settle(keys.queue, layout)  # at once if no message has to move; else a monitor does
    yield from homes.read()


def policy_of(values: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the whole queue, and whether it is paused, from the fields of its first partition."""
    return {name: value for name, value in read_whole(values).items() if name in _POLICY}


def take_effect(queue: str, layout: Layout, policy: Mapping[str, str]) -> Steps[bool]:
    """Give each partition its share of the policy, and tell it of which keys it is the home; return as `take_in`.

    The first one has the policy of the whole queue: without it, nothing is changed. Raises DoneInPart if others are
    away: a monitor finishes the change.
    """
    shares, token = _shares(queue, layout, policy), secrets.token_hex(8)
    yield [ops.announce(queue), ops.begin_change(QueueKeys(queue), token), *_changes(queue, shares.pop(queue))]
    answers = {queue: True, **(yield from _give(shares))}
    told, away = yield from tell(queue, layout)
    done_everywhere("the change of the policy", queue, {**answers, **away}, by_monitor=True)
    yield from _end_change(queue, token, layout)
    return told


def switch(homes: QueueHomes, what: str, changes: Callable[[QueueKeys], list[ops.Op[Any]]]) -> Steps[None]:
    """Change a field of the policy by the same ops in each partition; raises DoneInPart.

    It is carried out also where the first one is away; else a monitor finishes it in those that are.
    """
    every, token = (yield from homes.every(complete=True)), secrets.token_hex(8)
    first = every[0].keys
    if len(every) == 1:
        yield changes(first)
        return

    def of(keys: QueueKeys) -> Steps[bool]:
        noted = [ops.begin_change(keys, token)] if keys == first else []
        yield [*noted, *changes(keys)]
        return True

    names = [one.keys.queue for one in every]
    answers = dict(zip(names, (yield Together([of(one.keys) for one in every])), strict=True))
    done_everywhere(what, homes.queue, answers, by_monitor=answers[first.queue] is True)
    yield ops.end_change(first, token)


def finish_change(queue: str, layout: Layout, token: str) -> Steps[bool]:
    """Finish a change of the policy that has not reached all partitions; return as `share_again`."""
    told = yield from share_again(queue, layout)
    yield from _end_change(queue, token, layout)
    return told


def _end_change(queue: str, token: str, layout: Layout) -> Steps[None]:
    """Note that a change has reached all partitions, unless a later one has begun.

    Also unless they have another layout than this one, by which they got their shares: a monitor shares again.
    """
    keys = QueueKeys(queue)
    if (yield ops.layout(keys)) == layout:
        yield ops.end_change(keys, token)


def _give(shares: Mapping[str, _Share]) -> Steps[dict[str, Any]]:
    """Give partitions their shares, also if one of them is away; return by partition True, or its error."""
    answers: dict[str, Any] = {}
    for name, of_it in shares.items():
        try:
            yield [ops.announce(name), *_changes(name, of_it)]
            answers[name] = True
        except ReliqError as error:
            answers[name] = error
    return answers


def share_again(queue: str, layout: Layout) -> Steps[bool]:
    """Do the same with the policy that the queue has; nothing undoes a change of it that is made at the same time."""
    keys = QueueKeys(queue)
    for _ in range(_TRIES):
        values = yield ops.read_hash(keys.config)
        policy, known = policy_of(values), {name: values.get(name) for name in (*_POLICY, Config.WHOLE)}
        shares = _shares(queue, layout, policy)
        if not (yield ops.exchange_policy(keys, known, shares.pop(queue))):
            continue
        checked(list((yield from _give(shares)).values()))
        values = yield ops.read_hash(keys.config)
        if read_layout(values.get(Config.PARTITIONS)) != layout:
            return False
        if policy_of(values) == policy:
            break
    return not layout.several or (yield from take_in(queue, layout))


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
