"""What both kinds of store share: a request as commands, its replies read, errors translated, where a URL leads.

The only module that names redis-py, whose connections `store` and `aiostore` use. It is imported when one is wanted: it
takes several times as long as all of reliq, and `import reliq` or `reliq --help` need none of it.
"""

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, TypeVar

from reliq import settings
from reliq.cluster import Node, Slots
from reliq.errors import (
    OutcomeUnknown,
    QueueFull,
    RedisUnsuitable,
    ReliqError,
)
from reliq.ops import Op, Packed, Request, Sleep, Steps, Transaction, Watch
from reliq.url import read_url

T = TypeVar("T")
Command = tuple[Any, ...]

OLDEST_REDIS = (6, 2)
_FEW_KEYS = 20  #: of a script that are kept as the protocol has them
_SENTINEL_TIMEOUT = 1.0  #: seconds
_LARGE = 16 * 1024  #: bytes that cost more to copy than to send by themselves


class Lost(Exception):
    """The connection failed. `sent`: after the command may have reached the server."""

    def __init__(self, sent: bool, cause: str) -> None:
        super().__init__(cause)
        self.sent = sent
        self.cause = cause


class Busy(Exception):
    """The server refused for now: it is loading, failing over, or its replicas are away.

    `sent`: it refused a part of the request, and carried out another one. `elsewhere`: what is asked for is, or will
    be, on another server; the same name may lead to that one by now.
    """

    def __init__(self, cause: str, elsewhere: bool = False) -> None:
        super().__init__(cause)
        self.sent = False
        self.elsewhere = elsewhere


# --- what both kinds share -------------------------------------------------------------------------------------------


def commands_of(request: Request) -> list[Command]:
    match request:
        case Op():
            return [request.command]
        case Watch():
            return [("WATCH", *request.keys), *(op.command for op in request.reads)]
        case Transaction(ops=()):
            return [("UNWATCH",)]
        case Transaction():
            return [("MULTI",), *(op.command for op in request.ops), ("EXEC",)]
        case Sleep():
            raise TypeError("a Sleep is no command")
        case _:
            return [op.command for op in request]


def pack(commands: Iterable[Command]) -> list[bytes | memoryview]:
    """Commands as the protocol has them, several times faster than redis-py's own; what is large is not copied."""
    pieces: list[bytes | memoryview] = []
    whole = True
    for command in commands:
        count, head = len(command), len(pieces)
        pieces.append(b"")
        if command[0] == "EVALSHA" and command[2] < _FEW_KEYS:  # they are mostly the same as the last time
            fixed = 3 + command[2]
            pieces.append(_bulks(command[:fixed]))
            command = command[fixed:]
        for part in command:
            if type(part) is bytes:
                pieces.append(b"$%d\r\n%b\r\n" % (len(part), part))
            elif type(part) is Packed:
                pieces += part.pieces
                count += part.count - 1
                whole = False
            else:
                pieces.append(_bulk(part if type(part) is str else str(part)))
        pieces[head] = b"*%d\r\n" % count
    return [b"".join(pieces)] if whole else list(_runs(pieces))


def _runs(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """What is small in one, what is large as it is."""
    for large, run in itertools.groupby(pieces, lambda piece: len(piece) > _LARGE):
        if large:
            yield from run
        else:
            yield b"".join(run)


@functools.lru_cache(maxsize=4096)
def _bulks(parts: tuple[str | int, ...]) -> bytes:
    return b"".join(_bulk(str(part)) for part in parts)


@functools.lru_cache(maxsize=4096)  # mostly keys and names of scripts, the same in every call
def _bulk(text: str) -> bytes:
    data = text.encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def read(request: Request, replies: list[Any]) -> Any:
    """The result of a request from its replies; raises the first error among them, translated."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise _refused(request, replies, _translated(reply))
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
                    raise _translated(one)
            return [op.read(one) for op, one in zip(request.ops, answer, strict=True)]
        case Sleep():
            return None
        case _:
            return [op.read(reply) for op, reply in zip(request, replies, strict=True)]


def _refused(request: Request, replies: list[Any], error: Exception) -> Exception:
    """The error for one refused command of a request, which may have been carried out in part."""
    if carried_out(request, replies):
        if isinstance(error, Busy):
            error.sent = True
        elif isinstance(error, QueueFull) and repeatable(request):
            return carried_out_in_part()
    return error


def carried_out_in_part() -> OutcomeUnknown:
    return OutcomeUnknown("Redis carried out a part of the call, and is too full for the rest")


def carried_out(request: Request, replies: Sequence[Any]) -> bool:
    """Whether any op of a list changed something, by the replies to all of them."""
    if isinstance(request, (Op, Watch, Transaction, Sleep)):
        return False
    return any(_changes(op) and not isinstance(reply, Exception) for op, reply in zip(request, replies, strict=True))


def loading(request: Request) -> list[Command]:
    """The commands that load every script of a request."""
    scripts = {op.script for op in _ops(request) if op.script is not None}
    return [("SCRIPT", "LOAD", script.source) for script in scripts]


_READS = frozenset({
    "CLIENT", "CONFIG", "EXISTS", "GET", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "INFO", "LINDEX", "LLEN",
    "LRANGE", "MEMORY", "MGET", "PING", "PTTL", "SCAN", "SMEMBERS", "SSCAN", "TIME", "TTL", "TYPE", "ZCARD", "ZCOUNT",
    "WAIT", "WAITAOF", "ZRANGE", "ZRANGEBYSCORE", "ZREVRANGE", "ZREVRANGEBYSCORE", "ZSCAN", "ZSCORE",
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
    """Whether it changes nothing: then no answer means no more than that there is none."""
    return not any(_changes(op) for op in _ops(request))


def _changes(op: Op[Any]) -> bool:
    """Whether it may change what a caller asks for: that a queue's name is known is of no consequence."""
    return op.command[0] not in _READS if op.script is None else op.script.name != "announce"


def repeatable(request: Request) -> bool:
    """Whether a lost reply may be answered by asking again."""
    if isinstance(request, Transaction):
        return only_reads(request)
    return all(op.repeatable for op in _ops(request))


def unknown_scripts(replies: list[Any]) -> list[int]:
    """Where the server did not know a script (a restart, a failover): nothing was done there."""
    return [place for place, reply in enumerate(replies) if type(reply).__name__ == "NoScriptError"]


def waits(request: Request) -> bool:
    """Whether it asks how durable something is."""
    return isinstance(request, Sequence) and any(op.command[0] in ("WAIT", "WAITAOF") for op in request)


def asked_elsewhere(request: Request, replies: list[Any]) -> list[tuple[int, Node]]:
    """Where the server says that a key is on its way to another node: its place, and that node, to be asked once.

    Of scripts only: what else is in a list may speak of its own connection, as WAIT does.
    """
    if isinstance(request, (Watch, Transaction)) or any(op.script is None for op in _ops(request)):
        return []
    asked = [(place, reply) for place, reply in enumerate(replies) if type(reply).__name__ == "AskError"]
    return [(place, (reply.host, reply.port)) for place, reply in asked]


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


def _translated(error: Exception) -> Exception:
    """Our error for redis-py's, without its text: that quotes payloads."""
    found = _CODES.search(str(error))
    code = _CLASSES.get(type(error).__name__) or (found[1] if found else "")
    if code == "OOM":
        return QueueFull("Redis is at its maxmemory and refused; nothing was changed")
    if code in _PASSING:
        return Busy(_PASSING[code], code in _ELSEWHERE)
    if code in _LASTING:
        return RedisUnsuitable(f"Redis refuses: {_LASTING[code]}")
    return ReliqError(f"Redis answered an error reliq does not expect: {type(error).__name__} {code}".rstrip())


def refuses_for_now(error: Exception) -> bool:
    """Whether the server will let the same command pass later."""
    return isinstance(_translated(error), Busy)


def failed(error: Exception, sent: bool) -> Exception:
    """For an error that ended the connection. redis-py counts some answers of the server among those."""
    errors = redis_errors()
    if isinstance(error, (errors.ResponseError, errors.AuthenticationError, errors.BusyLoadingError)):
        return _translated(error)
    return Lost(sent, type(error).__name__)


def unsuitable(
    info: dict[str, Any], where: str, allow_eviction: bool, cluster: bool = False, known: bool = False
) -> RedisUnsuitable | None:
    """What forbids this server to hold a queue, read from its INFO, or None.

    `cluster`: it was taken for a node. `known`: there was a master at this address before. If it is a replica now, a
    failover is under way: writes are refused for a while, and tried again.
    """
    if not cluster and info.get("redis_mode") == "cluster":
        return RedisUnsuitable(f"Redis at {where} is a node of a Redis Cluster: use redis+cluster://host:port")
    version = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < OLDEST_REDIS:
        return RedisUnsuitable(f"Redis at {where} is version {version}: reliq needs 6.2 or newer (LMOVE)")
    if info.get("role", "master") != "master" and not known:
        return RedisUnsuitable(f"Redis at {where} is a replica: give the URL of its master, or of its sentinels")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and not allow_eviction:
        return RedisUnsuitable(
            f"Redis at {where} has maxmemory-policy {policy}: when it is full it deletes queues. "
            "Set it to noeviction, or allow it with allow_eviction=True (RELIQ_ALLOW_EVICTION=1)"
        )
    return None


def _parse_info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {name: value for name, separator, value in lines if separator}


def server_info(*sections: str) -> list[Op[dict[str, str]]]:
    """INFO of these sections, one op a section: servers before 7 take no more than one."""
    return [Op(("INFO", section), _parse_info) for section in sections]


def check_server(where: str, allow_eviction: bool, cluster: bool = False, known: bool = False) -> Steps[None]:
    """Refuse a server that must not hold a queue; raises RedisUnsuitable. Where INFO is forbidden, trust."""
    try:
        answers = yield server_info("server", "replication", "memory")
    except (ReliqError, Busy) as error:
        if isinstance(error, RedisUnsuitable) and "permission" in str(error):
            return
        raise
    info = {name: value for answer in answers for name, value in answer.items()}
    problem = unsuitable(info, where, allow_eviction, cluster, known)
    if problem is not None:
        raise problem


def cluster_slots(asked: Node) -> Op[Slots]:
    """Ask a node which master has which slots."""
    return Op(("CLUSTER", "SLOTS"), lambda reply: Slots(reply, asked))


def no_cluster(where: str) -> RedisUnsuitable:
    return RedisUnsuitable(f"Redis at {where} is no cluster: use redis://")


class Target:
    """Where the URL leads: how to make a connection there, sync or asyncio."""

    def __init__(self, url: str) -> None:
        self._url = read_url(url)
        self.where = self._url.shown  #: the URL without its secrets, for errors and logs
        #: of a cluster: where its nodes are asked for
        self.seeds: list[Node] = self._url.hosts(6379) if self._url.kind == "cluster" else []
        self.sentinels: list[Node] = self._url.hosts(26379) if self._url.kind == "sentinel" else []
        self.service = self._url.path.partition("/")[0]  #: as the sentinels call it

    def factory(self, aio: bool, node: Node | None = None) -> Callable[[], Any]:
        """What makes one more connection, not yet connected; `node`: to this node of a cluster."""
        module, retry = _redis(aio)
        options = {
            "retry": retry,
            "socket_timeout": settings.BLOCK + settings.SOCKET_MARGIN,
            "socket_connect_timeout": settings.SOCKET_MARGIN,
            "protocol": 2,
            "max_connections": 2**31,  # we only have it make connections: it counts every one that it ever made
            "db": self._url.database,
            **self._url.login,
        }
        if self._url.scheme != "unix":
            options["socket_keepalive"] = True
        if self._url.scheme == "rediss":
            options |= self._url.tls
        pool = module.ConnectionPool(**options, **self._address(module, node))
        make: Callable[[], Any] = pool.make_connection
        return make

    def _address(self, module: Any, node: Node | None) -> dict[str, Any]:
        if self._url.scheme == "unix":
            return {"connection_class": module.UnixDomainSocketConnection, "path": self._url.path}
        host, port = node or self._url.hosts(6379)[0]
        kind = module.SSLConnection if self._url.scheme == "rediss" else module.Connection
        return {"connection_class": kind, "host": host, "port": port}

    def to_sentinel(self, node: Node) -> Any:
        """A connection to one of the sentinels, not yet connected."""
        module, retry = _redis(aio=False)
        pool = module.ConnectionPool(
            host=node[0], port=node[1], retry=retry, protocol=2, socket_timeout=_SENTINEL_TIMEOUT,
            socket_connect_timeout=_SENTINEL_TIMEOUT, socket_keepalive=True, **self._url.sentinel_login,
        )  # fmt: skip
        return pool.make_connection()


def _redis(aio: bool) -> tuple[Any, Any]:
    """redis-py, and what has it retry nothing."""
    import redis.asyncio
    from redis.backoff import NoBackoff

    retry: Any = redis.asyncio.retry.Retry if aio else redis.retry.Retry
    return (redis.asyncio if aio else redis), retry(NoBackoff(), 0)


def most_retries(request: Request) -> float:
    """How often it may be tried again at most; infinity: as often as there is time."""
    return min((op.retries for op in _ops(request) if op.retries is not None), default=math.inf)
