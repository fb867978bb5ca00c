"""Keywords of calls that are declared once, as a TypedDict, and taken by several calls."""

from collections.abc import Iterable, Mapping
from typing import TypedDict

from reliq.model.settings import Duration


class DeadLetterFilters(TypedDict, total=False):
    """Filters of dead letters; a letter has to fit all that are given, and None is no filter.

    `ids`: one or several. `reason`: why they died. `error_class`: of the last error, with or without its module.
    `older_than`, `newer_than`: since death. `headers`: all of these must be equal.
    """

    ids: str | Iterable[str] | None
    reason: str | None
    error_class: str | None
    older_than: Duration | None
    newer_than: Duration | None
    headers: Mapping[str, str] | None


class ConfigChanges(TypedDict, total=False):
    """Changes of a queue's policy; None resets a setting to its default.

    `max_length`: messages ready and delayed, above which sends raise QueueFull. `max_bytes`: of these messages in
    Redis' memory, likewise. `max_deliveries`: consumers that may vanish with a message before it is a dead letter.
    `dead_max_age`, `dead_max_count`: how long and how many dead letters are kept. `durability`: default of sends.
    `rate`: how many messages are given out, such as "100/s"; `burst`: how many of them at once. `concurrency`: how many
    are in processing at once, over all consumers. `key_rate`, `key_concurrency`: the same for the messages of one limit
    key. `fair`: one message of each limit key after another; `weights`: how many of a key are taken in its turn.
    `track`: keep an index of the messages, so that `find` is quick. `history`: how long their transitions are kept.
    `partitions`: how many the queue has, from 1 to 256, for a stream that one Redis node cannot carry.
    """

    max_length: int | None
    max_bytes: int | None
    max_deliveries: int | None
    dead_max_age: Duration | None
    dead_max_count: int | None
    durability: str | None
    rate: str | None
    burst: int | None
    concurrency: int | None
    key_rate: str | None
    key_concurrency: int | None
    fair: bool | None
    weights: Mapping[str, int] | None
    track: bool | None
    history: Duration | None
    partitions: int | None


def check_names(given: Mapping[str, object], declared: type, what: str) -> None:
    """Raise TypeError for a name that the TypedDict `declared` lacks, as Python does for an unknown keyword."""
    known: frozenset[str] = declared.__optional_keys__  # type: ignore[attr-defined]
    for name in given:
        if name not in known:
            has = ", ".join(sorted(known))
            raise TypeError(f"unexpected keyword argument {name!r}; the {what} of this call are {has}")
