"""Plain commands, and reads that many share."""

from typing import Any

from reliq.model.keys import ALLOWANCE, QUEUES, is_name
from reliq.ops.request import Argument, Op, Steps, T, scripted


def server_time() -> Op[int]:
    """Ms since the epoch, the Redis server's clock."""
    return Op(("TIME",), lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)


def read_hash(key: str) -> Op[dict[str, str]]:
    return Op(("HGETALL", key), _read_hash)


def allow(key: str, rate: float, wanted: int) -> Op[tuple[int, int]]:
    """Answers how many of those wanted an API key may do now, and, where that is none, in how many ms one."""
    return scripted("allow", (ALLOWANCE + key,), (rate, wanted), tuple)


def server_setting(name: str) -> Op[dict[str, str]]:
    """What CONFIG GET answers; empty where the server has no such setting."""
    return Op(("CONFIG", "GET", name), _read_hash)


def _read_hash(reply: Any) -> dict[str, str]:
    if isinstance(reply, dict):  # RESP3
        return {name.decode(): value.decode() for name, value in reply.items()}
    return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}


def members(key: str) -> Op[list[str]]:
    return Op(("SMEMBERS", key), lambda reply: sorted(one.decode() for one in reply))


def queue_names() -> Op[list[str]]:
    """All queues that were ever announced. A foreign entry is passed over: it must not stop a monitor."""
    return Op(("SMEMBERS", QUEUES), _read_names)


def _read_names(reply: Any) -> list[str]:
    return sorted(name for one in reply if is_name(name := one.decode("utf-8", "replace")))


def command(*parts: Argument, repeatable: bool = True) -> Op[Any]:
    """Any other command."""
    return Op(parts, repeatable=repeatable)


def one(op: Op[T]) -> Steps[T]:
    """A single op, as steps."""
    answer: T = yield op
    return answer
