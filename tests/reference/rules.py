"""Rules that hold at every moment, whatever a queue does, and which options of a message go together."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reliq.contract.counters import balance


class Impossible(AssertionError):
    """Something happened that must never happen."""


class Full(Exception):
    """A send was refused: the queue would have more than max_length messages."""


def missing(counters: Mapping[str, int], there: int) -> int:
    """Return how many messages a queue has counted that are not there: each is in a place, or counted as gone."""
    return balance(counters) - there


def crowded(holders: Iterable[str], most: int = 1) -> list[str]:
    """Return the keys of which more than so many messages are out; `holders`: the key of each, "" without one."""
    return sorted(key for key, count in Counter(holders).items() if key and count > most)


def in_order(began: Sequence[Any], sent: Sequence[Any]) -> bool:
    """Whether messages of a key began in the order in which they were sent; some may not have begun."""
    known = set(began)
    return list(began) == [one for one in sent if one in known]


def batch_is_possible(still_open: int, sent: int, dead: int, cancelled: int) -> bool:
    return min(still_open, dead, cancelled) >= 0 and still_open + dead + cancelled <= sent


def death_is_right(reason: str, *, rejected: bool, failures: int, most_failures: int, late: bool) -> bool:
    """Whether a message that was settled may be a dead letter for this reason."""
    return {"rejected": rejected, "max_failures": failures > most_failures, "expired": late}.get(reason, False)


def sent_later(identity: str, other: str) -> bool:
    """Whether the ids of two messages tell that the first was sent later: those of reliq begin with the time."""
    return all(re.match("[0-9a-f]{8}-[0-9a-f]{4}-7", one) for one in (identity, other)) and identity > other


def refusal(options: Mapping[str, Any]) -> str:
    """Return why these options of a message do not go together; empty if they do. Unset options are left out."""
    key, limit_key, replace = options.get("key"), options.get("limit_key"), options.get("replace", False)
    if key and limit_key and key != limit_key:
        return "a message has one key: with an ordering key it has the limits of that"
    if not replace:
        return "they delay what is replaced" if {"debounce", "at_most"} & options.keys() else ""
    if "dedup_key" not in options:
        return "there is no key of the messages to replace"
    if key or limit_key:
        return "messages of a key all run"
    if options.get("delay"):
        return "debounce delays it"
    if "at_most" in options and not 0 < options.get("debounce", 0) <= options["at_most"]:
        return "at_most bounds debounce"
    return ""
