"""The policy of a queue: its settings, checked, and the share of them that each partition has."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from reliq.contract import values
from reliq.contract.keywords import Config
from reliq.contract.kinds import Flag
from reliq.contract.settings import BY_NAME, PAUSED, SETTINGS, Setting
from reliq.errors import InvalidSetting
from reliq.model.element import limit_group_of
from reliq.model.partitions import read_layout
from reliq.ops.schema import Config as Field

#: Settings of the whole queue of which each partition has a share. The others apply to each partition, or to a key.
SHARED = tuple(setting.name for setting in SETTINGS if setting.shared)


def share(name: str, value: Any, place: int, count: int) -> int | str:
    """Return the share that partition number `place` of so many has of a setting, as stored."""
    if name == Field.RATE:
        number, _, unit = str(value).partition("/")
        # Digits rather than an exponent, which the scripts do not read; the lowest rate over 1,000 partitions has four.
        return value if count == 1 else f"{float(number) / count:.12f}".rstrip("0").rstrip(".") + f"/{unit}"
    whole, rest = divmod(int(value), count)
    return max(1, whole + (place < rest))


def most_bytes(config: Config) -> int | None:
    """Return how many bytes the home with the largest share of `max_bytes` may have; None: any number."""
    return None if config.max_bytes is None else int(share(Field.MAX_BYTES, config.max_bytes, 0, config.partitions))


def is_paced(policy: Mapping[str, Any]) -> bool:
    """Whether all partitions together start a limited number of messages: a closed one at rest then starts none."""
    return Field.RATE in policy or Field.CONCURRENCY in policy


def check_shares(policy: Mapping[str, Any], count: int) -> None:
    """Raise InvalidSetting for a policy that so many partitions cannot share."""
    concurrency, max_bytes = policy.get(Field.CONCURRENCY), policy.get(Field.MAX_BYTES)
    if concurrency is not None and int(concurrency) < count:
        raise InvalidSetting(
            f"concurrency is {concurrency} and partitions is {count}: each partition gives out one message at least, "
            f"so set concurrency to {count} or more, partitions to {concurrency} or fewer, or limit keys "
            "(key_concurrency)"
        )
    if max_bytes is not None and count > 1 and int(max_bytes) < count * values.MIN_QUOTA_BYTES:
        raise InvalidSetting(
            f"max_bytes is {max_bytes} and partitions is {count}: each partition needs {values.MIN_QUOTA_BYTES}, so "
            f"set max_bytes to {count * values.MIN_QUOTA_BYTES} or more"
        )


def read_whole(values: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the whole queue, from the fields of its first partition."""
    try:
        whole = msgspec.json.decode(values.get(Field.WHOLE, "{}"), type=dict[str, str])
    except msgspec.DecodeError:
        raise InvalidSetting(f"the queue's settings in Redis are {values[Field.WHOLE]!r}: set them again") from None
    return {**values, **whole}


def read_config(values: Mapping[str, str]) -> Config:
    """Return the policy from the fields of the queue's first partition; raises InvalidSetting for what is no value."""
    values = read_whole(values)
    found = {one.name: _loaded(one, values[one.name]) for one in (*SETTINGS, PAUSED) if one.name in values}
    return Config(**{**found, Field.PARTITIONS: read_layout(values.get(Field.PARTITIONS)).count})


def _loaded(setting: Setting, text: str) -> Any:
    if setting.name == Field.PARTITIONS:  # its field is the layout
        return None
    try:
        return setting.kind.loaded(text)
    except ValueError:  # written by another program; InvalidSetting is one too
        raise InvalidSetting(
            f"the queue's {setting.name} in Redis is {text!r}, which is not {setting.kind.noun}: "
            f"set it again, or reset it with `reliq queue config QUEUE {setting.name}=`"
        ) from None


def weight_digests(weights: Any) -> str:
    return " ".join(f"{limit_group_of(key)}={weight}" for key, weight in json.loads(weights).items())


def checked_setting(name: str, value: Any) -> int | float | str | None:
    """Return a setting as it is stored; None resets it. Raises InvalidSetting, also for an unknown name."""
    setting = BY_NAME.get(name)
    if setting is None:
        raise InvalidSetting(f"a queue has no setting {name!r}; it has {', '.join(BY_NAME)}")
    if value is None:
        return None
    checked = setting.kind.check(value, name)
    return None if isinstance(setting.kind, Flag) and not checked else setting.kind.stored(checked)


def check_burst(rate: object) -> None:
    """Raise InvalidSetting if a burst is to be set of a queue without a rate."""
    if rate is None:
        raise InvalidSetting("burst says how many messages may start at once with a rate: set rate too, or before it")
