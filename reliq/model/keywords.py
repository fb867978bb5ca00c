"""Keywords of calls that are declared once, as a TypedDict, and taken by several calls."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypedDict, TypeVar, cast

from reliq.contract.nearest import nearest
from reliq.contract.values import Duration

F = TypeVar("F", bound=Callable[..., Any])


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
    _check(given, declared.__optional_keys__, what)  # type: ignore[attr-defined]


def named_options(function: F) -> F:
    """Make a function say its options where it is called with another one, as the calls above do."""
    parameters = inspect.signature(function).parameters.values()
    known = frozenset(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)
    by_name = {one.name for one in parameters}

    @functools.wraps(function)
    def checked(*places: Any, **given: Any) -> Any:
        _check([name for name in given if name not in by_name], known, "options")
        return function(*places, **given)

    return cast("F", checked)


def _check(given: Iterable[str], known: Collection[str], what: str) -> None:
    for name in given:
        if name not in known:
            here, near = _ELSEWHERE.get(name), nearest(name, known)
            hint = f" (reliq calls it {here})" if here in known else f" (is it {near}?)" if near else ""
            has = ", ".join(sorted(known))
            raise TypeError(f"unexpected keyword argument {name!r}{hint}; the {what} of this call are {has}")
