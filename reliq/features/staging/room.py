"""Whether a queue has room for the messages of a staged job."""

from collections.abc import Sequence

from reliq import ops
from reliq.errors import QueueFull
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.runtime.pieces import pieces

_KEYS_PER_TRIP = 200


def check_room(job: str, queue: str, messages: int, staged: Sequence[str]) -> Steps[None]:
    """Refuse messages that would bring the queue above its max_length or max_bytes, as `send` does; raises QueueFull.

    `staged`: the keys that have them now.
    """
    keys = QueueKeys(queue)
    (most, most_bytes), *lengths = yield [ops.limits(keys), *ops.lengths(keys)]
    if most is not None and sum(lengths) + messages > most:
        raise _full(job, keys, f"{sum(lengths)} of at most {most} messages", messages)
    if most_bytes is None:
        return
    used = yield from _memory((keys.messages, keys.high, keys.low, keys.waiting, keys.next_round, keys.delayed))
    used += yield from _memory_of_bodies(keys, sum(lengths) + messages)
    if used + (yield from _memory(staged)) > most_bytes:
        raise _full(job, keys, f"{used} of at most {most_bytes} bytes", messages)


def _memory(names: Sequence[str]) -> Steps[int]:
    """Return the bytes that Redis uses for these keys: exact for short ones, else estimated as in `send`."""
    used = 0
    for page in pieces(names, _KEYS_PER_TRIP):
        found = yield [ops.bytes_used(name, samples=100) for name in page]
        used += sum(size or 0 for size in found)
    return used


def _memory_of_bodies(keys: QueueKeys, messages: int) -> Steps[int]:
    """Return the bytes of the bodies of at most so many messages, as if all bodies that are apart were of one size."""
    stored, used = yield [ops.hash_size(keys.bodies), ops.bytes_used(keys.bodies, samples=100)]
    return used * min(messages, stored) // stored if stored else 0


def _full(job: str, keys: QueueKeys, limit: str, messages: int) -> QueueFull:
    return QueueFull(f"queue {keys.logical!r} holds {limit}; none of the {messages} of job {job} was enqueued")
