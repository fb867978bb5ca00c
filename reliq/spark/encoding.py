"""Columns as elements, for whole Arrow batches at once: nothing here looks at a single row, but for headers.

The same bytes as reliq.message makes, with the longest form of each length: a reader takes any.
"""

import os
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reliq.chunks import Chunk, chunk, cuts

BYTES = pa.large_binary()
_TEXT = pa.large_string()

_CRLF = b"\r\n"
_NO_HEADERS = b"\x80"
# Between the id and the headers: nonce, deliveries and failures 0, redelivered false, enqueued_at.
_MIDDLE = np.dtype([("is_nonce", "u1"), ("nonce", "u8"), ("new", "V3"), ("is_time", "u1"), ("time", ">u8")])
_LENGTH = np.dtype([("is_body", "u1"), ("length", ">u4")])


def elements(ids: pa.Array, bodies: pa.Array, headers: pa.Array | bytes | None, extras: pa.Array | None) -> pa.Array:
    """An element for each row. `headers` and `extras` are MessagePack maps; without them there are none."""
    count = len(bodies)
    middle = np.empty(count, _MIDDLE)
    middle["is_nonce"] = middle["is_time"] = 0xCF
    middle["nonce"] = np.frombuffer(os.urandom(8 * count), "u8")
    middle["new"] = b"\x00\x00\xc2"
    middle["time"] = time.time_ns() // 1_000_000
    body = np.empty(count, _LENGTH)
    body["is_body"] = 0xC6
    body["length"] = pc.binary_length(bodies).to_numpy()
    return _joined(
        b"\x99\x01\xd9" if extras is None else b"\x9a\x01\xd9",
        _records(pc.binary_length(ids).to_numpy().astype("u1")),
        ids,
        _records(middle),
        _NO_HEADERS if headers is None else headers,
        _records(body),
        bodies,
        b"" if extras is None else extras,
    )


def framed(parts: pa.Array) -> pa.Array:
    """Each as a bulk string."""
    return _joined(b"$", as_bytes(pc.binary_length(parts)), _CRLF, parts, _CRLF)


def delayed(delays: pa.Array, frames: pa.Array) -> pa.Array:
    """Each behind its delay in ms."""
    return _joined(framed(as_bytes(delays)), frames)


def numbered(prefix: str, first: int, count: int) -> pa.Array:
    """Ids: the prefix and the row's number."""
    return _joined(prefix.encode(), as_bytes(pa.array(np.arange(first, first + count))))


def as_bytes(column: pa.Array) -> pa.Array:
    """Texts in UTF-8, numbers in decimals."""
    return column.cast(BYTES if pa.types.is_binary(column.type) else _TEXT).cast(BYTES)


def chunks(frames: pa.Array, with_delays: bool) -> Iterator[Chunk]:
    """As few as there may be."""
    _, offsets, data = frames.buffers()
    places = np.frombuffer(offsets, np.int64)[frames.offset :][: len(frames) + 1]
    for start, end in cuts(places.tolist()):
        some = data[places[start] : places[end]]
        yield chunk(end - start, some, with_delays)


def _joined(*parts: pa.Array | bytes) -> pa.Array:
    arguments = [pa.scalar(part, BYTES) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*arguments, pa.scalar(b"", BYTES))


def _records(values: np.ndarray) -> pa.Array:
    """The bytes of each item."""
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.dtype.itemsize
    return pa.Array.from_buffers(BYTES, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values)])
