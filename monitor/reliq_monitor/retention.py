"""Retention: what a queue's policy says may go, and the producers and streams that nobody waits for any more."""

from reliq import ops
from reliq.dead_letters import DeadLetterSteps
from reliq.keys import JobKeys, QueueKeys
from reliq.ops import Steps

PRODUCER_REMEMBERED = 3600.0  #: seconds after its last call; a producer repeats a call for far less
STREAM_REMEMBERED = 90 * 86_400.0  #: seconds after its last epoch
_PAGE = 500


def trim_dead_letters(keys: QueueKeys) -> Steps[int]:
    """Remove dead letters beyond the queue's dead_max_age and dead_max_count; off unless configured. Counted."""
    age, count = yield ops.command("HMGET", keys.config, "dead_max_age", "dead_max_count")
    if age is None and count is None:
        return 0
    removed = yield from DeadLetterSteps(keys).trim(float(age) if age else None, int(count) if count else None)
    return removed


def forget_producers(keys: QueueKeys) -> Steps[int]:
    """Remove the sequences of producers that have been silent for longer than any repeat takes."""
    return _forget_silent(keys.producers, PRODUCER_REMEMBERED)


def forget_streams(home: JobKeys) -> Steps[int]:
    """Remove the epochs of streams that have been silent for longer than anybody keeps a stopped stream."""
    return _forget_silent(home.epochs, STREAM_REMEMBERED)


def _forget_silent(key: str, remembered: float) -> Steps[int]:
    """Remove the fields of a hash whose value, a number and the ms of its last use, is too old."""
    cursor, forgotten = b"0", 0
    now = yield ops.server_time()
    while True:
        cursor, reply = yield ops.command("HSCAN", key, cursor, "COUNT", _PAGE)
        pairs = zip(reply[::2], reply[1::2], strict=True)
        old = [name for name, value in pairs if int(value.split()[1]) < now - remembered * 1000]
        if old:
            forgotten += yield ops.command("HDEL", key, *old)
        if cursor in (b"0", 0):
            return forgotten
