"""Ops of batches: their records, and the counts that the queues of their messages keep."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from reliq.features.batches import signatures
from reliq.features.batches.model import Counts
from reliq.model.keys import BATCHES, QueueKeys, batch_record
from reliq.ops.browse import first_names
from reliq.ops.request import Argument, Op, read_fields, scripted
from reliq.ops.schema import Batch, Config

_QUEUE = "queue "  #: how the fields of a record that name its queues begin


def batch_open(batch: str, fields: Mapping[str, bytes | str], parent: str) -> Op[bool]:
    """Create a batch; the reply is False if the parent is not open any more."""
    flat: list[Argument] = [part for pair in fields.items() for part in pair]
    call = signatures.batch_open(
        batch=batch_record(batch),
        open=BATCHES,
        parent=batch_record(parent) if parent else None,
        id=batch,
        fields=(Batch.PARENT, parent, *flat),
    )
    return scripted(call, bool)


def batch_change(batch: str, field: str, value: Argument) -> Op[bool]:
    """Set a field of an open batch; the reply is False if it is not open any more."""
    call = signatures.batch_change(batch=batch_record(batch), open=BATCHES, id=batch, fields=(field, value))
    return scripted(call, bool)


def batch_enlist(batch: str, queue: str) -> Op[bool]:
    """Note that a batch will have messages in a queue."""
    return batch_change(batch, _QUEUE + queue, 1)


def batch_close(batch: str, state: str) -> Op[bool]:
    """Close a batch: it has all its messages."""
    return batch_change(batch, Batch.STATE, state)


def batch_end(batch: str, parent: str, counts: Counts) -> Op[bool]:
    """Delete a batch that has ended; its parent waits for one batch less, and counts its messages as its own."""
    call = signatures.batch_end(
        batch=batch_record(batch),
        open=BATCHES,
        parent=batch_record(parent) if parent else None,
        id=batch,
        handled=counts.handled,
        dead=counts.dead,
        cancelled=counts.cancelled,
    )
    return scripted(call, bool)


def batch_forget(keys: QueueKeys, batch: str) -> Op[bool]:
    return scripted(signatures.batch_forget(keys, batch=batch), bool)


def batch_ids(limit: int) -> Op[list[str]]:
    """Read the batches that have not ended, oldest first."""
    return first_names(BATCHES, limit)


def open_batches(limit: int, first: int) -> Op[dict[str, bool]]:
    """Read the same without the `first` oldest, and whether each is complete: closed, and all batches in it ended."""
    return Op(("ZRANGE", BATCHES, first, first + limit - 1, "WITHSCORES"), _read_open)


def _read_open(reply: list[bytes]) -> dict[str, bool]:
    return {batch: opened.endswith(b".5") for batch, opened in read_fields(reply).items()}


def batch_fields(batch: str) -> Op[dict[str, bytes]]:
    """Read the record of a batch; empty if it has ended, or never existed."""
    return Op(("HGETALL", batch_record(batch)), read_fields)


def queues_in(fields: Mapping[str, bytes]) -> list[QueueKeys]:
    """Return the queues that a batch has, from the fields of its record."""
    return [QueueKeys(name.removeprefix(_QUEUE)) for name in sorted(fields) if name.startswith(_QUEUE)]


def batch_counts(keys: QueueKeys, batch: str) -> Op[Counts]:
    """Read a queue's counts of a batch."""
    return Op(("HGET", keys.followed, f" {batch}"), _read_counts)


def open_counts(keys: QueueKeys, batches: Sequence[str]) -> Op[list[int]]:
    """Read how many messages of each of these batches are open in a queue."""
    return Op(
        ("HMGET", keys.followed, *(f" {batch}" for batch in batches)),
        lambda reply: [_read_counts(one).open for one in reply],
    )


def batches_in(keys: QueueKeys) -> Op[bool]:
    """Read whether a queue has counts of batches."""
    return Op(("HEXISTS", keys.config, Config.BATCHED), bool)


def scan_counts(keys: QueueKeys, cursor: int, step: int) -> Op[tuple[int, dict[str, Counts]]]:
    """Read one page of a queue's counts: where the next one begins, 0 at the end, and the counts by batch."""
    return Op(("HSCAN", keys.followed, cursor, "MATCH", " *", "COUNT", step), _read_page)


def _read_page(reply: list[Any]) -> tuple[int, dict[str, Counts]]:
    cursor, flat = reply
    return int(cursor), {name[1:]: _read_counts(one) for name, one in read_fields(flat).items()}


def store_counts(keys: QueueKeys, counts: Mapping[str, Counts]) -> list[Op[int]]:
    """Store the counts of a queue that has just been dropped."""
    if not counts:
        return []
    flat = [part for batch, one in counts.items() for part in (f" {batch}", " ".join(map(str, astuple(one))))]
    return [Op(("HSET", keys.followed, *flat)), Op(("HSET", keys.config, Config.BATCHED, len(counts)))]


def batch_place(batch: str, queue: str) -> Op[int]:
    """Note, in a record that is watched, a queue that has counts of the batch."""
    return Op(("HSET", batch_record(batch), _QUEUE + queue, 1))


def _read_counts(reply: bytes | None) -> Counts:
    return Counts(*map(int, reply.split())) if reply else Counts()


def batch_ending(batch: str, ending: bytes) -> Op[bytes | None]:
    """Fix the counts of a batch at its end; the reply has those that were fixed first, None if it has ended."""
    return _note(batch, Batch.ENDING, ending)


def batch_sent(batch: str) -> Op[bytes | None]:
    """Note that the message at the end of a batch was sent; the reply is None if it has ended."""
    return _note(batch, Batch.SENT, 1)


def _note(batch: str, field: str, value: Argument) -> Op[bytes | None]:
    return scripted(signatures.batch_note(batch=batch_record(batch), field=field, value=value))


def batch_drop(batch: str) -> Op[int]:
    """Remove a batch without record, which Redis has lost or dropped, from the open ones."""
    return Op(("ZREM", BATCHES, batch))
