"""Translation of redis-py's errors, because their texts quote payloads."""

import re
from types import ModuleType
from typing import TypeVar

from reliq.errors import (
    QueueFull,
    RedisUnsuitable,
    ReliqError,
)

T = TypeVar("T")


class ConnectionLost(Exception):
    """The connection failed. `sent`: the command may have reached the server.

    `given_up`: it was not tried, because the node did not answer shortly before.
    """

    node = ""  #: host:port of the node of a cluster

    def __init__(self, sent: bool, cause: str, given_up: bool = False) -> None:
        super().__init__(cause)
        self.sent = sent
        self.cause = cause
        self.given_up = given_up


class TryAgain(Exception):
    """The server refused temporarily: it is loading, failing over, or misses its replicas.

    `sent`: it refused a part of the request and carried out another part. `elsewhere`: another server is or will be
    responsible; the same host name may already lead to it. `moving`: only the slot of a key is moving.
    """

    node = ""  #: host:port of the node of a cluster

    def __init__(self, cause: str, elsewhere: bool = False, moving: bool = False) -> None:
        super().__init__(cause)
        self.moving = moving
        self.sent = False
        self.elsewhere = elsewhere


# The first word of an error is its code; in an error raised by a script it may come later.
_CODES = re.compile(
    r"\b(OOM|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS|MISCONF|BUSY|UNBLOCKED|NOAUTH|NOPERM|WRONGTYPE"
    r"|EXECABORT|MOVED|ASK|CROSSSLOT)\b"
)
_PASSING = {
    "READONLY": "the server has become a replica",
    "LOADING": "it is loading its data",
    "MASTERDOWN": "its master is away",
    "CLUSTERDOWN": "the cluster is down",
    "TRYAGAIN": "its slots are moving",
    "NOREPLICAS": "too few replicas are connected (min-replicas-to-write)",
    "MISCONF": "it cannot write to its disk",
    "BUSY": "a script of another client is running for too long",
    "UNBLOCKED": "its role changed",
    "MOVED": "its slots have moved",
    "ASK": "its slots are moving",
}
_MOVING = frozenset({"MOVED", "ASK", "TRYAGAIN"})
_ELSEWHERE = frozenset({"READONLY", "LOADING", "MASTERDOWN", "UNBLOCKED"})
_LASTING = {
    "NOAUTH": "it needs a password, or a different one: put it into the URL, redis://:password@host, "
    "with / ? # @ : % in it written as %2F %3F %23 %40 %3A %25",
    "NOPERM": "the user of the URL lacks a permission (ACL) that reliq needs",
    "WRONGTYPE": "a key under reliq: has another type: the prefix is shared with another application",
}


# redis-py has classes for these codes and removes the code from the text.
_CLASSES = {
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "BusyLoadingError": "LOADING",
    "MasterDownError": "MASTERDOWN",
    "NoPermissionError": "NOPERM",
    "ExecAbortError": "EXECABORT",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "TryAgainError": "TRYAGAIN",
    "ClusterDownError": "CLUSTERDOWN",
    "AuthenticationError": "NOAUTH",
}


def redis_errors() -> ModuleType:
    """Return redis-py's exceptions; for `except` clauses, which Python evaluates only after an error."""
    from redis import exceptions

    return exceptions


def connection_ended(aio: bool = False) -> tuple[type[Exception], ...]:
    """Return the exceptions that mean a dead connection; an event loop also raises RuntimeError."""
    errors = redis_errors()
    ended = (errors.ConnectionError, errors.TimeoutError, errors.InvalidResponse, OSError, EOFError)
    return (*ended, RuntimeError) if aio else ended


def translated(error: Exception) -> Exception:
    """Return reliq's error for one of redis-py's, without its text, which quotes payloads."""
    found = _CODES.search(str(error))
    code = _CLASSES.get(type(error).__name__) or (found[1] if found else "")
    if code == "OOM":
        return QueueFull("Redis is at its maxmemory and refused the call; nothing was changed")
    if code in _PASSING:
        return TryAgain(_PASSING[code], code in _ELSEWHERE, code in _MOVING)
    if code in _LASTING:
        return RedisUnsuitable(f"Redis refuses: {_LASTING[code]}")
    return ReliqError(f"Redis answered with an unexpected error: {type(error).__name__} {code}".rstrip())


def refuses_for_now(error: Exception) -> bool:
    """Whether the server refuses the command only temporarily."""
    return isinstance(translated(error), TryAgain)


def failed(error: Exception, sent: bool) -> Exception:
    """Return the error for a failed connection; redis-py also reports some answers of the server as such."""
    errors = redis_errors()
    if isinstance(error, (errors.ResponseError, errors.AuthenticationError, errors.BusyLoadingError)):
        return translated(error)
    return ConnectionLost(sent, type(error).__name__)
