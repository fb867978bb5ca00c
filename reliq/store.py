"""Runs ops against Redis, one at a time or many in a pipeline. Sync and asyncio differ here and nowhere else.

redis-py is used for its connections only: its clients re-send commands whose reply was lost, which leaves two copies of
an LPUSH. Here a command is sent once; whether it may be sent again is the op's own word (`Op.repeatable`), and when the
answer stays out the caller is told so: `RedisUnavailable` = surely not carried out, `OutcomeUnknown` = it may have been.
"""

import asyncio
import itertools
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import redis
import redis.asyncio
import redis.asyncio.sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    ExecAbortError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from reliq import settings
from reliq.errors import (
    InvalidSetting,
    OutcomeUnknown,
    QueueFull,
    ReliqError,
    RedisUnavailable,
    RedisUnsuitable,
)
from reliq.ops import Op, Request, Script, Sleep, Steps, Transaction, Watch

T = TypeVar("T")
Command = tuple[Any, ...]

OLDEST_REDIS = (6, 2)
_PAUSES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)  #: seconds between two tries; the last one repeats

_forks = itertools.count(1)
_generation = 0


def _after_fork() -> None:
    global _generation
    _generation = next(_forks)


os.register_at_fork(after_in_child=_after_fork)  # a child must never use a socket of its parent


class _Lost(Exception):
    """The connection failed. `sent`: after the command may have reached the server."""

    def __init__(self, sent: bool, cause: str) -> None:
        super().__init__(cause)
        self.sent = sent
        self.cause = cause


class _Busy(Exception):
    """The server refused for now, and did nothing: it is loading, failing over, or its replicas are away."""


# --- what both kinds share -------------------------------------------------------------------------------------------


def _commands(request: Request) -> list[Command]:
    match request:
        case Op():
            return [request.command]
        case Watch():
            return [("WATCH", *request.keys)]
        case Transaction(ops=()):
            return [("UNWATCH",)]
        case Transaction():
            return [("MULTI",), *(op.command for op in request.ops), ("EXEC",)]
        case Sleep():
            raise TypeError("a Sleep is no command")
        case _:
            return [op.command for op in request]


def _read(request: Request, replies: list[Any]) -> Any:
    """The result of a request from its replies; raises the first error among them, translated."""
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise _translated(reply)
    match request:
        case Op():
            return request.read(replies[0])
        case Watch() | Transaction(ops=()):
            return None
        case Transaction():
            answer = replies[-1]
            if answer is None:
                return None
            for one in answer:
                if isinstance(one, ResponseError):
                    raise _translated(one)
            return [op.read(one) for op, one in zip(request.ops, answer, strict=True)]
        case Sleep():
            return None
        case _:
            return [op.read(reply) for op, reply in zip(request, replies, strict=True)]


def _loading(request: Request) -> list[Command]:
    """The commands that load every script of a request."""
    ops = request if isinstance(request, Sequence) else [request]
    scripts = {op.script for op in ops if isinstance(op, Op) and op.script is not None}
    return [("SCRIPT", "LOAD", script.source) for script in scripts]


def _repeatable(request: Request) -> bool:
    """Whether a lost reply may be answered by asking again. Never once keys are watched: the watch was lost too."""
    match request:
        case Op():
            return request.repeatable
        case Watch() | Transaction():
            return False
        case Sleep():
            return True
        case _:
            return all(op.repeatable for op in request)


def _unknown_scripts(replies: list[Any]) -> list[int]:
    """Where the server did not know a script (a restart, a failover): nothing was done there."""
    return [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]


# Redis names its errors by their first word; an error raised inside a script may carry it further on.
_CODES = re.compile(
    r"\b(OOM|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS|MISCONF|BUSY|UNBLOCKED|NOAUTH|NOPERM|WRONGTYPE"
    r"|EXECABORT|MOVED|CROSSSLOT)\b"
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
}
_LASTING = {
    "NOAUTH": "it needs a password: put it into the URL, redis://:password@host",
    "NOPERM": "the user of the URL lacks a permission (ACL) that reliq needs",
    "WRONGTYPE": "a key under reliq: is of another type: the prefix is shared with another application",
}


# For these redis-py has a class, and takes the word off the text.
_CLASSES = {
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    BusyLoadingError: "LOADING",
    MasterDownError: "MASTERDOWN",
    NoPermissionError: "NOPERM",
    ExecAbortError: "EXECABORT",
    AuthenticationError: "NOAUTH",
}


def _translated(error: Exception) -> Exception:
    """Our error for redis-py's, without its text: that quotes payloads."""
    found = _CODES.search(str(error))
    code = _CLASSES.get(type(error)) or (found[1] if found else "")
    if code == "OOM":
        return QueueFull("Redis is at its maxmemory and refused; nothing was changed")
    if code in _PASSING:
        return _Busy(_PASSING[code])
    if code in _LASTING:
        return RedisUnsuitable(f"Redis refuses: {_LASTING[code]}")
    return ReliqError(f"Redis answered an error reliq does not expect: {type(error).__name__} {code}".rstrip())


def _failed(error: Exception, sent: bool) -> Exception:
    """For an error that ended the connection. redis-py counts some answers of the server among those."""
    if isinstance(error, (ResponseError, AuthenticationError, BusyLoadingError)):
        return _translated(error)
    return _Lost(sent, type(error).__name__)


def unsuitable(info: dict[str, Any], where: str, allow_eviction: bool) -> RedisUnsuitable | None:
    """What forbids this server to hold a queue, read from its INFO, or None."""
    version = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < OLDEST_REDIS:
        return RedisUnsuitable(f"Redis at {where} is version {version}: reliq needs 6.2 or newer (LMOVE)")
    if info.get("role", "master") != "master":
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


def check_server(where: str, allow_eviction: bool) -> Steps[None]:
    """Refuse a server that must not hold a queue; raises RedisUnsuitable. Where INFO is forbidden, trust."""
    try:
        answers = yield server_info("server", "replication", "memory")
    except (ReliqError, _Busy) as error:
        if isinstance(error, RedisUnsuitable) and "permission" in str(error):
            return
        raise
    problem = unsuitable({name: value for answer in answers for name, value in answer.items()}, where, allow_eviction)
    if problem is not None:
        raise problem


class _Target:
    """Where the URL leads: how to make a connection there, sync or asyncio."""

    def __init__(self, url: str) -> None:
        self.where = _without_password(url)
        scheme = urlsplit(url).scheme
        if scheme not in ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"):
            raise InvalidSetting(
                f"Redis URL {self.where!r}: use redis://, rediss:// (TLS), unix:// or redis+sentinel://host:port/service/db"
            )
        self._url = url
        self._sentinel = scheme.endswith("+sentinel")

    def factory(self, aio: bool) -> Callable[[], Any]:
        """What makes one more connection, not yet connected."""
        retry: Any = redis.asyncio.retry.Retry if aio else Retry
        options = {
            "retry": retry(NoBackoff(), 0),
            "socket_timeout": settings.BLOCK + settings.SOCKET_MARGIN,
            "socket_connect_timeout": settings.SOCKET_MARGIN,
            "socket_keepalive": True,
            "protocol": 2,
        }
        if urlsplit(self._url).scheme == "unix":
            del options["socket_keepalive"]
        module: Any = redis.asyncio if aio else redis
        try:
            pool = self._sentinel_pool(module, options) if self._sentinel else None
            pool = pool or module.ConnectionPool.from_url(self._url, **options)
        except (ValueError, TypeError) as error:
            raise InvalidSetting(f"Redis URL {self.where!r}: {error}") from None
        make: Callable[[], Any] = pool.make_connection
        return make

    def _sentinel_pool(self, module: Any, options: dict[str, Any]) -> Any:
        parts = urlsplit(self._url)
        service, _, database = parts.path.strip("/").partition("/")
        if not service:
            raise ValueError("name the service: redis+sentinel://host:26379,host:26379/mymaster/0")
        nodes = [node.rpartition(":") for node in parts.netloc.rpartition("@")[2].split(",")]
        hosts = [(host or port, int(port) if host else 26379) for host, _, port in nodes]
        login = {"username": parts.username or None, "password": parts.password} if parts.password else {}
        if parts.scheme == "rediss+sentinel":
            login["ssl"] = True  # type: ignore[assignment]
        sentinel = module.sentinel.Sentinel(hosts, sentinel_kwargs={"socket_timeout": settings.SOCKET_MARGIN})
        return sentinel.master_for(service, db=int(database or 0), **options, **login).connection_pool


def _without_password(url: str) -> str:
    return re.sub(r"//[^@/]*@", "//", url) if isinstance(url, str) else repr(url)


def _out_of_tries(request: Request, where: str, lost: _Lost | None, busy: str, ever_sent: bool) -> ReliqError:
    if busy:
        return RedisUnavailable(f"Redis at {where} refuses for now: {busy}")
    if ever_sent:
        return OutcomeUnknown(f"no answer from Redis at {where}: the call may have been carried out, or not")
    return RedisUnavailable(f"Redis at {where} cannot be reached ({lost.cause if lost else 'no connection'})")


class _Patience:
    """How a call that fails is tried again: pauses that grow, until its time is over."""

    def __init__(self, request: Request, where: str, timeout: float, watching: bool) -> None:
        self._request = request
        self._where = where
        self._until = time.monotonic() + timeout
        self._pauses = itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1]))
        self._may_repeat = not watching and _repeatable(request)
        self._watching = watching
        self._sent = False

    def after(self, failure: Exception) -> float:
        """Seconds to wait before the next try; raises when there is to be none."""
        lost = failure if isinstance(failure, _Lost) else None
        self._sent = self._sent or (lost is not None and lost.sent)
        pause = next(self._pauses)
        hopeless = self._watching or (self._sent and not self._may_repeat)
        if hopeless or time.monotonic() + pause > self._until:
            busy = "" if lost is not None else str(failure)
            raise _out_of_tries(self._request, self._where, lost, busy, self._sent)
        return pause


# --- sync ------------------------------------------------------------------------------------------------------------


class Link:
    """One connection. Reconnects when it has to; every reconnect counts up `lives`."""

    def __init__(self, store: "Store", name: str = "") -> None:
        self._store = store
        self._name = name
        self._connection: Any = None
        self._generation = _generation
        self.watching = False
        self.lives = 0

    def perform(self, request: Request) -> Any:
        """Send it once and read the answer. Raises _Lost, _Busy or a ReliqError."""
        if isinstance(request, Sleep):
            time.sleep(request.seconds)
            return None
        commands = _commands(request)
        replies = self._exchange(commands)
        if unknown := _unknown_scripts(replies):
            answers = self._exchange([*_loading(request), *(commands[place] for place in unknown)])
            for place, answer in zip(unknown, answers[-len(unknown) :], strict=True):
                replies[place] = answer
        if isinstance(request, (Watch, Transaction)):
            self.watching = isinstance(request, Watch)
        return _read(request, replies)

    def _exchange(self, commands: list[Command]) -> list[Any]:
        connection = self._connected()
        sent = False
        try:
            packed = connection.pack_commands(commands) if len(commands) > 1 else connection.pack_command(*commands[0])
            sent = True  # a write that fails half way may have delivered a whole command
            connection.send_packed_command(packed if len(packed) == 1 else [b"".join(packed)])
            return [self._reply(connection) for _ in commands]
        except (ConnectionError, TimeoutError, OSError) as error:
            self.close()
            raise _failed(error, sent) from None
        except BaseException:
            self.close()  # an interrupt between send and answer: the next reader would read this answer
            raise

    @staticmethod
    def _reply(connection: Any) -> Any:
        try:
            return connection.read_response()
        except ResponseError as error:
            return error

    def _connected(self) -> Any:
        if self._generation != _generation:
            self._connection, self._generation, self.watching = None, _generation, False
        if self._connection is None:
            connection = self._store.new_connection()
            try:
                connection.connect()
            except (RedisError, OSError) as error:
                connection.disconnect()
                raise _failed(error, sent=False) from None
            self._connection = connection
            self.lives += 1
            if self._name:
                self._exchange([("CLIENT", "SETNAME", self._name)])  # where CLIENT is refused, the lease alone decides
        return self._connection

    def wait_closed(self, timeout: float) -> bool:
        """Wait until the server closes the connection, at most `timeout` seconds; True when it has."""
        try:
            if self._connected().can_read(timeout):
                self.close()
                return True
        except (_Lost, _Busy, ReliqError, RedisError, OSError):
            self.close()
            return True
        return False

    def rename(self, name: str) -> None:
        self._name = name
        self.close()

    def close(self) -> None:
        self.watching = False
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None


class Store:
    """A Redis server, for threads: any number of them may run steps at once."""

    def __init__(
        self, url: str, *, allow_eviction: bool = False, timeout: float = settings.SEND_TIMEOUT, connect: Any = None
    ) -> None:
        """`connect` makes a redis-py connection; given by tests that bring a server of their own."""
        target = _Target(url)
        self.where = target.where
        self.new_connection = connect or target.factory(aio=False)
        self.timeout = timeout
        self._allow_eviction = allow_eviction
        self._checked = connect is not None
        self._idle: deque[Link] = deque()

    def run(self, steps: Steps[T], link: Link | None = None, timeout: float | None = None) -> T:
        """Run steps to their end. Raises what they raise, RedisUnavailable, or OutcomeUnknown."""
        if link is not None:
            return self._drive(steps, link, timeout)
        with self.borrow() as borrowed:
            return self._drive(steps, borrowed, timeout)

    def call(self, request: Request, link: Link | None = None, timeout: float | None = None) -> Any:
        """Run one request."""
        if link is None:
            with self.borrow() as borrowed:
                return self.call(request, borrowed, timeout)
        if not self._checked:
            self._checked = True
            try:
                self._drive(check_server(self.where, self._allow_eviction), link, timeout)
            except BaseException:
                self._checked = False
                raise
        try:
            return link.perform(request)
        except (_Lost, _Busy) as failure:
            return self._again(request, link, failure, timeout)

    def _again(self, request: Request, link: Link, failure: Exception, timeout: float | None) -> Any:
        patience = _Patience(request, self.where, self.timeout if timeout is None else timeout, link.watching)
        while True:
            time.sleep(patience.after(failure))
            try:
                return link.perform(request)
            except (_Lost, _Busy) as again:
                failure = again

    def _drive(self, steps: Steps[T], link: Link, timeout: float | None) -> T:
        try:
            request = next(steps)
            while True:
                try:
                    answer = self.call(request, link, timeout)
                except ReliqError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            if link.watching:
                link.close()

    @contextmanager
    def borrow(self) -> Iterator[Link]:
        """A link of the pool, for as long as the context lasts."""
        try:
            link = self._idle.pop()
        except IndexError:
            link = Link(self)
        try:
            yield link
        finally:
            self._idle.append(link)

    def link(self, name: str = "") -> Link:
        """A connection of one's own; `name` is what CLIENT LIST shows."""
        return Link(self, name)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


# --- asyncio ---------------------------------------------------------------------------------------------------------


class AioLink:
    """One asyncio connection; the same contract as Link."""

    def __init__(self, store: "AioStore", name: str = "") -> None:
        self._store = store
        self._name = name
        self._connection: Any = None
        self.watching = False
        self.lives = 0

    async def perform(self, request: Request) -> Any:
        """Send it once and read the answer. Raises _Lost, _Busy or a ReliqError."""
        if isinstance(request, Sleep):
            await asyncio.sleep(request.seconds)
            return None
        commands = _commands(request)
        replies = await self._exchange(commands)
        if unknown := _unknown_scripts(replies):
            answers = await self._exchange([*_loading(request), *(commands[place] for place in unknown)])
            for place, answer in zip(unknown, answers[-len(unknown) :], strict=True):
                replies[place] = answer
        if isinstance(request, (Watch, Transaction)):
            self.watching = isinstance(request, Watch)
        return _read(request, replies)

    async def _exchange(self, commands: list[Command]) -> list[Any]:
        connection = await self._connected()
        sent = False
        try:
            packed = connection.pack_commands(commands)
            sent = True
            await connection.send_packed_command(packed)
            return [await self._reply(connection) for _ in commands]
        except (ConnectionError, TimeoutError, OSError) as error:
            await self.close()
            raise _failed(error, sent) from None
        except BaseException:
            await self.close()  # cancelled between send and answer: the next reader would read this answer
            raise

    @staticmethod
    async def _reply(connection: Any) -> Any:
        try:
            return await connection.read_response()
        except ResponseError as error:
            return error

    async def _connected(self) -> Any:
        if self._connection is None:
            connection = self._store.new_connection()
            try:
                await connection.connect()
            except (RedisError, OSError) as error:
                await connection.disconnect(nowait=True)
                raise _failed(error, sent=False) from None
            self._connection = connection
            self.lives += 1
            if self._name:
                await self._exchange([("CLIENT", "SETNAME", self._name)])
        return self._connection

    async def close(self) -> None:
        self.watching = False
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.disconnect(nowait=True)


class AioStore:
    """A Redis server, for the tasks of one event loop; the same contract as Store."""

    def __init__(
        self, url: str, *, allow_eviction: bool = False, timeout: float = settings.SEND_TIMEOUT, connect: Any = None
    ) -> None:
        target = _Target(url)
        self.where = target.where
        self.new_connection = connect or target.factory(aio=True)
        self.timeout = timeout
        self._allow_eviction = allow_eviction
        self._checked = connect is not None
        self._idle: deque[AioLink] = deque()

    async def run(self, steps: Steps[T], link: AioLink | None = None, timeout: float | None = None) -> T:
        """Run steps to their end. Raises what they raise, RedisUnavailable, or OutcomeUnknown."""
        if link is not None:
            return await self._drive(steps, link, timeout)
        borrowed = self._idle.pop() if self._idle else AioLink(self)
        try:
            return await self._drive(steps, borrowed, timeout)
        finally:
            self._idle.append(borrowed)

    async def call(self, request: Request, link: AioLink, timeout: float | None = None) -> Any:
        """Run one request."""
        if not self._checked:
            self._checked = True
            try:
                await self._drive(check_server(self.where, self._allow_eviction), link, timeout)
            except BaseException:
                self._checked = False
                raise
        try:
            return await link.perform(request)
        except (_Lost, _Busy) as failure:
            return await self._again(request, link, failure, timeout)

    async def _again(self, request: Request, link: AioLink, failure: Exception, timeout: float | None) -> Any:
        patience = _Patience(request, self.where, self.timeout if timeout is None else timeout, link.watching)
        while True:
            await asyncio.sleep(patience.after(failure))
            try:
                return await link.perform(request)
            except (_Lost, _Busy) as again:
                failure = again

    async def _drive(self, steps: Steps[T], link: AioLink, timeout: float | None) -> T:
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self.call(request, link, timeout)
                except ReliqError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            if link.watching:
                await link.close()

    def link(self, name: str = "") -> AioLink:
        """A connection of one's own; `name` is what CLIENT LIST shows."""
        return AioLink(self, name)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()
