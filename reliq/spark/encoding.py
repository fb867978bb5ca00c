"""Encoding of columns into elements, for whole Arrow batches at once.

The result decodes like that of reliq.model.element; lengths use MessagePack's longest form.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reliq.model.element import APART, BODY_REFERENCE, ELEMENT_TAIL, INLINE, group_of
from reliq.ops.chunks import MOST_PLACED, Chunk, bodies_chunk, chunk, cuts, placed_chunk
from reliq.protocol.clock import Clock

CLOCK = Clock()  #: the server's, once a task of this process has asked for it

BYTES = pa.large_binary()
_TEXT = pa.large_string()

Piece: TypeAlias = pa.Array | bytes  #: bytes for each row, or the same bytes for all rows
Field: TypeAlias = np.ndarray | bytes  #: as Piece, with the same number of bytes in each row

_CRLF = b"\r\n"
_NO_HEADERS = b"\x80"
_NINE, _TEN = 0x99, 0x9A  #: arrays without and with extra fields
_MAP = 0x80
_IS_8 = b"\xcf"  #: an integer of eight bytes follows


def frames(
    ids: Sequence[Piece], bodies: pa.Array, headers: Piece | None, extras: pa.Array | None, apart: np.ndarray | None
) -> pa.Array:
    """Return an element for each row, as a bulk string.

    `headers`, `extras`: MessagePack maps, or None; an empty extra is none. `apart`: whether the row's body is stored
    elsewhere; then `bodies` has an empty one. Works in one pass: each byte is copied once.
    """
    count, identity = len(bodies), _lengths(*ids)
    fields: Field = bytes([_NINE]) if extras is None else np.where(_lengths(extras), _TEN, _NINE).astype("u1")
    version: Field = bytes([INLINE]) if apart is None else np.where(apart, APART, INLINE).astype("u1")
    inside: list[Piece] = [
        records(count, _CRLF, fields, version, b"\xd9", identity.astype("u1")),
        *ids,
        records(count, *_new(count), *([_NO_HEADERS, *_body(bodies)] if headers is None else [])),
        *([] if headers is None else [headers, records(count, *_body(bodies))]),
        bodies,
        b"" if extras is None else extras,
    ]
    return joined(b"$", _decimals(_lengths(*inside) - len(_CRLF)), *inside, _CRLF)


def _new(count: int) -> list[Field]:
    """Return the fields between id and headers: nonce, deliveries 0, failures 0, redelivered false, enqueued_at."""
    nonces = np.frombuffer(os.urandom(8 * count), "u8")
    return [_IS_8, nonces, b"\x00\x00\xc2" + _IS_8 + now_ms().to_bytes(8, "big")]


def merged(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Join consecutive batches until they have `size` bytes."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(one.nbytes for one in some) >= size:
            yield from pa.Table.from_batches(some).combine_chunks().to_batches()
            some = []
    if some:
        yield from pa.Table.from_batches(some).combine_chunks().to_batches()


def now_ms() -> int:
    """Return the time of the server, ms since the epoch."""
    return CLOCK.now()


def _body(bodies: pa.Array) -> list[Field]:
    return [b"\xc6", _lengths(bodies).astype(">u4")]


def extras(
    expires: pa.Array | None,
    topics: pa.Array | None,
    keys: pa.Array | None,
    priorities: pa.Array | None,
    references: pa.Array | None,
    batch: pa.Array | None = None,
) -> pa.Array | None:
    """Return the extra fields of each row as a MessagePack map, empty for a row without any; None if no row has one.

    A null is a field that is left out. `expires`: ms since the epoch. The fields are in the order of ELEMENT_TAIL.
    """
    fields: list[pa.Array] = []
    if expires is not None:
        times = expires.fill_null(0).to_numpy().astype(">u8")
        fields.append(_where(expires, records(len(expires), b"\xaaexpires_at" + _IS_8, times)))
    if topics is not None:
        fields.append(joined(_text_field(b"routing_key", topics), topics))
    if keys is not None:
        fields.append(joined(_text_field(b"key", keys), keys))
    if batch is not None:
        fields.append(joined(ELEMENT_TAIL["batch"], batch))
    if priorities is not None:
        fields.append(_by_value(priorities, lambda priority: ELEMENT_TAIL.get(priority, b"")))
    if keys is not None:
        fields.append(_by_value(keys, lambda key: ELEMENT_TAIL["group"] + group_of(key.decode()).encode()))
    if references is not None:
        fields.append(joined(ELEMENT_TAIL["apart"], references))
    fields = [pc.fill_null(field, b"") for field in fields]
    counts = np.sum([_lengths(field) > 0 for field in fields], axis=0) if fields else np.zeros(1)
    if not counts.any():
        return None
    maps = records(len(counts), (_MAP + counts).astype("u1"))
    return joined(pc.if_else(pa.array(counts > 0), maps, pa.scalar(b"", BYTES)), *fields)


def _text_field(name: bytes, texts: pa.Array) -> pa.Array:
    """Return the name of a field and the head of its text, with two bytes for the length."""
    head = bytes([0xA0 + len(name)]) + name + b"\xda"
    return _where(texts, records(len(texts), head, pc.binary_length(texts).fill_null(0).to_numpy().astype(">u2")))


def _where(values: pa.Array, encoded: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), encoded, pa.scalar(None, BYTES))


def _by_value(column: pa.Array, encode: Callable[[Any], bytes]) -> pa.Array:
    """Encode each distinct value once."""
    distinct = column.dictionary_encode()
    return pa.array([encode(value) for value in distinct.dictionary.to_pylist()], BYTES).take(distinct.indices)


def references(sizes: np.ndarray, apart: np.ndarray) -> pa.Array:
    """Return a new reference for each body that is stored apart, and null for the others."""
    tags = np.frombuffer(os.urandom(8 * len(sizes)), "u8")
    return pc.if_else(pa.array(apart), records(len(sizes), tags, sizes.astype(">u4")), pa.scalar(None, BYTES))


def placed(places: pa.Array, frames: pa.Array) -> pa.Array:
    """Put each element after its place."""
    return joined(b"$", _decimals(_lengths(places)), _CRLF, places, _CRLF, frames)


def stored(references: pa.Array, bodies: pa.Array) -> pa.Array:
    """Put each body after its reference, both as bulk strings."""
    head = b"$%d\r\n" % BODY_REFERENCE
    return joined(head, references, b"\r\n$", _decimals(_lengths(bodies)), _CRLF, bodies, _CRLF)


def numbers(first: int, count: int) -> pa.Array:
    """Return consecutive decimal numbers from `first` on."""
    return _decimals(np.arange(first, first + count))


def same(value: bytes, count: int) -> pa.Array:
    """Return the same bytes for each row."""
    return records(count, value)


def as_bytes(column: pa.Array) -> pa.Array:
    """Return texts as UTF-8, numbers as decimals."""
    return column.cast(BYTES if pa.types.is_binary(column.type) else _TEXT).cast(BYTES)


def chunks(frames: pa.Array, with_places: bool) -> Iterator[Chunk]:
    """Pack elements, or places and elements, into as few chunks as possible."""
    if with_places:
        return _packed(frames, placed_chunk, MOST_PLACED)
    return _packed(frames, chunk)


def body_chunks(frames: pa.Array) -> Iterator[Chunk]:
    """Pack references and bodies into as few chunks as possible."""
    return _packed(frames, bodies_chunk)


def _packed(frames: pa.Array, make: Callable[[int, memoryview], Chunk], *most: int) -> Iterator[Chunk]:
    _, offsets, data = frames.buffers()
    ends = np.frombuffer(offsets, np.int64)[frames.offset :][: len(frames) + 1]
    whole = memoryview(data) if data is not None else memoryview(b"")
    for start, end in cuts(ends.tolist(), *most):
        yield make(end - start, whole[ends[start] : ends[end]])


def joined(*pieces: Piece) -> pa.Array:
    """Join the pieces of each row; null if one of them is."""
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


def records(count: int, *fields: Field) -> pa.Array:
    """Return, for each row, the bytes of its fields one after the other."""
    kinds = [f"V{len(field)}" if isinstance(field, bytes) else field.dtype for field in fields]
    values = np.empty(count, np.dtype([(f"f{place}", kind) for place, kind in enumerate(kinds)]))
    for place, field in enumerate(fields):
        values[f"f{place}"] = field
    offsets = np.arange(count + 1, dtype=np.int64) * values.dtype.itemsize
    return pa.Array.from_buffers(BYTES, count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
