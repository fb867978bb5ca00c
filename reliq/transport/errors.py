"""Translation of redis-py's errors, because their texts quote payloads."""

import errno
import os
import re
import socket
from types import ModuleType
from typing import TypeVar

from reliq.errors import (
    QueueFull,
    RedisUnsuitable,
    ReliqError,
    UnknownCommand,
)

T = TypeVar("T")


TIMED_OUT = "timed out"  #: the cause of a connection that failed because no answer came in time
CLOSED = "the server closed the connection"  #: likewise
CLOSED_BY_SERVER = frozenset({CLOSED, os.strerror(errno.ECONNRESET).lower()})


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
    responsible; the same host name may already lead to it. `moving`: only the slot of a key is moving. `loaded`: it did
    not know a script, and knows it now; the next try does not count as a repetition.
    """

    node = ""  #: host:port of the node of a cluster
    loaded = False

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
# Not as one URL: texts that are shown lose the password of each URL in them.
_PLACE = 'the URL has it between "redis://:" and "@host", with / ? # @ : % in it written as %2F %3F %23 %40 %3A %25'
_LASTING = {
    "NOAUTH": f"it needs a password, and the URL has none: {_PLACE}",
    "WRONGPASS": "the password or the user name in the URL is wrong (a server that needs no password has no user but "
    f'"default"): {_PLACE}',
    "NOPASSWORD": "it has no password, but the URL has one: remove it from the URL, or set requirepass in Redis",
    "DATABASE": "it does not have the database at the end of the URL: use one that it has, such as /0",
    "WRONGTYPE": "a key under reliq: has another type: the prefix is shared with another application",
}


# A script that may not run a command ends with the general code ERR. Before version 7 the text has no command then.
_DENIED = re.compile(r"ACL failure in script|user executing the script can't", re.IGNORECASE)
_UNKNOWN = re.compile(r"unknown (?:sub)?command '?([\w| ]+)", re.IGNORECASE)
_COMMAND = re.compile(r"run the '([\w|-]+)' command", re.IGNORECASE)
_KEYS = re.compile(r"access (a key|one of the keys|the '.*' key)", re.IGNORECASE)
_ROLES = " (ACL; deploy/users.acl of reliq has those of each role)"

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
    code = _setup_code(error) or _CLASSES.get(type(error).__name__) or (found[1] if found else "")
    if code == "OOM":
        full = QueueFull("Redis is at its maxmemory and refused the call; nothing was changed")
        full.of_redis = True
        return full
    if code in _PASSING:
        return TryAgain(_PASSING[code], code in _ELSEWHERE, code in _MOVING)
    if code == "NOPERM" or _DENIED.search(str(error)):
        return RedisUnsuitable(f"Redis refuses: {_denied(str(error))}")
    if unknown := _UNKNOWN.search(str(error)):
        return UnknownCommand(f"Redis does not know {unknown[1].upper()}: it is too old, or the command was renamed")
    if code in _LASTING:
        refused = RedisUnsuitable(f"Redis refuses: {_LASTING[code]}")
        refused.of_server = code != "WRONGTYPE"
        return refused
    return ReliqError(f"Redis answered with an unexpected error: {type(error).__name__} {code}".rstrip())


def _denied(text: str) -> str:
    """Return which permission the user of the URL lacks, and who knows it if the server does not say."""
    if command := _COMMAND.search(text):
        name = command[1].lower()
        return (
            f"the user of the URL may not run {name.replace('|', ' ').upper()}: give it the permission +{name}{_ROLES}"
        )
    if _KEYS.search(text):
        return f"the user of the URL may not use these keys: give it the permission ~reliq:*{_ROLES}"
    return f"the user of the URL lacks a permission for a command of a script: ACL LOG says which one{_ROLES}"


def _setup_code(error: Exception) -> str:
    """Return why the server refuses the login or the database: redis-py has no class of its own for each reason."""
    text = str(error).lower()
    if "db index is out of range" in text or "select is not allowed in cluster mode" in text:
        return "DATABASE"
    if "without any password configured" in text or "no password is set" in text:
        return "NOPASSWORD"
    if not isinstance(error, redis_errors().AuthenticationError):
        return ""
    return "WRONGPASS" if "invalid" in text else "NOAUTH"


def refuses_for_now(error: Exception) -> bool:
    """Whether the server refuses the command only temporarily."""
    return isinstance(translated(error), TryAgain)


def needless(error: Exception) -> bool:
    """Whether a command was refused that asks for silence about the next one: the server tells this connection nothing.

    For instance where the slot of a key has moved to a node that tells another connection.
    """
    return "only when the client is in tracking mode" in str(error)


def failed(error: Exception, sent: bool) -> Exception:
    """Return the error for a failed connection; redis-py also reports some answers of the server as such."""
    errors = redis_errors()
    for one in (error, error.__cause__):  # with asyncio, that of a unix socket lies behind a ConnectionError
        if isinstance(one, (errors.ResponseError, errors.AuthenticationError, errors.BusyLoadingError)):
            return translated(one)
    return ConnectionLost(sent, cause_of(error))


def cause_of(error: Exception) -> str:
    """Return why a connection failed, by the operating system's error behind that of redis-py."""
    errors = redis_errors()
    behind: BaseException | None = error
    while isinstance(behind, errors.RedisError):
        behind = behind.__cause__ or behind.__context__
    if isinstance(behind, OSError):
        return _system_cause(behind)
    if "max number of clients" in str(error):
        return "it has reached its maxclients"
    if isinstance(error, errors.TimeoutError):
        return TIMED_OUT
    closed = isinstance(error, (errors.ConnectionError, EOFError))
    return CLOSED if closed else type(error).__name__


_CLIENTS = "?ssl_certfile=/path/to/client.pem&ssl_keyfile=/path/to/client.key in the URL"
_MAYBE = "it may want a certificate that is valid and that its own authority has signed"
_FILES = "ssl_ca_certs, ssl_certfile or ssl_keyfile"
#: What is to be done, by a part of the cause of a failed connection with TLS; the first that is found counts.
_TLS_HINTS = {
    "is not valid for": "use a host name that it has, or ?ssl_check_hostname=false in the URL, which accepts any",
    "alert certificate expired": "the certificate that ssl_certfile names has expired: renew it",
    "certificate required": f"the server wants a certificate that its own authority has signed: {_CLIENTS}",
    "unknown ca": f"the server wants a certificate that its own authority has signed: {_CLIENTS}",
    "EOF occurred": f"{_MAYBE}: {_CLIENTS}",
    os.strerror(errno.ENOENT).lower(): f"a file that the URL names is not there: {_FILES}",
    os.strerror(errno.EACCES).lower(): f"this process may not read a file that the URL names: {_FILES}",
    os.strerror(errno.EISDIR).lower(): f"the URL names a folder where it should name a file: {_FILES}",
    "no certificate or crl found": "the file that ssl_ca_certs names has no certificate (PEM)",
    "PEM lib": "ssl_certfile names a certificate (PEM), ssl_keyfile its key, ssl_password the password of the key",
    "key values mismatch": "the key that ssl_keyfile names is not that of the certificate that ssl_certfile names",
    "certificate has expired": "renew the server's certificate",
    "certificate is not yet valid": "look at the clock of this machine, and at the server's certificate",
    "verify failed": "?ssl_ca_certs=/path/to/ca.pem in the URL names the authority that signed its certificate",
}


def tls_hint(url: str, cause: str) -> str:
    """Return what may be wrong with the scheme or the TLS options of a URL whose server has never answered."""
    scheme, closed = url.partition("://")[0], cause in CLOSED_BY_SERVER
    if not scheme.startswith("rediss"):
        hint = f"; if this port is for TLS, the URL must begin with {'rediss' + scheme[5:]}://"
        return hint if closed and scheme != "unix" else ""
    if closed:
        return f"; {_MAYBE}: {_CLIENTS}"
    if cause == TIMED_OUT or "wrong version number" in cause:
        return f"; if this port is not for TLS, the URL must begin with {'redis' + scheme[6:]}://"
    return next((f"; {hint}" for part, hint in _TLS_HINTS.items() if part in cause), "")


def _system_cause(error: OSError) -> str:
    """Return the text of an operating system's error without its number."""
    import ssl

    text = error.strerror or str(error)
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved: {text}"
    if isinstance(error, ssl.SSLError):
        return "TLS: " + re.sub(r" \(_ssl\.c:\d+\)$", "", text)
    if number := re.search(r"\[Errno (\d+)\]", str(error)):  # asyncio: one text for all addresses of a host
        text = os.strerror(int(number[1]))
    elif isinstance(error, (TimeoutError, ConnectionError)):
        text = TIMED_OUT if isinstance(error, TimeoutError) else CLOSED
    return text[:1].lower() + text[1:]
