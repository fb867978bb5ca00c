"""The policy of a queue: its settings, checked, and the share of them that each partition has."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from reliq.errors import InvalidSetting
from reliq.model import settings
from reliq.model.element import limit_group_of
from reliq.model.partitions import MOST, read_layout
from reliq.model.settings import whole
from reliq.ops.schema import SETTINGS
from reliq.ops.schema import Config as Field
from reliq.protocol.durability import MEMORY, durability

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Config:
    """The policy of a queue. It is stored in Redis, so all producers, workers and monitors follow the same one."""

    max_length: int | None = None  #: messages ready and delayed, above which sends raise QueueFull
    max_bytes: int | None = None  #: of these messages in Redis' memory, above which sends raise QueueFull
    max_deliveries: int = settings.MAX_DELIVERIES
    dead_max_age: float | None = None  #: seconds a dead letter is kept
    dead_max_count: int | None = None  #: how many of the latest dead letters are kept
    paused: bool = False
    durability: str = "memory"  #: default of sends; a change takes effect within a minute
    rate: str | None = None  #: such as "100/s": how many messages are given out, by the server's clock
    burst: int | None = None  #: how many the rate lets through at once; None: those of a tenth of a second
    concurrency: int | None = None  #: how many messages are in processing at once, over all consumers
    key_rate: str | None = None  #: such as "5/s": how many messages of one key are given out
    key_concurrency: int | None = None  #: how many messages of one limit key are ready or in processing at once
    fair: bool = False  #: whether one message of each limit key is taken after another
    weights: dict[str, int] = field(default_factory=dict)  #: limit key -> how many of its messages in its turn
    partitions: int = 1  #: how many the queue has; they share max_length, max_bytes, dead_max_count, rate, concurrency
    track: bool = False  #: whether an index finds ready messages at once
    history: float | None = None  #: seconds for which the transitions of messages are kept


#: Settings of the whole queue of which each partition has a share. The others apply to each partition, or to a key.
SHARED = (
    Field.MAX_LENGTH, Field.MAX_BYTES, Field.DEAD_MAX_COUNT, Field.RATE, Field.BURST, Field.CONCURRENCY,
)  # fmt: skip


def share(name: str, value: Any, place: int, count: int) -> int | str:
    """Return the share that partition number `place` of so many has of a setting, as stored."""
    if name == Field.RATE:
        number, _, unit = str(value).partition("/")
        return value if count == 1 else f"{float(number) / count:.6f}/{unit}"
    whole, rest = divmod(int(value), count)
    return max(1, whole + (place < rest))


def check_shares(policy: Mapping[str, Any], count: int) -> None:
    """Raise InvalidSetting for a policy that so many partitions cannot share."""
    concurrency, max_bytes = policy.get(Field.CONCURRENCY), policy.get(Field.MAX_BYTES)
    if concurrency is not None and int(concurrency) < count:
        raise InvalidSetting(
            f"concurrency is {concurrency} and partitions is {count}: each partition gives out one message at least, "
            f"so set concurrency to {count} or more, partitions to {concurrency} or fewer, or limit keys "
            "(key_concurrency)"
        )
    if max_bytes is not None and count > 1 and int(max_bytes) < count * settings.MIN_QUOTA_BYTES:
        raise InvalidSetting(
            f"max_bytes is {max_bytes} and partitions is {count}: each partition needs {settings.MIN_QUOTA_BYTES}, so "
            f"set max_bytes to {count * settings.MIN_QUOTA_BYTES} or more"
        )


def read_whole(values: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the whole queue, from the fields of its first partition."""
    try:
        whole = msgspec.json.decode(values.get(Field.WHOLE, "{}"), type=dict[str, str])
    except msgspec.DecodeError:
        raise InvalidSetting(f"the queue's settings in Redis are {values[Field.WHOLE]!r}: set them again") from None
    return {**values, **whole}


def read_config(values: Mapping[str, str]) -> Config:
    def number(name: str, kind: Callable[[str], T]) -> T | None:
        try:
            return kind(values[name]) if name in values else None
        except ValueError:  # written by another program
            raise InvalidSetting(
                f"the queue's {name} in Redis is {values[name]!r}, which is not a number: "
                f"set it again, or reset it with `reliq config QUEUE {name}=`"
            ) from None

    values = read_whole(values)
    return Config(
        partitions=read_layout(values.get(Field.PARTITIONS)).count,
        max_length=number(Field.MAX_LENGTH, int),
        max_bytes=number(Field.MAX_BYTES, int),
        max_deliveries=number(Field.MAX_DELIVERIES, int) or settings.MAX_DELIVERIES,
        dead_max_age=number(Field.DEAD_MAX_AGE, float),
        dead_max_count=number(Field.DEAD_MAX_COUNT, int),
        paused=Field.PAUSED in values,
        durability=values.get(Field.DURABILITY, MEMORY.name),
        rate=values.get(Field.RATE),
        burst=number(Field.BURST, int),
        concurrency=number(Field.CONCURRENCY, int),
        key_rate=values.get(Field.KEY_RATE),
        key_concurrency=number(Field.KEY_CONCURRENCY, int),
        fair=Field.FAIR in values,
        weights=_read_weights(values.get(Field.WEIGHTS)),
        track=Field.TRACK in values,
        history=number(Field.HISTORY, float),
    )


def _read_weights(text: str | None) -> dict[str, int]:
    try:
        return settings.weights(json.loads(text), Field.WEIGHTS) if text else {}
    except ValueError:  # written by another program; InvalidSetting is one too
        raise InvalidSetting(f"the queue's weights in Redis are {text!r}: set them again, or reset them") from None


def weight_digests(weights: Any) -> str:
    return " ".join(f"{limit_group_of(key)}={weight}" for key, weight in json.loads(weights).items())


def check_setting(name: str) -> None:
    """Refuse an unknown setting, even if it is only reset: the hash also has internal fields (`round`)."""
    if name not in SETTINGS:
        raise InvalidSetting(f"a queue has no setting {name!r}; it has {', '.join(SETTINGS)}")


def checked_setting(name: str, value: Any) -> int | float | str:
    match name:
        case Field.MAX_LENGTH | Field.DEAD_MAX_COUNT:
            return whole(value, name, 1, 10**12)
        case Field.MAX_BYTES:
            return whole(value, name, settings.MIN_QUOTA_BYTES, 10**15)
        case Field.MAX_DELIVERIES:
            return whole(value, name, 1, 10_000)
        case Field.DEAD_MAX_AGE | Field.HISTORY:
            return settings.seconds(value, name, shortest=1.0)
        case Field.RATE | Field.KEY_RATE:
            return settings.rate(value, name)
        case Field.BURST | Field.CONCURRENCY:
            return whole(value, name, 1, 1_000_000)
        case Field.KEY_CONCURRENCY:
            return whole(value, name, 1, 1000)
        case Field.PARTITIONS:
            return whole(value, name, 1, MOST)
        case Field.FAIR | Field.TRACK:
            return int(settings.yes_or_no(value, name))
        case Field.WEIGHTS:
            return json.dumps(settings.weights(value, name))
        case _:
            return durability(value).name
