"""Ops of output: append a chunk, read some, and what monitors do with whole streams."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from reliq.contract import values
from reliq.features.output import signatures
from reliq.features.output.model import MAX_CHUNKS, MAX_OUTPUT_BYTES, Chunk
from reliq.model.keys import QueueKeys
from reliq.ops.coming import Coming
from reliq.ops.held import Hold
from reliq.ops.request import Op, as_text, milliseconds, scripted


class Emitted(NamedTuple):
    """A part of the output of a message. `head`: empty if the message has left the queue, or has emitted nothing."""

    head: str
    exists: bool  #: whether there is any output
    entries: tuple[Any, ...]  #: as Redis has them

    @classmethod
    def read(cls, reply: Any) -> Self:
        head, length, entries = reply
        return cls((head or b"").decode(), length > 0, tuple(entries))

    @property
    def open(self) -> bool:
        """Whether its handler may go on."""
        return self.head.endswith(" open")

    @property
    def chunks(self) -> list[Chunk]:
        return [Chunk.read(one) for one in self.entries]


def emit(hold: Hold, token: str, chunk: bytes) -> Op[str]:
    """Append a chunk; answers "ok", "lost" or "full". `token`: of the call, so that it may be repeated."""
    keys, message = hold.keys, hold.message
    call = signatures.emit(
        keys, output=keys.output(message.id), nonce=hold.nonce, token=token, chunk=chunk, most=MAX_CHUNKS,
        most_bytes=MAX_OUTPUT_BYTES, **hold.named,
    )  # fmt: skip
    return scripted(call, as_text)


def emitted(keys: QueueKeys, identity: str, after: str, limit: int) -> Op[Emitted]:
    """Read up to `limit` chunks that come after one; empty: from the first one on."""
    call = signatures.emitted(keys, output=keys.output(identity), id=identity, after=after, limit=limit)
    return scripted(call, Emitted.read)


def awaited(keys: QueueKeys, identity: str, after: str, limit: int, seconds: float) -> Op[list[Chunk]]:
    """Wait for such chunks, at most `values.BLOCK` seconds; answers none if none came."""
    within = min(seconds, values.BLOCK)
    stream = keys.output(identity)
    command = ("XREAD", "COUNT", limit, "BLOCK", milliseconds(within), "STREAMS", stream, after or "0-0")
    return Op(command, _read_streams, blocks=within)


def latest(keys: QueueKeys, identity: str, most: int) -> Op[list[Chunk]]:
    """Read the latest chunks, oldest first."""
    command = ("XREVRANGE", keys.output(identity), "+", "-", "COUNT", most)
    return Op(command, lambda reply: [Chunk.read(one) for one in reversed(reply)])


def _read_streams(reply: Any) -> list[Chunk]:
    if not reply:
        return []
    entries = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    return [Chunk.read(one) for one in entries]


def put_output(keys: QueueKeys, one: Coming, first: str, emitted: Emitted) -> Op[int]:
    """Store a part of an output that was read in another home, before its message enters its new home.

    `first`: the id of the first chunk of all; empty if there are none any more.
    """
    chunks = (
        signatures.put_output_chunk(chunk_id=entry, run=fields[1], chunk=fields[3]) for entry, fields in emitted.entries
    )
    call = signatures.put_output(
        keys, output=keys.output(one.id), brought=one.mark, id=one.id, head=emitted.head, first=first, chunks=chunks
    )
    return scripted(call)


class Gone(NamedTuple):
    """A message with output that has left its queue unhandled."""

    id: str
    left_at: str  #: ms, by the server's clock; empty: an earlier version has noted it


def gone_outputs(keys: QueueKeys, limit: int) -> Op[tuple[int, list[Gone]]]:
    """Find outputs that are to be deleted; answers up to which number, and their messages."""

    def read(reply: list[bytes]) -> tuple[int, list[Gone]]:
        return int(reply[0]), [Gone(*one.decode().partition(" ")[::2]) for one in reply[1:]]

    return scripted(signatures.gone_outputs(keys, limit=limit), read)


def drop_outputs(keys: QueueKeys, up_to: int, gone: Sequence[Gone]) -> Op[int]:
    """Delete the outputs that were found."""
    streams = [keys.output(one.id) for one in gone]
    records = [signatures.drop_outputs_message(id=one.id, left_at=one.left_at) for one in gone]
    return scripted(signatures.drop_outputs(keys, streams=streams, up_to=up_to, messages=records))
