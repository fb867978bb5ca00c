"""Keywords of calls that are declared once, as a TypedDict, and taken by several calls."""

from collections.abc import Iterable, Mapping
from typing import TypedDict

from reliq.contract.values import Duration


class DeadLetterFilters(TypedDict, total=False):
    """Filters of dead letters; a letter has to fit all that are given, and None is no filter.

    `ids`: one or several. `reason`: why they died. `error_class`: of the last error, with or without its module.
    `error_text`: a part of the first line that this error says.
    `older_than`, `newer_than`: since death. `headers`: all of these must be equal.
    """

    ids: str | Iterable[str] | None
    reason: str | None
    error_class: str | None
    error_text: str | None
    older_than: Duration | None
    newer_than: Duration | None
    headers: Mapping[str, str] | None


#: What other libraries call an option.
_ELSEWHERE = {
    "countdown": "delay", "eta": "delay", "delay_seconds": "delay", "enqueue_in": "delay", "expires": "ttl",
    "ttl_seconds": "ttl", "job_id": "id", "task_id": "id", "message_id": "id", "message_group_id": "key",
    "message_deduplication_id": "dedup_key",
}  # fmt: skip


def check_names(given: Mapping[str, object], declared: type, what: str) -> None:
    """Raise TypeError for a name that the TypedDict `declared` lacks, as Python does for an unknown keyword."""
    known: frozenset[str] = declared.__optional_keys__  # type: ignore[attr-defined]
    for name in given:
        if name not in known:
            has = ", ".join(sorted(known))
            here = _ELSEWHERE.get(name)
            hint = f" (reliq calls it {here})" if here in known else ""
            raise TypeError(f"unexpected keyword argument {name!r}{hint}; the {what} of this call are {has}")
