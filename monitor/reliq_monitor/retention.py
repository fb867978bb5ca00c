"""Retention: what a queue's policy says may go, and the producers and streams that nobody waits for any more."""

from collections.abc import Callable, Sequence

from reliq import ops
from reliq.dead_letters import DeadLetterSteps
from reliq.keys import SEVERAL, JobKeys
from reliq.ops import Steps
from reliq_monitor.looking import TOGETHER, Groups, Home, having, pages

PRODUCER_REMEMBERED = 3600.0  #: seconds after its last call; a producer repeats a call for far less
STREAM_REMEMBERED = 90 * 86_400.0  #: seconds after its last epoch
_PAGE = 500


def trim_dead_letters(groups: Groups) -> Steps[int]:
    """Remove dead letters beyond each queue's dead_max_age and dead_max_count; off unless configured. Counted."""
    removed = 0
    for some in pages((yield from having(groups, lambda keys: keys.config))):
        policies = yield [ops.command("HMGET", keys.config, "dead_max_age", "dead_max_count") for keys in some]
        for keys, (age, count) in zip(some, policies, strict=True):
            if age is not None or count is not None:
                trim = DeadLetterSteps(keys).trim(float(age) if age else None, int(count) if count else None)
                removed += yield from trim
    return removed


def forget_producers(groups: Groups) -> Steps[int]:
    """Remove the sequences of producers that have been silent for longer than any repeat takes."""
    return (yield from _forget_silent(groups, lambda keys: keys.producers, PRODUCER_REMEMBERED))


def forget_streams(groups: Groups) -> Steps[int]:
    """Remove the epochs of streams that have been silent for longer than anybody keeps a stopped stream."""
    homes: list[Sequence[JobKeys]] = [[SEVERAL], *groups]
    return (yield from _forget_silent(homes, lambda home: home.epochs, STREAM_REMEMBERED))


def _forget_silent(groups: Sequence[Sequence[Home]], hash_of: Callable[[Home], str], remembered: float) -> Steps[int]:
    """Remove the fields of hashes whose value, a number and the ms of its last use, is too old."""
    found = yield from having(groups, hash_of)
    unread, forgotten = [(hash_of(home), b"0") for group in found for home in group], 0
    while unread:
        some, unread = unread[:TOGETHER], unread[TOGETHER:]
        now, *replies = yield [
            ops.server_time(),
            *(ops.command("HSCAN", key, cursor, "COUNT", _PAGE) for key, cursor in some),
        ]
        for (key, _), (cursor, reply) in zip(some, replies, strict=True):
            pairs = zip(reply[::2], reply[1::2], strict=True)
            old = [name for name, value in pairs if int(value.split()[1]) < now - remembered * 1000]
            if old:
                forgotten += yield ops.command("HDEL", key, *old)
            if int(cursor):
                unread.append((key, cursor))
    return forgotten
