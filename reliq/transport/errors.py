"""Errors of connections and servers, translated: redis-py's own texts quote payloads."""

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
    """The connection failed. `sent`: after the command may have reached the server."""

    def __init__(self, sent: bool, cause: str) -> None:
        super().__init__(cause)
        self.sent = sent
        self.cause = cause


class TryAgain(Exception):
    """The server refused for now: it is loading, failing over, or its replicas are away.

    `sent`: it refused a part of the request, and carried out another one. `elsewhere`: what is asked for is, or will
    be, on another server; the same name may lead to that one by now.
    """

    def __init__(self, cause: str, elsewhere: bool = False) -> None:
        super().__init__(cause)
        self.sent = False
        self.elsewhere = elsewhere


# Redis names its errors by their first word; an error raised inside a script may carry it further on.
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
    "BUSY": "a script of somebody is running too long",
    "UNBLOCKED": "its role changed",
    "MOVED": "its slots have moved",
    "ASK": "its slots are moving",
}
_ELSEWHERE = frozenset({"READONLY", "LOADING", "MASTERDOWN", "UNBLOCKED"})
_LASTING = {
    "NOAUTH": "it needs a password, or another one: put it into the URL, redis://:password@host, "
    "with / ? # @ : % in it written as %2F %3F %23 %40 %3A %25",
    "NOPERM": "the user of the URL lacks a permission (ACL) that reliq needs",
    "WRONGTYPE": "a key under reliq: is of another type: the prefix is shared with another application",
}


# For these redis-py has a class, and takes the word off the text.
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
    """redis-py's exceptions. Asked for in `except` clauses, which Python evaluates only when something was raised."""
    from redis import exceptions

    return exceptions


def connection_ended(aio: bool = False) -> tuple[type[Exception], ...]:
    """What says that a connection is of no more use. An event loop says it with a RuntimeError, too."""
    errors = redis_errors()
    ended = (errors.ConnectionError, errors.TimeoutError, errors.InvalidResponse, OSError, EOFError)
    return (*ended, RuntimeError) if aio else ended


def translated(error: Exception) -> Exception:
    """Our error for redis-py's, without its text: that quotes payloads."""
    found = _CODES.search(str(error))
    code = _CLASSES.get(type(error).__name__) or (found[1] if found else "")
    if code == "OOM":
        return QueueFull("Redis is at its maxmemory and refused; nothing was changed")
    if code in _PASSING:
        return TryAgain(_PASSING[code], code in _ELSEWHERE)
    if code in _LASTING:
        return RedisUnsuitable(f"Redis refuses: {_LASTING[code]}")
    return ReliqError(f"Redis answered an error reliq does not expect: {type(error).__name__} {code}".rstrip())


def refuses_for_now(error: Exception) -> bool:
    """Whether the server will let the same command pass later."""
    return isinstance(translated(error), TryAgain)


def failed(error: Exception, sent: bool) -> Exception:
    """For an error that ended the connection. redis-py counts some answers of the server among those."""
    errors = redis_errors()
    if isinstance(error, (errors.ResponseError, errors.AuthenticationError, errors.BusyLoadingError)):
        return translated(error)
    return ConnectionLost(sent, type(error).__name__)
