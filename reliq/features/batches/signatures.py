"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call


def batch_change(*, batch: str, open: str, id: Argument, fields: Iterable[Argument]) -> Call:
    return "batches/batch_change", (batch, open), (id, *fields)


def batch_end(
    *, batch: str, open: str, id: Argument, handled: Argument, dead: Argument, cancelled: Argument,
    parent: str | None = None,
) -> Call:
    return "batches/batch_end", (batch, open, *(() if parent is None else (parent,))), (id, handled, dead, cancelled)


def batch_forget(keys: NamedKeys, *, batch: Argument) -> Call:
    return "batches/batch_forget", (keys.config, keys.followed), (batch,)


def batch_note(*, batch: str, field: Argument, value: Argument) -> Call:
    return "batches/batch_note", (batch,), (field, value)


def batch_open(*, batch: str, open: str, id: Argument, fields: Iterable[Argument], parent: str | None = None) -> Call:
    return "batches/batch_open", (batch, open, *(() if parent is None else (parent,))), (id, *fields)
