"""Ops that read and write a queue's policy, the fields of its `config`."""

from collections.abc import Mapping, Sequence

from reliq.model.keys import QueueKeys
from reliq.ops import signatures
from reliq.ops.request import Argument, Op, optional_float, optional_int, optional_text, scripted
from reliq.ops.schema import LIMITS, Config


def configure(keys: QueueKeys, to_set: Mapping[str, int | float | str], to_reset: Sequence[str]) -> list[Op[int]]:
    """Set some fields and reset others to their default."""
    if not LIMITS.isdisjoint(to_set):
        to_set = {**to_set, Config.LIMITED: 1}  # in the same command; the claim that finds no limits removes it
    changes = [set_policy(keys, [part for pair in to_set.items() for part in pair], version=Config.VERSION)]
    if to_reset:
        changes.append(Op(("HDEL", keys.config, *to_reset)))
    if Config.CONCURRENCY in {*to_set, *to_reset}:
        changes.append(Op(("UNLINK", keys.holders)))  # last: what consumers hold is counted anew
    return changes


def exchange_policy(
    keys: QueueKeys, known: Mapping[str, Argument | None], changes: Mapping[str, Argument | None]
) -> Op[bool]:
    """Change fields, also while memory is full, if others are as they were `known`; None: a field is not there."""
    if not LIMITS.isdisjoint(name for name, value in changes.items() if value is not None):
        changes = {**changes, Config.LIMITED: 1}
    fields = ["" if part is None else part for pair in (*known.items(), *changes.items()) for part in pair]
    call = signatures.exchange_policy(keys, version=Config.VERSION, known=len(known), fields=fields)
    return scripted(call, bool)


def set_policy(keys: QueueKeys, fields: Sequence[Argument], version: str = "") -> Op[int]:
    """Set fields, each with its value, also while memory is full. `version`: the field that counts the changes."""
    return scripted(signatures.set_policy(keys, version=version, fields=fields))


def paced_by(keys: QueueKeys) -> Op[tuple[bool, bool]]:
    """Read whether a home has a share of a rate or a concurrency, and whether it is at rest: it starts nothing."""
    return Op(("HMGET", keys.config, Config.RATE, Config.CONCURRENCY), _read_pace)


def _read_pace(reply: list[bytes | None]) -> tuple[bool, bool]:
    return any(reply), reply[1] == b"0"


def pause(keys: QueueKeys) -> Op[int]:
    return set_policy(keys, [Config.PAUSED, 1])


def resume(keys: QueueKeys) -> Op[int]:
    return Op(("HDEL", keys.config, Config.PAUSED))


def unfinished_change(keys: QueueKeys) -> Op[str | None]:
    """Read the change of the policy that has not reached all homes."""
    return Op(("HGET", keys.config, Config.CHANGE), optional_text)


def end_change(keys: QueueKeys, token: str) -> Op[int]:
    """Note that this change has reached all homes, unless a later one has begun."""
    return scripted(signatures.end_change(keys, field=Config.CHANGE, token=token))


def max_deliveries(keys: QueueKeys) -> Op[int | None]:
    """Read max_deliveries; None if it is not set, or not a number because another program has written it."""
    return Op(("HGET", keys.config, Config.MAX_DELIVERIES), _digits)


def _digits(reply: bytes | None) -> int | None:
    return int(reply) if reply and reply.isdigit() else None


def dead_to(keys: QueueKeys) -> Op[str | None]:
    """Read the queue that the dead letters of this one are sent to."""
    return Op(("HGET", keys.config, Config.DEAD_TO), optional_text)


def limits(keys: QueueKeys) -> Op[tuple[int | None, int | None]]:
    """Read the queue's max_length and max_bytes."""
    return Op(("HMGET", keys.config, Config.MAX_LENGTH, Config.MAX_BYTES), _read_limits)


def _read_limits(reply: list[bytes | None]) -> tuple[int | None, int | None]:
    return optional_int(reply[0]), optional_int(reply[1])


def retention(keys: QueueKeys) -> Op[list[bytes | None]]:
    """Read the queue's dead_max_age (seconds) and dead_max_count, for `read_retention`."""
    return Op(("HMGET", keys.config, Config.DEAD_MAX_AGE, Config.DEAD_MAX_COUNT))


def read_retention(found: Sequence[bytes | None]) -> tuple[float | None, int | None]:
    """Convert the reply of `retention`; raises ValueError for a value that is not a number."""
    age, count = found
    return optional_float(age or None), optional_int(count or None)


def follows(keys: QueueKeys) -> Op[bool]:
    """Read whether someone is to know of a message's death: an index, a history, a batch, readers, a flow."""
    fields = (Config.TRACK, Config.HISTORY, Config.BATCHED, Config.EMITTED, Config.FLOWING)
    return Op(("HMGET", keys.config, *fields), any)
