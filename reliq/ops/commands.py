"""Plain commands, and reads used in many places."""

from typing import Any

from reliq.model.keys import ALLOWANCE, QUEUES, is_name
from reliq.ops.request import Argument, Op, Steps, T, scripted


def server_time() -> Op[int]:
    """Read the Redis server's clock, ms since the epoch."""
    return Op(("TIME",), lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)


def read_hash(key: str) -> Op[dict[str, str]]:
    return Op(("HGETALL", key), _read_hash)


def allow(key: str, rate: float, wanted: int) -> Op[tuple[int, int]]:
    """Ask how many of the `wanted` calls an API key may make now and, if none, in how many ms the next one."""
    return scripted("allow", (ALLOWANCE + key,), (rate, wanted), tuple)


def server_setting(name: str) -> Op[dict[str, str]]:
    """Read a setting with CONFIG GET; empty if the server has no such setting."""
    return Op(("CONFIG", "GET", name), _read_hash)


def _read_hash(reply: Any) -> dict[str, str]:
    if isinstance(reply, dict):  # RESP3
        return {name.decode(): value.decode() for name, value in reply.items()}
    return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}


def members(key: str) -> Op[list[str]]:
    return Op(("SMEMBERS", key), lambda reply: sorted(one.decode() for one in reply))


def queue_names() -> Op[list[str]]:
    """Read the names of all announced queues. Invalid names are skipped: they must not stop a monitor."""
    return Op(("SMEMBERS", QUEUES), _read_names)


def _read_names(reply: Any) -> list[str]:
    return sorted(name for one in reply if is_name(name := one.decode("utf-8", "replace")))


def command(*parts: Argument, repeatable: bool = True) -> Op[Any]:
    """Return an op for any other command, with its raw reply."""
    return Op(parts, repeatable=repeatable)


def one(op: Op[T]) -> Steps[T]:
    """Run a single op as steps."""
    answer: T = yield op
    return answer
