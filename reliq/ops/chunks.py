"""Chunks: what a job stages as one piece, and what one step makes visible.

A chunk is the arguments of an LPUSH as the protocol has them, so that whoever rolls a job forward passes on bytes and
looks at none: a RESP array of elements. Where messages are delayed it is a RESP map of delay (ms) and element.
"""

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reliq.ops import Packed

LARGEST = 384 * 1024  #: bytes of a chunk of more than one message; Redis serves nobody else while it moves one
MOST_MESSAGES = 2000  #: of a chunk

_DELAYED = b"%"


class Chunk(NamedTuple):
    """In two pieces, because the frames of many chunks are one buffer, which nobody copies."""

    head: bytes
    frames: bytes | memoryview
    messages: int

    @property
    def size(self) -> int:
        return len(self.head) + len(self.frames)

    def packed(self) -> Packed:
        """As the argument of a command."""
        return Packed(1, (b"$%d\r\n%b" % (self.size, self.head), self.frames, b"\r\n"))


def framed(part: bytes) -> bytes:
    """A bulk string."""
    return b"$%d\r\n%b\r\n" % (len(part), part)


def chunk(messages: int, frames: bytes | memoryview, delayed: bool = False) -> Chunk:
    """A chunk of what is framed already: elements, or with `delayed` delays and elements in turns."""
    return Chunk(b"%b%d\r\n" % (_DELAYED if delayed else b"*", messages), frames, messages)


def chunks_of(elements: Sequence[bytes]) -> Iterator[Chunk]:
    """Any number of elements."""
    frames = [framed(element) for element in elements]
    for start, end in cuts([0, *itertools.accumulate(map(len, frames))]):
        yield chunk(end - start, b"".join(frames[start:end]))


def cuts(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where to cut what starts at these offsets, the last of them its end. Only one message alone may be too large."""
    start, last = 0, len(offsets) - 1
    while start < last:
        fits = bisect.bisect_right(offsets, offsets[start] + LARGEST, start, last + 1) - 1
        end = min(max(fits, start + 1), start + MOST_MESSAGES)
        yield start, end
        start = end


def elements_of(chunk: bytes) -> Packed | None:
    """The elements as arguments; None where messages are delayed, which a script files."""
    if chunk.startswith(_DELAYED):
        return None
    end = chunk.index(b"\r\n")
    return Packed(int(chunk[1:end]), (memoryview(chunk)[end + 2 :],))
