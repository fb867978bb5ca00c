"""Chunks: the messages that a job stages as one piece and that one step makes visible.

A chunk is the encoded arguments of an LPUSH, a RESP array of elements, so that rolling a job forward passes on bytes
without parsing them. A chunk of delayed messages is a RESP map of delay (ms) and element.
"""

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reliq.ops import Packed

LARGEST = 384 * 1024  #: bytes of a chunk of more than one message; Redis serves no other client while it moves a chunk
MOST_MESSAGES = 2000  #: messages in a chunk

_DELAYED = b"%"


class Chunk(NamedTuple):
    """One chunk, in two pieces: the frames of many chunks share one buffer, which is never copied."""

    head: bytes
    frames: bytes | memoryview
    messages: int

    @property
    def size(self) -> int:
        return len(self.head) + len(self.frames)

    def packed(self) -> Packed:
        """Return the chunk as an argument of a command."""
        return Packed(1, (b"$%d\r\n%b" % (self.size, self.head), self.frames, b"\r\n"))


def framed(part: bytes) -> bytes:
    """Return the bytes as a RESP bulk string."""
    return b"$%d\r\n%b\r\n" % (len(part), part)


def chunk(messages: int, frames: bytes | memoryview, delayed: bool = False) -> Chunk:
    """Return a chunk of framed elements or, with `delayed`, of delays and elements in turn."""
    return Chunk(b"%b%d\r\n" % (_DELAYED if delayed else b"*", messages), frames, messages)


def chunks_of(elements: Sequence[bytes]) -> Iterator[Chunk]:
    """Pack any number of elements into chunks."""
    frames = [framed(element) for element in elements]
    for start, end in cuts([0, *itertools.accumulate(map(len, frames))]):
        yield chunk(end - start, b"".join(frames[start:end]))


def cuts(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of messages that make one chunk each; only a single message may exceed the largest size.

    `offsets`: where each message starts, and at last where all of them end.
    """
    start, last = 0, len(offsets) - 1
    while start < last:
        fits = bisect.bisect_right(offsets, offsets[start] + LARGEST, start, last + 1) - 1
        end = min(max(fits, start + 1), start + MOST_MESSAGES)
        yield start, end
        start = end


def elements_of(chunk: bytes) -> Packed | None:
    """Return the elements as arguments; None for a chunk of delayed messages, which only a script can move."""
    if chunk.startswith(_DELAYED):
        return None
    end = chunk.index(b"\r\n")
    return Packed(int(chunk[1:end]), (memoryview(chunk)[end + 2 :],))
