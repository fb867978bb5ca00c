"""The parts of a transition: scripts, ops (a command and how to read its reply), watches, transactions, steps."""

from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextvars import Context
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

import msgspec

from reliq.ops.script import Script

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Packed:
    """Arguments that are already encoded as RESP bulk strings, in pieces that are sent one after another."""

    count: int
    pieces: tuple[bytes | memoryview, ...]


Argument = bytes | str | int | float | Packed
flat = chain.from_iterable
Record = tuple[Argument, ...]
Records = Iterable[Record]  #: arguments of a script that repeat, those of one after those of another
Call = tuple[str, tuple[str, ...], tuple[Argument, ...]]  #: a script, its keys and its arguments: see ops.signatures


def _as_is(reply: Any) -> Any:
    return reply


class Op(msgspec.Struct, Generic[T], frozen=True):
    """One command and the function that reads its reply.

    `repeatable`: running the command twice has the effect of running it once, so it may be sent again after a lost
    reply. `blocks`: seconds for which the server may delay the reply. `retries`: the largest number of repetitions;
    None: as many as time allows.
    """

    command: tuple[Argument, ...]
    read: Callable[[Any], T] = _as_is
    script: Script | None = None
    repeatable: bool = True
    blocks: float = 0.0
    retries: int | None = None


@dataclass(frozen=True, slots=True)
class Watch:
    """WATCH these keys, on a connection reserved for this run of steps until its Transaction.

    The answer is the list of replies to `reads`, which are sent in the same round trip.
    """

    keys: tuple[str, ...]
    reads: tuple["Op[Any]", ...] = ()


@dataclass(frozen=True, slots=True)
class Transaction:
    """MULTI ... EXEC. The answer is the list of replies, or None: a watched key had changed and nothing was done.

    Without ops: UNWATCH. `repeatable`: as of an Op; only for a transaction without a Watch before it.
    """

    ops: tuple[Op[Any], ...]
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait, without keeping a watching connection."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Await(Sleep):
    """Wait for an async hook of a middleware, in its context. Only asyncio's store can."""

    hook: Coroutine[Any, Any, None]
    context: Context


@dataclass(frozen=True, slots=True)
class Together:
    """Run several steps at the same time; nodes of a cluster serve them side by side.

    The answer is a list with the result of each, or the ReliqError that it raised.
    """

    steps: Sequence["Steps[Any]"]


Request = Op[Any] | Sequence[Op[Any]] | Watch | Transaction | Sleep
Steps = Generator[Request | Together, Any, T]

_SCRIPTS: dict[str, Script] = {}


def script_named(name: str) -> Script:
    script = _SCRIPTS.get(name)
    if script is None:
        script = _SCRIPTS[name] = Script(name)
    return script


def scripted(call: Call, read: Callable[[Any], T] = _as_is, repeatable: bool = True) -> Op[T]:
    name, keys, arguments = call
    script = _SCRIPTS.get(name) or script_named(name)
    return Op(("EVALSHA", script.sha, len(keys), *keys, *arguments), read, script, repeatable)


def scripted_within(call: Call, read: Callable[[Any], T] = _as_is) -> Op[T]:
    """Return the op for a Transaction: with the source of its script, as an unknown digest would fail too late."""
    name, keys, arguments = call
    return Op(("EVAL", script_named(name).source, len(keys), *keys, *arguments), read)


def at_most(op: Op[T], retries: int | None) -> Op[T]:
    """Return the op with a limit for its repetitions."""
    return op if retries is None else msgspec.structs.replace(op, retries=retries)


def milliseconds(seconds: float) -> int:
    """Convert seconds to ms; at least 1 unless the time is 0, so that a short delay or lease does not vanish."""
    return max(1, round(seconds * 1000)) if seconds else 0


def as_text(reply: bytes) -> str:
    return reply.decode()


def readable(reply: Any) -> Any:
    return reply.decode() if isinstance(reply, bytes) else reply


def read_fields(reply: Sequence[bytes]) -> dict[str, bytes]:
    """Read the fields of a hash with their raw values."""
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def optional_text(reply: bytes | None) -> str | None:
    return None if reply is None else reply.decode()


def optional_int(reply: bytes | None) -> int | None:
    return None if reply is None else int(reply)


def optional_float(reply: bytes | None) -> float | None:
    return None if reply is None else float(reply)
