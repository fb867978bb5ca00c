"""A queue's policy as a form: conversion to fields and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reliq.errors import InvalidSetting
from reliq.model import settings
from reliq.model.settings import seconds
from reliq.protocol.policy import Config


@dataclass(frozen=True, slots=True)
class Field:
    """One setting. An empty field means its default."""

    name: str
    label: str
    hint: str  #: the meaning of an empty field
    number: bool = True
    smallest: int = 1


FIELDS = (
    Field("max_length", "Most messages, ready and delayed", "no limit"),
    Field("max_bytes", "Most bytes of Redis' memory for them", "no limit", smallest=settings.MIN_QUOTA_BYTES),
    Field("max_deliveries", "Deliveries before a message is dead", f"{settings.MAX_DELIVERIES}"),
    Field("dead_max_age", "Dead letters are kept for, such as 30d or 12h", "for good", number=False),
    Field("dead_max_count", "Dead letters that are kept at most", "all of them"),
    Field("rate", "Messages given out, such as 100/s", "no limit", number=False),
    Field("burst", "Of these, how many at once", "those of a tenth of a second"),
    Field("concurrency", "Messages in processing at once", "no limit"),
    Field("key_rate", "Messages of one key given out, such as 5/s", "no limit", number=False),
    Field("key_concurrency", "Messages of one limit key at once", "no limit"),
    Field("fair", "One message of each limit key after another: true or false", "false", number=False),
    Field("weights", "Weights of limit keys, such as gold:4,silver:2", "1 for each", number=False),
    Field("track", "An index of all messages: true or false", "false", number=False),
    Field("history", "Transitions of messages are kept for, such as 1h", "none", number=False),
    Field("partitions", "Partitions, on the nodes of a cluster", "1"),
    Field("durability", "A send is answered when it is in memory, fsync or replicas=1", "memory", number=False),
)


def written(config: Config) -> dict[str, str]:
    """Return the texts of the fields; empty for defaults."""
    default = Config()
    values = {field.name: getattr(config, field.name) for field in FIELDS}
    return {name: "" if value == getattr(default, name) else _text(name, value) for name, value in values.items()}


def _text(name: str, value: Any) -> str:
    if name == "weights":
        return ",".join(f"{key}:{weight}" for key, weight in value.items())
    if name in ("fair", "track"):
        return "true"
    if name not in ("dead_max_age", "history"):
        return str(value)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if value % length == 0:
            return f"{value // length:.0f}{unit}"
    return f"{value:g}s"


def changes(fields: Sequence[tuple[str, str]], before: Config) -> dict[str, Any]:
    """Return the changes of the form for `queue.configure`; raises InvalidSetting."""
    given, was = dict(fields), written(before)
    return {
        field.name: _value(field, given)
        for field in FIELDS
        if field.name in given and given[field.name].strip() != was[field.name]
    }


def _value(field: Field, given: Mapping[str, str]) -> Any:
    text = given[field.name].strip()
    if not text:
        return None
    if field.name in ("dead_max_age", "history"):
        return seconds(text, field.name, shortest=1.0)
    if not field.number:
        return text
    digits = text.replace("_", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise InvalidSetting(f"{field.name} is {text!r}: give a whole number, or nothing")
    return int(digits)
