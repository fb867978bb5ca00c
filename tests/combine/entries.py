"""What is combined: the entries of the contract's tables, each with a value that makes it work.

A new option or setting is here on the day it is declared: its kind has a sample. What an entry needs for itself stands
in `OPTIONS` or `SETTINGS`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from reliq.contract import kinds, options, settings
from reliq.contract.options import KOMBU, OUTBOX, PUBLISH, SCHEDULE, SEND, SPARK

UNSET = "-"
TEXT = "k"  #: of all keys: two kinds of keys with one text are two keys
HOUR = 3600.0
AGES = 30 * 86_400.0  #: longer than a story takes

_BY_KIND: Mapping[type[kinds.Kind], Any] = {
    kinds.Duration: HOUR, kinds.Headers: {"tenant": "a"}, kinds.Text: TEXT, kinds.Identity: "its-id", kinds.Flag: True,
    kinds.Rate: "50/s", kinds.Weights: {TEXT: 2}, kinds.Durability: "replicas=1", kinds.Whole: 1,
    kinds.Tokens: 3,
}  # fmt: skip
_VALUES: Mapping[str, Any] = {
    "ttl": AGES, "at_most": 2 * HOUR, "max_bytes": 2**28, "max_length": 100, "dead_max_count": 100,
    "dead_max_age": AGES, "history": HOUR,
}  # fmt: skip


#: More than one value: a concurrency of less than the number of partitions is refused.
_SEVERAL: Mapping[str, list[Any]] = {"concurrency": [1, 6]}


def _samples(entry: options.Option | settings.Setting) -> list[Any]:
    if entry.name in _SEVERAL:
        return _SEVERAL[entry.name]
    if entry.name in _VALUES:
        return [_VALUES[entry.name]]
    if isinstance(entry.kind, kinds.Choice):
        return [one for one in entry.kind.words if one != entry.default]
    return [_BY_KIND[type(entry.kind)]]


#: By name: the values that an entry has in a story, unset first.
OPTIONS = {one.name: [UNSET, *_samples(one)] for one in options.OPTIONS}
SETTINGS = {one.name: [UNSET, *_samples(one)] for one in settings.SETTINGS if one.name != "partitions"}

#: Ways to send, each with the surface that says which options it takes.
WAYS: Mapping[str, str] = {
    "send": SEND, "send_many": SEND, "batch": SEND, "inner batch": SEND, "prepare": SEND, "roll back": SEND,
    "publish": PUBLISH, "schedule": SCHEDULE, "outbox": OUTBOX, "http": SEND, "kombu": KOMBU, "spark": SPARK,
    "flow": PUBLISH,
}  # fmt: skip
#: What the messages of a flow do behind one that fails.
RULES_OF_FLOWS = ("fail", "skip", "run")

#: What a run of the first message does while it has it, beside its outcome.
DEEDS = (UNSET, "charges more", "charges less", "opens a flow", "opens a flow that fails")

_BY_HAND = ("ack", "retry", "retry later", "rejected", "release", "vanish", "expired")
_DURABLE = ("sleep", "wait")
_IN_WORKER = (
    *_DURABLE,
    "ack",
    "result",
    "again",
    "again later",
    "retry",
    "retry later",
    "max_failures",
    "rejected",
    "expired",
)
#: Faces that consume, each with the outcomes it can bring about.
FACES: Mapping[str, tuple[str, ...]] = {
    "consumer": _BY_HAND, "asyncio consumer": _BY_HAND, "lease": (*_BY_HAND, *_DURABLE),
    "inline": _IN_WORKER, "threads": _IN_WORKER, "asyncio": _IN_WORKER, "processes": _IN_WORKER,
    "receiver": ("ack", "return", "lapse", "max_deliveries", "expired"),
    "kombu": ("ack", "rejected", "release", "expired"), "spark": ("ack", "vanish", "expired"),
}  # fmt: skip

#: What an operator does, and when: before messages are taken, or while some are held.
ACTS = (
    "nothing", "cancel", "cancel of a key", "pause", "purge", "delete", "more partitions", "fewer partitions",
    "open the breaker", "redrive",
)  # fmt: skip
MOMENTS = ("before", "held")
SIZES = ("small", "large")
LAYOUTS = (1, 4)

#: The entries in which most defects were found: all of their triples are combined.
TWELVE = (
    "way", "outcome", "act", "moment", "key", "limit_key", "dedup_key", "replace", "concurrency", "key_concurrency",
    "fair", "max_length",
)  # fmt: skip


def given(row: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a table that a row sets."""
    return {name: row[name] for name in table if row.get(name, UNSET) != UNSET}


LATEST = ("replace", "debounce", "at_most")
_NOT_IN_FLOWS = ("dedup_key", "window", *LATEST)
Rule = tuple[tuple[str, ...], Callable[..., bool]]


def _fits(option: str) -> Rule:
    return ("way", option), lambda way, value: value == UNSET or WAYS[way] not in options.BY_NAME[option].left_out


def _with(first: str, second: str) -> Rule:
    """An option that needs another one."""
    return (first, second), lambda one, other: one == UNSET or other != UNSET


def _without(first: str, second: str) -> Rule:
    return (first, second), lambda one, other: UNSET in (one, other)


def _refused_by_flows(option: str) -> Rule:
    return ("way", option), lambda way, value: way != "flow" or value == UNSET


def _not_with_expired(option: str) -> Rule:
    return ("outcome", option), lambda outcome, value: outcome != "expired" or value == UNSET


def of_face(face: str) -> tuple[Rule, ...]:
    """What a face does not know: deeds, partitions."""
    no_deeds: Rule = ("deed",), lambda deed: deed == UNSET
    if face == "receiver":  # it sends such a letter on at once, and the model does not know when
        return no_deeds, (("outcome", "dead_to"), lambda outcome, to: outcome != "max_deliveries" or to == UNSET)
    if face != "kombu":
        return (no_deeds,) if face == "spark" else ()
    return (
        no_deeds,
        (("partitions",), lambda partitions: partitions == 1),
        (("act",), lambda act: act not in ("more partitions", "fewer partitions")),
    )


#: What does not go together: fields, and a function of their values. `rules.refusal` says why.
RULES: tuple[Rule, ...] = (
    *map(_fits, OPTIONS),
    *(_without(one, other) for one in LATEST for other in ("key", "limit_key", "delay")),
    *(_with(one, "dedup_key") for one in LATEST),
    _with("burst", "rate"), _with("debounce", "replace"), _with("at_most", "replace"), _with("at_most", "debounce"),
    *((("way", one), lambda way, value: way not in ("prepare", "roll back") or value == UNSET) for one in LATEST),
    *map(_refused_by_flows, _NOT_IN_FLOWS),
    (("way", "on_failure"), lambda way, rule: way == "flow" or rule == "fail"),
    *((("on_failure", one), lambda rule, value: rule == "fail" or value == UNSET) for one in _NOT_IN_FLOWS),
    *map(_not_with_expired, ("ttl", "delay", "debounce", "at_most")),
    (("concurrency", "partitions"), lambda concurrency, partitions: concurrency != 1 or partitions == 1),
    (("concurrency", "act"), lambda concurrency, act: concurrency != 1 or act != "more partitions"),
    (("way", "priority"), lambda way, priority: way != "kombu" or priority != "high"),
    (("way", "outcome"), lambda way, outcome: outcome != "expired" or way != "kombu"),
)  # fmt: skip
