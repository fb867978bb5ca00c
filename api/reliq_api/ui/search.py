"""The search for dead letters: converted between query string, form, filter and sentence.

The search form offers the filters of redrive and purge, so that both act on the letters shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from urllib.parse import urlencode

from fastapi import Request

from reliq.errors import InvalidSetting
from reliq.protocol.dead_letters import Filter
from reliq_api.http.pairs import headers_of

AGES = ("15m", "1h", "6h", "1d", "7d", "30d")

Fields = Sequence[tuple[str, str]]


def query_of(request: Request, known: Iterable[str]) -> Fields:
    """Return the query of a page whose forms act on all that it lists.

    Raises InvalidSetting for an unknown name: without it, the page would list more than was asked for.
    """
    fields = request.query_params.multi_items()
    for name, _ in fields:
        if name not in (*known, "after", "notice", "count"):
            raise InvalidSetting(f"there is no filter {name!r} on this page: it has {', '.join(known)}")
    return fields


@dataclass(frozen=True, slots=True)
class Selection:
    """What a page's form selects, a text for each field; an empty one selects everything."""

    KEYWORDS: ClassVar[Mapping[str, str]]  #: of the library, for each field but `header`
    header: str = ""  #: name=value
    ids: tuple[str, ...] = ()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return (*cls.KEYWORDS, "header")

    @classmethod
    def read(cls, fields: Fields) -> Self:
        """Read a query string or a form; the last one of a repeated field counts, except for `id`."""
        single = {name: value.strip() for name, value in fields if name in cls.names() and value.strip()}
        return cls(**single, ids=tuple(dict.fromkeys(value for name, value in fields if name == "id" and value)))

    def fields(self) -> list[tuple[str, str]]:
        """Return the fields for hidden inputs and links, as read by `read`."""
        single = [(name, getattr(self, name)) for name in self.names() if getattr(self, name)]
        return single + [("id", one) for one in self.ids]

    def query(self, **more: str) -> str:
        pairs = [pair for pair in self.fields() if pair[0] not in more]
        text = urlencode(pairs + [(name, value) for name, value in more.items() if value])
        return f"?{text}" if text else ""

    def filters(self) -> dict[str, Any]:
        """Return the keywords for the library's `list` and its like, without `ids`; raises InvalidSetting."""
        wanted = {keyword: getattr(self, name) for name, keyword in self.KEYWORDS.items()}
        return {name: value for name, value in {**wanted, "headers": headers_of([self.header])}.items() if value}


@dataclass(frozen=True, slots=True)
class Search(Selection):
    """A search for dead letters."""

    KEYWORDS: ClassVar[Mapping[str, str]] = {
        "reason": "reason", "error": "error_class", "text": "error_text", "newer": "newer_than", "older": "older_than",
    }  # fmt: skip
    reason: str = ""
    error: str = ""
    text: str = ""  #: of the last error
    newer: str = ""
    older: str = ""

    def filter(self) -> Filter:
        """Return the filter of dead letters; raises InvalidSetting."""
        return Filter(**self.filters())

    def filters(self) -> dict[str, Any]:
        """Return the keywords for `queue.dead.list`, `.redrive` and `.purge`; raises InvalidSetting."""
        return {**super(Search, self).filters(), **({"ids": self.ids} if self.ids else {})}

    def sentence(self) -> str:
        """Describe the search in words, for confirmations."""
        return "; ".join(self._parts()) or "every dead letter of the queue"

    def _parts(self) -> Iterable[str]:
        if self.ids:
            yield f"id {self.ids[0]}" if len(self.ids) == 1 else f"{len(self.ids)} chosen letters"
        if self.reason:
            yield f"reason {self.reason}"
        if self.error:
            yield f"last error {self.error}"
        if self.text:
            yield f"an error that says {self.text}"
        if self.header:
            yield f"header {self.header}"
        if self.newer:
            yield f"died in the last {self.newer}"
        if self.older:
            yield f"died more than {self.older} ago"
