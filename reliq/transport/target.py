"""The target of a URL: how to make connections to it."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from reliq.contract import values
from reliq.errors import InvalidSetting
from reliq.ops.topology import Node
from reliq.runtime.barred import refuse_barred
from reliq.runtime.url import read_url
from reliq.transport.sentinel import Sentinels

T = TypeVar("T")
_SENTINEL_TIMEOUT = 1.0  #: seconds


class Endpoint(Protocol):
    """Where a connection leads: a server, or one node of a cluster."""

    epoch: int  #: incremented when existing connections lead to the wrong server
    sentinels: Sentinels | None  #: that know the address of the master
    new_connection: Any  #: makes a redis-py connection, not yet connected

    def check_again(self) -> None:
        """Repeat the check after a reconnect: the server or its settings may have changed."""

    def depart(self, epoch: int) -> None:
        """Renew all connections of that epoch and resolve the address again: the master has changed."""


class Target:
    """The target of a URL, with factories of synchronous and asyncio connections."""

    def __init__(self, url: str) -> None:
        self._url = read_url(url)
        self.where = self._url.tried  #: the URL without its secrets, for errors and logs
        #: the seed nodes of a cluster
        self.seeds: list[Node] = self._url.hosts(6379) if self._url.kind == "cluster" else []
        self.sentinels: list[Node] = self._url.hosts(26379) if self._url.kind == "sentinel" else []
        self.service = self._url.path.partition("/")[0]  #: the name of the master at the sentinels

    def factory(self, aio: bool, node: Node | None = None) -> Callable[[], Any]:
        """Return a factory of connections, not yet connected; `node`: a node of a cluster."""
        module, common = _redis(aio)
        options = {
            **common,
            "socket_timeout": values.BLOCK + values.SOCKET_MARGIN,
            "socket_connect_timeout": values.SOCKET_MARGIN,
            "max_connections": 2**31,  # the pool only creates connections, and counts all that it ever created
            "db": self._url.database,
            **self._url.login,
        }
        if self._url.scheme != "unix":
            options["socket_keepalive"] = True
        if self._url.scheme == "rediss":
            options |= self._tls()
            if aio and not _is_new() and options.pop("ssl_password"):
                raise InvalidSetting("ssl_password in the URL: with asyncio it needs redis-py 7.2 or newer")
        if not aio:
            from reliq.transport import parser  # which imports redis

            options |= parser.options()
        pool = module.ConnectionPool(**options, **self._address(module, node))

        def make() -> Any:
            refuse_barred(self._url)
            return pool.make_connection()

        return make

    def _tls(self) -> dict[str, Any]:
        return {"ssl_password": "", **self._url.tls}  # without a password OpenSSL asks for one at the terminal

    def _address(self, module: Any, node: Node | None) -> dict[str, Any]:
        if self._url.scheme == "unix":
            return {"connection_class": module.UnixDomainSocketConnection, "path": self._url.path}
        host, port = node or self._url.hosts(6379)[0]
        kind = module.SSLConnection if self._url.scheme == "rediss" else module.Connection
        return {"connection_class": kind, "host": host, "port": port}

    def to_sentinel(self, node: Node) -> Any:
        """Return a connection to one of the sentinels, not yet connected."""
        module, common = _redis(aio=False)
        tls = {"connection_class": module.SSLConnection, **self._tls()} if self._url.sentinel_tls else {}
        pool = module.ConnectionPool(
            host=node[0], port=node[1], socket_timeout=_SENTINEL_TIMEOUT, socket_connect_timeout=_SENTINEL_TIMEOUT,
            socket_keepalive=True, **common, **self._url.sentinel_login, **tls,
        )  # fmt: skip
        return pool.make_connection()


def _redis(aio: bool) -> tuple[Any, dict[str, Any]]:
    """Return redis-py, and options of all connections: no retries, no CLIENT SETINFO (two round trips)."""
    import redis.asyncio
    from redis.backoff import NoBackoff

    retry: Any = redis.asyncio.retry.Retry if aio else redis.retry.Retry
    silent = {"driver_info": None} if _is_new() else {"lib_name": None, "lib_version": None}
    return (redis.asyncio if aio else redis), {"retry": retry(NoBackoff(), 0), "protocol": 2, **silent}


def _is_new() -> bool:
    """Whether redis-py is 7.2 or newer."""
    import redis

    return hasattr(redis, "DriverInfo")
