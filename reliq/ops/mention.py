"""Waiting until an entry of a stream mentions a name."""

from collections.abc import Callable
from typing import Any

import msgspec

from reliq.contract import values
from reliq.ops.request import Op, milliseconds

Mentions = tuple[bytes, list[str]]  #: the id of the latest entry, and the names in all that were read


class Mention(Op[Mentions | None], frozen=True, kw_only=True):
    """A read that waits for entries of a stream after `since`; None: none came. The caller waits for `name`.

    Stores for asyncio share such a read among all who wait for the same stream (`AioStore.run_apart`), each for up to
    `within` seconds; others wait for at most `values.BLOCK`, as the socket's timeout is little longer.
    """

    stream: str
    since: bytes
    name: str
    within: float

    def after(self, since: bytes) -> "Mention":
        """Return the same for the entries after that one."""
        return msgspec.structs.replace(self, since=since, command=_command(self.stream, since, self.blocks))


def mention(stream: str, since: bytes, name: str, seconds: float, names: Callable[[Any], list[str]]) -> Mention:
    """Wait for `name`; `names` reads the names in the fields of an entry."""

    def read(reply: Any) -> Mentions | None:
        if not reply:
            return None
        entries = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
        return entries[-1][0], [one for _, fields in entries for one in names(fields)]

    blocks = min(seconds, values.BLOCK)
    command = _command(stream, since, blocks)
    return Mention(command, read, blocks=blocks, stream=stream, since=since, name=name, within=seconds)


def _command(stream: str, since: bytes, seconds: float) -> tuple[bytes | str | int, ...]:
    return "XREAD", "BLOCK", milliseconds(seconds), "STREAMS", stream, since
