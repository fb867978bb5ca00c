"""What a handler emits while it runs."""

import json
import re
from base64 import b64encode
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Self

from reliq.errors import InvalidSetting
from reliq.model.result import read_result, stored

MAX_CHUNKS = 10_000  #: of a message
MAX_OUTPUT_BYTES = 8 * 1024 * 1024  #: of all chunks of a message
_CHUNK_ID = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")  # a stream's numbers have 64 bits


@dataclass(frozen=True, slots=True)
class Emit:
    """A chunk, as it is stored."""

    chunk: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of output. `id` grows; `run` counts the runs of the handler that emitted, from 1."""

    id: str
    run: int
    value: Any  #: as it was emitted: JSON as Python values, or bytes

    @classmethod
    def read(cls, entry: Any) -> Self:
        identity, fields = entry
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        return cls(identity.decode(), int(named[b"run"]), read_result(named[b"chunk"]))

    @property
    def at(self) -> int:
        """When it was emitted: ms since the epoch, the Redis server's clock."""
        return int(self.id.partition("-")[0])

    @property
    def text(self) -> str:
        """A text as it is; any other value as a line of JSON."""
        return self.value if isinstance(self.value, str) else json.dumps(self.members()["value"]) + "\n"

    def members(self) -> dict[str, Any]:
        """Return what a program is told of it, as JSON: bytes as base64."""
        is_bytes = isinstance(self.value, bytes)
        return {
            "id": self.id, "at": self.at, "run": self.run,
            "value": b64encode(self.value).decode() if is_bytes else self.value,
            "encoding": "base64" if is_bytes else "json",
        }  # fmt: skip


def stored_chunk(value: object) -> bytes:
    """Return a chunk as it is stored; raises InvalidMessage."""
    return stored(value, "emit got", "chunk")


def check_after(after: object) -> str:
    """Return the id of the chunk after which to read; raises InvalidSetting."""
    if after == "":
        return ""
    if not isinstance(after, str) or not _CHUNK_ID.fullmatch(after):
        raise InvalidSetting(f"after is {after!r}: give the id of a chunk, such as 1700000000000-0")
    return after


class OutputCalls:
    """What a message has for handlers whose output is read while they run."""

    __slots__ = ()

    def emit(self, chunk: Any) -> Awaitable[None]:
        """Append a chunk to the message's output: JSON or bytes, up to 1 MiB; await it in async handlers.

        `Queue.output` reads it. Raises LeaseLost, and InvalidMessage after 10,000 chunks or 8 MiB.
        """
        done: Awaitable[None] = self._holder().act(self, Emit(stored_chunk(chunk)))  # type: ignore[attr-defined]
        return done
