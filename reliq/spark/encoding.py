"""Encoding of columns into elements, for whole Arrow batches at once; only headers are encoded row by row.

The result decodes like that of reliq.model.element; lengths use MessagePack's longest form.
"""

import os
import time
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reliq.ops.chunks import Chunk, chunk, cuts

BYTES = pa.large_binary()
_TEXT = pa.large_string()

Piece: TypeAlias = pa.Array | bytes  #: bytes for each row, or the same bytes for all rows
Field: TypeAlias = np.ndarray | bytes  #: as Piece, with the same number of bytes in each row

_CRLF = b"\r\n"
_NO_HEADERS = b"\x80"
_NO_EXTRA = b"\xc0"  #: nil: all ten fields are written, so that no element ends with a body
_IS_8 = b"\xcf"  #: an integer of eight bytes follows


def frames(ids: Sequence[Piece], bodies: pa.Array, headers: Piece | None, extras: pa.Array | None) -> pa.Array:
    """Return an element for each row, as a bulk string. `headers` and `extras` are MessagePack maps, or None.

    Works in one pass: each byte is copied once.
    """
    count, identity = len(bodies), _lengths(*ids)
    inside: list[Piece] = [
        _records(count, _CRLF, b"\x9a\x01\xd9", identity.astype("u1")),
        *ids,
        _records(count, *_new(count), *([_NO_HEADERS, *_body(bodies)] if headers is None else [])),
        *([] if headers is None else [headers, _records(count, *_body(bodies))]),
        bodies,
        _NO_EXTRA if extras is None else extras,
    ]
    return _joined(b"$", _decimals(_lengths(*inside) - len(_CRLF)), *inside, _CRLF)


def _new(count: int) -> list[Field]:
    """Return the fields between id and headers: nonce, deliveries 0, failures 0, redelivered false, enqueued_at."""
    nonces = np.frombuffer(os.urandom(8 * count), "u8")
    return [_IS_8, nonces, b"\x00\x00\xc2" + _IS_8 + (time.time_ns() // 1_000_000).to_bytes(8, "big")]


def _body(bodies: pa.Array) -> list[Field]:
    return [b"\xc6", _lengths(bodies).astype(">u4")]


def delayed(delays: pa.Array, frames: pa.Array) -> pa.Array:
    """Put each element after its delay in ms."""
    texts = as_bytes(delays)
    return _joined(b"$", _decimals(_lengths(texts)), _CRLF, texts, _CRLF, frames)


def numbers(first: int, count: int) -> pa.Array:
    """Return consecutive decimal numbers from `first` on."""
    return _decimals(np.arange(first, first + count))


def as_bytes(column: pa.Array) -> pa.Array:
    """Return texts as UTF-8, numbers as decimals."""
    return column.cast(BYTES if pa.types.is_binary(column.type) else _TEXT).cast(BYTES)


def chunks(frames: pa.Array, with_delays: bool) -> Iterator[Chunk]:
    """Pack elements into as few chunks as possible."""
    _, offsets, data = frames.buffers()
    places = np.frombuffer(offsets, np.int64)[frames.offset :][: len(frames) + 1]
    whole = memoryview(data)
    for start, end in cuts(places.tolist()):
        yield chunk(end - start, whole[places[start] : places[end]], with_delays)


def _joined(*pieces: Piece) -> pa.Array:
    arguments = [pa.scalar(piece, BYTES) if isinstance(piece, bytes) else piece for piece in pieces]
    return pc.binary_join_element_wise(*arguments, pa.scalar(b"", BYTES))


def _lengths(*pieces: Piece) -> np.ndarray:
    """Return the total length of the pieces of each row."""
    same = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
    own = [pc.binary_length(piece).to_numpy() for piece in pieces if not isinstance(piece, bytes)]
    lengths: np.ndarray = np.sum(own, axis=0) + same
    return lengths


def _decimals(numbers: np.ndarray) -> pa.Array:
    return as_bytes(pa.array(numbers))


def _records(count: int, *fields: Field) -> pa.Array:
    """Return, for each row, the bytes of its fields one after the other."""
    kinds = [f"V{len(field)}" if isinstance(field, bytes) else field.dtype for field in fields]
    values = np.empty(count, np.dtype([(f"f{place}", kind) for place, kind in enumerate(kinds)]))
    for place, field in enumerate(fields):
        values[f"f{place}"] = field
    offsets = np.arange(count + 1, dtype=np.int64) * values.dtype.itemsize
    return pa.Array.from_buffers(BYTES, count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
