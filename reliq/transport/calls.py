"""Requests and their replies: whether a request may be repeated, was carried out, and what its answer is."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from reliq.errors import (
    OutcomeUnknown,
    QueueFull,
)
from reliq.ops import Op, Request, Sleep, Together, Transaction, Watch
from reliq.ops.topology import Node
from reliq.transport.errors import ConnectionLost, TryAgain, needless, translated
from reliq.transport.resp import Command

T = TypeVar("T")


def read(request: Request, replies: list[Any]) -> Any:
    """Return the answer to a request from its replies; raises the first error among them, translated."""
    for reply in replies:
        if isinstance(reply, Exception) and not needless(reply):
            raise _refused(request, replies, translated(reply))
    match request:
        case Op():
            return request.read(replies[0])
        case Watch():
            return [op.read(reply) for op, reply in zip(request.reads, replies[1:], strict=True)]
        case Transaction(ops=()):
            return None
        case Transaction():
            answer = replies[-1]
            if answer is None:
                return None
            for one in answer:
                if isinstance(one, Exception):
                    raise _refused(request, replies, translated(one))
            return [op.read(one) for op, one in zip(request.ops, answer, strict=True)]
        case Sleep():
            return None
        case _:
            return [op.read(reply) for op, reply in zip(request, replies, strict=True)]


def _refused(request: Request, replies: list[Any], error: Exception) -> Exception:
    """Return the error for a refused command of a request, which may have been carried out in part."""
    if carried_out(request, replies):
        if isinstance(error, TryAgain):
            error.sent = True
        elif isinstance(error, QueueFull) and repeatable(request):
            return carried_out_in_part()
    return error


def carried_out_in_part() -> OutcomeUnknown:
    return OutcomeUnknown("Redis carried out a part of the call and has no memory for the rest")


def carried_out(request: Request, replies: Sequence[Any]) -> bool:
    """Whether any op of a request changed something, judged by the replies.

    In a transaction that can be repeated, it is the last op that counts: those before it only store what it refers to.
    """
    if isinstance(request, Transaction):
        if not isinstance(replies[-1], list):
            return False
        start = -1 if request.repeatable else 0
        request, replies = request.ops[start:], replies[-1][start:]
    if isinstance(request, (Op, Watch, Sleep)):
        return False
    return any(_changes(op) and not isinstance(reply, Exception) for op, reply in zip(request, replies, strict=True))


def loading(request: Request) -> list[Command]:
    """Return the commands that load all scripts of a request."""
    scripts = {op.script for op in _ops(request) if op.script is not None}
    return [("SCRIPT", "LOAD", script.source) for script in scripts]


def answered(answers: list[Any], scripts: int) -> list[Any]:
    """Return the answers to the last commands, which are scripts; those before loaded them.

    The answer of a script that is still unknown is why it was not loaded.
    """
    refused = next((one for one in answers[:-scripts] if isinstance(one, Exception)), None)
    last = answers[-scripts:]
    for place in unknown_scripts(last) if refused else ():
        last[place] = refused
    return last


class Loaded:
    """The scripts that were loaded by a connection for its transactions.

    A transaction runs without a script that the server does not know, as after a restart: the bodies that it stores
    would have no messages, for ever if the server or this process ended then.
    """

    __slots__ = ("_connection", "_scripts")

    def __init__(self) -> None:
        self._connection = 0  #: how many connections there had been
        self._scripts: frozenset[Any] = frozenset()

    def missing(self, request: Transaction, connection: int) -> list[Command]:
        """Return the commands that must come before a transaction on this connection, counted from the first one on."""
        scripts = self._scripts if connection == self._connection else frozenset()
        wanted = {op.script for op in request.ops if op.script is not None}
        return [] if wanted <= scripts else loading(request)

    def note(self, request: Transaction, connection: int, replies: list[Any]) -> None:
        """Note that the scripts of a request are loaded; raises TryAgain if the server does not take commands yet."""
        for reply in replies:
            if isinstance(reply, Exception):
                raise translated(reply)
        before = self._scripts if connection == self._connection else frozenset()
        self._connection, self._scripts = connection, before | {op.script for op in request.ops}


_READS = frozenset({
    "CLIENT", "CONFIG", "EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "INFO", "LINDEX",
    "LLEN", "LRANGE", "MEMORY", "MGET", "PING", "PTTL", "SCAN", "SISMEMBER", "SMEMBERS", "SRANDMEMBER", "SSCAN", "TIME",
    "TTL", "TYPE", "WAIT", "WAITAOF", "XREAD", "XREVRANGE", "ZCARD", "ZCOUNT", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE",
    "ZREVRANGE", "ZREVRANGEBYSCORE", "ZSCAN", "ZSCORE",
})  # fmt: skip


READING_SCRIPTS = frozenset({
    "announce", "biography", "browse", "due", "emitted", "existing", "fates", "find", "flow_news", "gone_outputs",
    "held_keys", "recorded", "result", "search", "starts", "stats", "strays", "ticks", "upcoming",
})  # fmt: skip


def _ops(request: Request) -> tuple[Op[Any], ...]:
    match request:
        case Op():
            return (request,)
        case Transaction():
            return request.ops
        case Watch() | Sleep():
            return ()
        case _:
            return tuple(request)


def only_reads(request: Request) -> bool:
    """Whether a request changes nothing: then a lost reply leaves nothing uncertain."""
    return not any(_changes(op) for op in _ops(request))


def _changes(op: Op[Any]) -> bool:
    """Whether an op may change what a caller cares about: announcing a queue does not count."""
    return op.command[0] not in _READS if op.script is None else op.script.name not in READING_SCRIPTS


def only_announces(request: Request) -> bool:
    """Whether a request only announces queues: what is sent with it need not wait for the node of their names."""
    return all(op.script is not None and op.script.name == "announce" for op in _ops(request))


def repeatable(request: Request) -> bool:
    """Whether a request may be sent again after a lost reply."""
    if isinstance(request, Transaction):
        return request.repeatable or only_reads(request)
    return all(op.repeatable for op in _ops(request))


def unknown_scripts(replies: list[Any]) -> list[int]:
    """Return the positions of scripts unknown to the server (after a restart or failover): these did not run."""
    return [place for place, reply in enumerate(replies) if type(reply).__name__ == "NoScriptError"]


def unknown_in_transaction(request: Request, replies: list[Any]) -> bool:
    """Whether a repeatable transaction ran without one of its scripts, because the server did not know it."""
    if not isinstance(request, Transaction) or not request.repeatable:
        return False
    return isinstance(replies[-1], list) and bool(unknown_scripts(replies[-1]))


def to_repeat(request: Request, replies: list[Any]) -> TryAgain:
    """Return the error for a transaction that ran without a script, which is loaded by now.

    An error rather than a second try on the spot: `CallRetry` then knows that the other scripts may have enqueued the
    messages, and a refusal of the second try leaves the outcome unknown.
    """
    error = TryAgain("it did not know a script")
    error.loaded, error.sent = True, carried_out(request, replies)
    return error


@contextlib.contextmanager
def not_sent() -> Iterator[None]:
    """Do what comes before a request: if the connection is lost, nothing of the request was sent."""
    try:
        yield
    except ConnectionLost as error:
        error.sent = False
        raise


@contextlib.contextmanager
def partly_sent(carried_out: bool = True) -> Iterator[None]:
    """Do more for a request; if the connection is lost, it was sent if a part of it has been carried out."""
    try:
        yield
    except ConnectionLost as error:
        error.sent = error.sent or carried_out
        raise


def waits(request: Request) -> bool:
    """Whether a request waits for durability."""
    return isinstance(request, Sequence) and any(op.command[0] in ("WAIT", "WAITAOF") for op in request)


def lasts(request: Request | Together) -> bool:
    """Whether a request takes longer than its way to the server: it blocks there, sleeps, or runs other steps."""
    if isinstance(request, Op):
        return request.blocks > 0
    if isinstance(request, Sequence):
        return any(op.blocks > 0 for op in request)
    return isinstance(request, (Sleep, Together))


def asked_elsewhere(request: Request, replies: list[Any]) -> list[tuple[int, Node]]:
    """Return the position and the target node of each script or read with a key that the server reports as moving.

    Not of a list with other ops: these may concern their own connection, as WAIT does.
    """
    if isinstance(request, (Watch, Transaction)) or waits(request):
        return []
    if any(op.script is None for op in _ops(request)) and not only_reads(request):
        return []
    asked = [(place, reply) for place, reply in enumerate(replies) if type(reply).__name__ == "AskError"]
    return [(place, (reply.host, reply.port)) for place, reply in asked]


def most_retries(request: Request) -> float:
    """Return how often a request may be tried again; infinity: as often as there is time."""
    return min((op.retries for op in _ops(request) if op.retries is not None), default=math.inf)
