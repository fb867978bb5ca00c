"""Servers to which this process opens no new connection: tests bar the live one of an application on a bench."""

from collections.abc import Callable

from reliq.errors import InvalidSetting
from reliq.runtime.url import RedisUrl, read_url

#: The URL of an application in the memory of the process, which no other connection can reach.
IN_MEMORY = "unix:///the-memory-of-this-process"

_Server = tuple[object, ...]
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def _server(url: RedisUrl) -> _Server:
    """Return what is the same for all URLs of one server and database, whatever its user and its options."""
    hosts = [("localhost" if host.lower() in _LOOPBACK else host.lower(), port) for host, port in url.hosts(6379)]
    of_unix = url.path if url.scheme == "unix" else ""
    service = url.path.partition("/")[0] if url.kind == "sentinel" else ""
    return url.kind, of_unix, service, url.database, *([] if of_unix else sorted(hosts))


_barred: list[tuple[_Server, str]] = []


def bar(url: str, why: str) -> Callable[[], None]:
    """Refuse new connections to this server and database, with a text that says why; return what allows them again."""
    entry = (_server(read_url(url)), why)
    _barred.append(entry)
    return lambda: _barred.remove(entry)


def is_same_server(url: str, other: str) -> bool:
    """Whether both URLs name the same server and database."""
    return _server(read_url(url)) == _server(read_url(other))


def refuse_barred(url: RedisUrl) -> None:
    """Raise InvalidSetting if the server of this URL is barred."""
    if not _barred:
        return
    server = _server(url)
    for barred, why in _barred:
        if server == barred:
            raise InvalidSetting(why)


bar(
    IN_MEMORY,
    "this is the URL of an application in the memory of this process, without a server, and only that application is "
    "connected to it: for other clients, such as that of a web framework, test on a server (on_server(app), or "
    "Bench(app, url))",
)
