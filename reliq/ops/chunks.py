"""Chunks: the messages that a job stages as one piece and that one step makes visible.

A chunk is the encoded arguments of a command, so that rolling a job forward passes on bytes without parsing them:

- `*`: a RESP array of elements, for LPUSH
- `=`: an array of references and bodies, for HSET; the elements that name these bodies are in a later chunk of the part
- `%`: a RESP map of place and element, for the script commit_roll: messages with a delay, an ordering key, a priority
  or a deduplication key, and rows that become dead letters
"""

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reliq.ops import Packed

LARGEST = 384 * 1024  #: bytes of a chunk of more than one message; Redis serves no other client while it moves a chunk
MOST_MESSAGES = 2000  #: messages in a chunk
MOST_PLACED = 500  #: of those that a script places, one by one
DEAD_PLACE = b"dead"  #: the place of a row that cannot be sent

_ELEMENTS, _BODIES, _PLACED = b"*", b"=", b"%"
_DIGESTS = re.compile(rb"^[0-9]+ [0-9]+ ([0-9a-f]{64}) [0-9a-f]*\Z")


class Chunk(NamedTuple):
    """One chunk, in two pieces: the frames of many chunks share one buffer, which is never copied."""

    head: bytes
    frames: bytes | memoryview
    messages: int

    @property
    def has_bodies(self) -> bool:
        return self.head.startswith(_BODIES)

    def arguments(self) -> Packed:
        """Return the strings of the chunk as arguments of a command."""
        return Packed(int(self.head[1:-2]), (self.frames,))

    @property
    def size(self) -> int:
        return len(self.head) + len(self.frames)

    def packed(self) -> Packed:
        """Return the chunk as an argument of a command."""
        return Packed(1, (b"$%d\r\n%b" % (self.size, self.head), self.frames, b"\r\n"))


def framed(part: bytes) -> bytes:
    """Return the bytes as a RESP bulk string."""
    return b"$%d\r\n%b\r\n" % (len(part), part)


def chunk(messages: int, frames: bytes | memoryview) -> Chunk:
    """Return a chunk of framed elements."""
    return Chunk(b"*%d\r\n" % messages, frames, messages)


def placed_chunk(messages: int, frames: bytes | memoryview) -> Chunk:
    """Return a chunk of framed places and elements in turn."""
    return Chunk(b"%%%d\r\n" % messages, frames, messages)


def bodies_chunk(bodies: int, frames: bytes | memoryview) -> Chunk:
    """Return a chunk of framed references and bodies in turn."""
    return Chunk(b"=%d\r\n" % (2 * bodies), frames, 0)


def place(delay: int, window: int = 0, dedup: str = "", digest: str = "") -> bytes:
    """Return the place of a message: where commit_roll puts it. `delay`, `window`: ms; `dedup`: digest of the key."""
    return (f"{delay} {window} {dedup} {digest}" if dedup else str(delay)).encode()


def chunks_of(elements: Sequence[bytes]) -> Iterator[Chunk]:
    """Pack any number of elements into chunks."""
    frames = [framed(element) for element in elements]
    for start, end in cuts([0, *itertools.accumulate(map(len, frames))]):
        yield chunk(end - start, b"".join(frames[start:end]))


def cuts(offsets: Sequence[int], most: int = MOST_MESSAGES) -> Iterator[tuple[int, int]]:
    """Yield the ranges of messages that make one chunk each; only a single message may exceed the largest size.

    `offsets`: where each message starts, and at last where all of them end. `most`: messages of a chunk.
    """
    start, last = 0, len(offsets) - 1
    while start < last:
        fits = bisect.bisect_right(offsets, offsets[start] + LARGEST, start, last + 1) - 1
        end = min(max(fits, start + 1), start + most)
        yield start, end
        start = end


def elements_of(chunk: bytes) -> Packed | None:
    """Return the elements as arguments of LPUSH; None for another kind of chunk."""
    return _arguments(chunk) if chunk.startswith(_ELEMENTS) else None


def bodies_of(chunk: bytes) -> Packed | None:
    """Return the references and bodies as arguments of HSET; None for another kind of chunk."""
    return _arguments(chunk) if chunk.startswith(_BODIES) else None


def _arguments(chunk: bytes) -> Packed:
    end = chunk.index(b"\r\n")
    return Packed(int(chunk[1:end]), (memoryview(chunk)[end + 2 :],))


def references_of(bodies: Chunk) -> list[bytes]:
    """Return the references in a chunk of bodies."""
    return [bytes(one) for one in itertools.islice(_strings(bodies.frames, 0), 0, None, 2)]


def deduplicated(chunk: bytes) -> list[tuple[str, bytes]]:
    """Return the messages with a deduplication key that a script places: the digest of the key, and the element."""
    if not chunk.startswith(_PLACED):
        return []
    strings = _strings(chunk, chunk.index(b"\r\n") + 2)
    pairs = zip(strings, strings, strict=True)
    return [(found[1].decode(), bytes(element)) for place, element in pairs if (found := _DIGESTS.match(place))]


def _strings(frames: bytes | memoryview, at: int) -> Iterator[bytes | memoryview]:
    """Yield the bulk strings from `at` on, without looking at their bytes."""
    while at < len(frames):
        head = bytes(frames[at + 1 : at + 12])
        digits = head.index(b"\r\n")
        start = at + digits + 3
        at = start + int(head[:digits]) + 2
        yield frames[start : at - 2]
