"""What every transition is made of: a command and how to read its reply, a script, a watch, steps."""

import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

_LUA = Path(__file__).parent.with_name("lua")


@dataclass(frozen=True, slots=True)
class Packed:
    """Arguments that are already as the protocol has them, a bulk string each; in pieces, to be sent one by one."""

    count: int
    pieces: tuple[bytes | memoryview, ...]


Argument = bytes | str | int | float | Packed


class Script:
    """A Lua script: its file, with the shared functions that its `-- uses:` line names in front."""

    def __init__(self, name: str) -> None:
        source = _read(f"{name}.lua")
        uses = re.search(r"^-- uses: (.+)$", source, re.MULTILINE)
        shared = [_read(f"shared/{one}.lua") for one in uses[1].split(", ")] if uses else []
        self.name = name
        self.source = "\n".join([*shared, source])
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


def _read(path: str) -> str:
    return (_LUA / path).read_text(encoding="utf-8")


def _as_is(reply: Any) -> Any:
    return reply


class Op(msgspec.Struct, Generic[T], frozen=True):
    """One command.

    `repeatable`: running it twice is as good as once, so a lost reply may be answered by sending it again.
    `blocks`: seconds the server may take before it answers. `retries`: how often it is tried again at most; None = as
    often as time allows.
    """

    command: tuple[Argument, ...]
    read: Callable[[Any], T] = _as_is
    script: Script | None = None
    repeatable: bool = True
    blocks: float = 0.0
    retries: int | None = None


@dataclass(frozen=True, slots=True)
class Watch:
    """WATCH these keys, on a connection that this run of steps keeps to itself until its Transaction.

    Answers what is read in the same trip.
    """

    keys: tuple[str, ...]
    reads: tuple["Op[Any]", ...] = ()


@dataclass(frozen=True, slots=True)
class Transaction:
    """MULTI ... EXEC. Answers the list of replies, or None: a watched key was touched and nothing was done.

    With an empty list: UNWATCH.
    """

    ops: tuple[Op[Any], ...]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait, without holding a connection that watches."""

    seconds: float


Request = Op[Any] | Sequence[Op[Any]] | Watch | Transaction | Sleep
Steps = Generator[Request, Any, T]

_SCRIPTS: dict[str, Script] = {}


def script_named(name: str) -> Script:
    script = _SCRIPTS.get(name)
    if script is None:
        script = _SCRIPTS[name] = Script(name)
    return script


def scripted(name: str, keys: Sequence[str], arguments: Iterable[Argument], read: Callable[[Any], T] = _as_is) -> Op[T]:
    script = script_named(name)
    return Op(("EVALSHA", script.sha, len(keys), *keys, *arguments), read, script)


def at_most(op: Op[T], retries: int | None) -> Op[T]:
    """The same, tried again no more often than that."""
    return op if retries is None else msgspec.structs.replace(op, retries=retries)


def milliseconds(seconds: float) -> int:
    """At least 1, where the time is not 0: a short delay or lease must not become none."""
    return max(1, round(seconds * 1000)) if seconds else 0


def as_text(reply: bytes) -> str:
    return reply.decode()


def readable(reply: Any) -> Any:
    return reply.decode() if isinstance(reply, bytes) else reply
