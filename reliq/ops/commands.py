"""Plain commands, and reads used in many places."""

from collections.abc import Collection, Sequence
from typing import Any, overload

from reliq.model.keys import DELETED, QUEUES, QueueKeys, is_name
from reliq.ops.request import Argument, Op, Request, Steps, T, Together, milliseconds

_SCAN_STEP = 1000  #: keys of the server that one call looks at


def server_time() -> Op[int]:
    """Read the Redis server's clock, ms since the epoch."""
    return Op(("TIME",), lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)


def read_hash(key: str) -> Op[dict[str, str]]:
    return Op(("HGETALL", key), _read_hash)


def count(keys: QueueKeys, counter: str, by: int = 1, *, once: bool = False) -> Op[int]:
    """Add to a field of the queue's counters. `once`: not again after a lost answer, which may leave it uncounted."""
    return Op(("HINCRBY", keys.counters, counter, by), repeatable=not once)


def server_info(*sections: str) -> list[Op[dict[str, str]]]:
    """Return the ops that read these sections of INFO, one for each: servers before 7 accept only one section."""
    return [Op(("INFO", section), _parse_info) for section in sections]


def _parse_info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {name: value for name, separator, value in lines if separator}


def ping() -> Op[bytes]:
    return Op(("PING",))


def client_list() -> Op[bytes]:
    """Read all connections of the server, one line each."""
    return Op(("CLIENT", "LIST"))


def unnoticed() -> Op[bytes]:
    """Let the server not tell of changes in the keys that the next command reads (`transport.notices`)."""
    return Op(("CLIENT", "CACHING", "NO"))


def few_clients() -> Op[bytes]:
    """Read subscribers only: a cheap test whether CLIENT LIST is allowed."""
    return Op(("CLIENT", "LIST", "TYPE", "pubsub"))


def empty_script() -> Op[int]:
    """Run a script that does nothing: a test whether scripts are allowed."""
    return Op(("EVAL", "return 1", 0))


def replicated(replicas: int, seconds: float) -> Op[int]:
    """Wait until so many replicas have the writes of this connection; how many have them."""
    return Op(("WAIT", replicas, milliseconds(seconds)), blocks=seconds)


def fsynced(seconds: float) -> Op[int]:
    """Wait until the server's disk has the writes of this connection; 1 if it has them."""
    return Op(("WAITAOF", 1, 0, milliseconds(seconds)), lambda reply: int(reply[0]), blocks=seconds)


def can_fsync() -> Op[int]:
    """Test for WAITAOF: fails if the server lacks it or has no append-only file, else returns at once."""
    return Op(("WAITAOF", 1, 0, 1), lambda reply: int(reply[0]))


def is_queue(name: str) -> Op[bool]:
    """Whether a queue was ever announced."""
    return Op(("SISMEMBER", QUEUES, name), bool)


def has_messages(keys: QueueKeys) -> Op[bool]:
    """Whether there are ready messages without a priority."""
    return Op(("EXISTS", keys.messages), bool)


def exists(key: str) -> Op[bool]:
    return Op(("EXISTS", key), bool)


def drop_queue(keys: QueueKeys, consumers: Collection[str] = ()) -> list[Op[int]]:
    """Delete a queue with all its messages and those held by these consumers."""
    theirs = [key for one in consumers for key in (keys.processing(one), keys.lease(one))]
    return [Op(("UNLINK", *keys.everything, *theirs)), Op(("SREM", QUEUES, keys.queue))]


def note_deleted(queue: str, now: int) -> list[Op[int]]:
    """Note for an hour that a queue was deleted now, ms of the server's clock."""
    return [Op(("HSET", DELETED, queue, now)), Op(("PEXPIRE", DELETED, milliseconds(3600)))]


def deleted_queues() -> Op[dict[str, str]]:
    """Read which queues were deleted lately, each with the ms."""
    return read_hash(DELETED)


def forget_deleted(queues: Sequence[str]) -> Op[int]:
    """Forget that queues were deleted."""
    return Op(("HDEL", DELETED, *queues))


def scan_lasting(keys: QueueKeys, cursor: int) -> Op[tuple[int, list[bytes]]]:
    """Read one page of all keys: the next cursor, 0 at the end, and those of this queue that outlast its messages."""
    beginnings = tuple(one.encode() for one in keys.lasting)

    def read(reply: list[Any]) -> tuple[int, list[bytes]]:
        return int(reply[0]), [name for name in reply[1] if name.startswith(beginnings)]

    return Op(("SCAN", cursor, "MATCH", keys.pattern, "COUNT", _SCAN_STEP), read)


def unlink(names: Sequence[bytes]) -> Op[int]:
    return Op(("UNLINK", *names))


def server_setting(name: str) -> Op[dict[str, str]]:
    """Read a setting with CONFIG GET; empty if the server has no such setting."""
    return Op(("CONFIG", "GET", name), _read_hash)


def _read_hash(reply: Any) -> dict[str, str]:
    if isinstance(reply, dict):  # RESP3
        return {name.decode(): value.decode() for name, value in reply.items()}
    return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}


def members(key: str) -> Op[list[str]]:
    """Read a set of names. Those that are not UTF-8 are skipped: reliq did not write them."""
    return Op(("SMEMBERS", key), names_of)


def names_of(reply: Any) -> list[str]:
    """Read names; those that are not UTF-8 are skipped."""
    return sorted(name for one in reply if "\ufffd" not in (name := one.decode("utf-8", "replace")))


def queue_names() -> Op[list[str]]:
    """Read the names of all announced queues. Invalid names are skipped: they must not stop a monitor."""
    return Op(("SMEMBERS", QUEUES), _read_names)


def _read_names(reply: Any) -> list[str]:
    return sorted(name for one in reply if is_name(name := one.decode("utf-8", "replace")))


def flush_all() -> Op[bytes]:
    """Remove everything from the server; for servers of tests."""
    return Op(("FLUSHALL",))


def command(*parts: Argument, repeatable: bool = True) -> Op[Any]:
    """Return an op for any other command; only for the monitor's transaction (tests/unit/test_layers.py)."""
    return Op(parts, repeatable=repeatable)


@overload
def one(request: Op[T]) -> Steps[T]: ...
@overload
def one(request: Request | Together) -> Steps[Any]: ...
def one(request: Request | Together) -> Steps[Any]:
    """Return the steps that make one request; they return its answer."""
    return (yield request)


def together(*groups: Sequence[Op[Any]]) -> Steps[list[list[Any]]]:
    """Run groups of ops in one round trip; return the replies of each group."""
    replies = iter((yield [op for group in groups for op in group]))
    return [[next(replies) for _ in group] for group in groups]
