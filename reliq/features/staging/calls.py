"""Chunks in calls to Redis."""

from collections.abc import Iterable, Iterator

from reliq.ops.chunks import Chunk

_CALL_BYTES = 1024 * 1024  #: Redis serves no other client while it carries out a call


def bodies_last(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Put elements before their bodies: a body that is stored can always be found by an element of the part."""
    return sorted(chunks, key=lambda chunk: chunk.has_bodies)


def calls(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Group chunks into calls of a limited size."""
    call: list[Chunk] = []
    size = 0
    for chunk in chunks:
        call.append(chunk)
        size += chunk.size
        if size >= _CALL_BYTES:
            yield call
            call, size = [], 0
    if call:
        yield call
