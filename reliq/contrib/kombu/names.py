"""The names of kombu's queues, exchanges and routing keys in reliq."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from reliq.model.keys import instance_of, is_name

_LEGIBLE = 90  #: characters of a kombu name that are kept where the name itself cannot be used
_FOREIGN = re.compile(r"[^A-Za-z0-9._@-]")
_SAFE = "!$&'()+,/:;=?@[]~"  #: characters that need no escape in a word of a routing key


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one application. `prefix` stands before those of all its queues and exchanges."""

    prefix: str = ""

    def lasting_queue(self, name: str) -> str:
        """Return reliq's name of a kombu queue: the same, or one with a digest if reliq does not allow that name."""
        full = self.prefix + name
        return full if is_name(full) and instance_of(full) is None else f"{_legible(full)}@kombu.{_digest(full)}"

    def passing_queue(self, name: str) -> str:
        """Return the name of a queue that is to go with its last consumer: the monitor drops queues with such names."""
        full = self.prefix + name
        return f"{_legible(full)}@broadcast.k{_digest(full)}"

    def routing_key(self, exchange: str, key: str) -> str:
        """Return the routing key of a message that is published to an exchange."""
        return self._joined(exchange, map(_word, _words(key)))

    def pattern(self, exchange: str, kind: str, key: str) -> str:
        """Return the pattern of a binding to an exchange of this kind: direct, topic or fanout.

        So a publisher needs no knowledge of the kind, and one atomic step reaches all queues.
        """
        if kind == "fanout":
            return self._joined(exchange, "#")
        if kind != "topic":
            return self.routing_key(exchange, key)
        return self._joined(exchange, (word if word in ("*", "#") else _word(word) for word in _words(key)))

    def _joined(self, exchange: str, words: Iterable[str]) -> str:
        return ".".join(["kombu", _word(self.prefix + exchange), *words])


def _words(key: str) -> list[str]:
    return key.split(".") if key else []


def _word(text: str) -> str:
    """Escape what has a meaning in routing keys, or is not allowed there, as an empty word."""
    return quote(text, safe=_SAFE).replace(".", "%2E") or "%"


def _legible(name: str) -> str:
    text = _FOREIGN.sub("_", name)[:_LEGIBLE]
    return text if is_name(text) else f"q{text}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:20]
