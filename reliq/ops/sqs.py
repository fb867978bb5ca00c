"""Ops of the SQS endpoint: what it knows of a queue, its access keys, its move tasks."""

from collections.abc import Mapping, Sequence

from reliq.model.keys import SQS_DELETED, SQS_KEYS, SQS_MOVES, SQS_MOVING, QueueKeys
from reliq.ops.commands import read_hash
from reliq.ops.request import Op, milliseconds, optional_text

_REDRIVE = "attribute RedrivePolicy"  #: a field of what the endpoint knows of a queue
LEAD = 10.0  #: seconds for which a silent endpoint keeps a move task


def sqs_record(keys: QueueKeys) -> Op[dict[str, str]]:
    """Read what the endpoint knows of the queue."""
    return read_hash(keys.sqs)


def change_sqs_record(keys: QueueKeys, to_set: Mapping[str, str], to_remove: Sequence[str] = ()) -> list[Op[int]]:
    """Set and remove fields of what the endpoint knows of the queue."""
    ops: list[Op[int]] = []
    if to_set:
        ops.append(Op(("HSET", keys.sqs, *(part for pair in to_set.items() for part in pair))))
    if to_remove:
        ops.append(Op(("HDEL", keys.sqs, *to_remove)))
    return ops


def has_redrive_policy(queue: str) -> Op[bool]:
    """Whether the setting `dead_to` of the queue comes from a policy that the endpoint was given."""
    return Op(("HEXISTS", QueueKeys(queue).sqs, _REDRIVE), bool)


def note_sqs_deletion(queue: str, seconds: float) -> Op[bytes]:
    """Note that the queue was deleted just now."""
    return Op(("SET", SQS_DELETED + queue, "1", "PX", milliseconds(seconds)))


def sqs_deleted(queue: str) -> Op[bool]:
    """Ask whether the queue was deleted just now."""
    return Op(("EXISTS", SQS_DELETED + queue), bool)


def sqs_keys() -> Op[dict[str, str]]:
    """Read the records of all access keys by id."""
    return read_hash(SQS_KEYS)


def put_sqs_key(identity: str, record: bytes) -> Op[int]:
    return Op(("HSET", SQS_KEYS, identity, record))


def delete_sqs_key(identity: str) -> Op[bool]:
    """Delete an access key; the reply is whether it existed."""
    return Op(("HDEL", SQS_KEYS, identity), bool)


def sqs_moves() -> Op[dict[str, str]]:
    """Read all move tasks by id."""
    return read_hash(SQS_MOVES)


def sqs_move(task: str) -> Op[str | None]:
    return Op(("HGET", SQS_MOVES, task), optional_text)


def put_sqs_move(task: str, record: bytes) -> Op[int]:
    return Op(("HSET", SQS_MOVES, task, record))


def forget_sqs_moves(tasks: Sequence[str]) -> Op[int]:
    return Op(("HDEL", SQS_MOVES, *tasks))


def lead_sqs_move(task: str, endpoint: str) -> Op[bool]:
    """Take the lead of a move task, unless another endpoint has it; the reply is whether it was free."""
    return Op(("SET", SQS_MOVING + task, endpoint, "NX", "PX", milliseconds(LEAD)), bool)


def sqs_move_leader(task: str) -> Op[str | None]:
    """Read which endpoint leads a move task."""
    return Op(("GET", SQS_MOVING + task), optional_text)


def keep_sqs_move(task: str, endpoint: str) -> Op[bytes]:
    """Keep the lead of a move task that this endpoint has."""
    return Op(("SET", SQS_MOVING + task, endpoint, "XX", "PX", milliseconds(LEAD)))


def leave_sqs_move(task: str) -> Op[int]:
    return Op(("DEL", SQS_MOVING + task))
