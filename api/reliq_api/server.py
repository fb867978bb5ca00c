"""The process of the service: uvicorn on uvloop and httptools, with an orderly shutdown."""

import contextlib
import logging
import resource
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from reliq.errors import InvalidSetting
from reliq.runtime import startup
from reliq_api.http.forwarded import Forwarded
from reliq_api.http.protocol import BoundedProtocol
from reliq_api.settings import ServiceSettings, Settings

log = logging.getLogger("reliq.api")

_BACKLOG = 2048  #: connections that wait to be accepted


class Config(uvicorn.Config):
    """Settings of a server that asks what a proxy says of a client only where one does."""

    def load(self) -> None:
        super().load()
        self.loaded_app = Forwarded(self.loaded_app, self.forwarded_allow_ips)


class Server(uvicorn.Server):
    """A server that answers all who wait before it waits for connections to end."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals as uvicorn does; it sends them again at its orderly end, where they are only noted."""
        with super().capture_signals():
            startup.note_only()
            yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for one in self._app.state.drains:
            one.drain()
        await super().shutdown(sockets)


def _without_query(record: logging.LogRecord) -> bool:
    """Cut the query off the address in a line of uvicorn's access log: it may hold a key or what is searched for."""
    if isinstance(record.args, tuple) and len(record.args) == 5:
        client, method, path, *rest = record.args
        record.args = (client, method, str(path).partition("?")[0], *rest)
    return True


def server_of(settings: Settings) -> Server:
    from reliq_api.app import create_app  # a sixth of the start of `reliq sqs`, which has another application

    return server_for(create_app(settings), settings)


def server_for(app: FastAPI, settings: ServiceSettings) -> Server:
    """Return the server of an application whose `state.drains` has what waits, each with a `drain`."""
    logging.getLogger("uvicorn.access").addFilter(_without_query)
    limits = {
        "header_timeout": settings.header_timeout,
        "write_timeout": settings.write_timeout,
        "connections_most": settings.clients,
    }
    protocol = type("Protocol", (BoundedProtocol,), limits)
    config = Config(
        app,
        proxy_headers=False,  # see Config
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=settings.access_log,
        server_header=False,
        timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]
        timeout_graceful_shutdown=round(settings.grace),
    )
    return Server(config, app)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; finish running calls and answer waiting polls. Raises InvalidSetting.

    Until uvicorn handles the signals, one ends the process at once, without an exception: see `startup`.
    """
    run(server_of(settings), settings)


def run(server: Server, settings: ServiceSettings) -> None:
    """Run a server as `serve` does."""
    _allow_many_connections()
    server.run(listen(settings))


def listen(settings: ServiceSettings) -> list[socket.socket]:
    """Listen on every address of the host; raises InvalidSetting if one of them cannot be used."""
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listening = [socket.create_server(address, family=family, backlog=_BACKLOG) for family, *_, address in found]
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]  # Python adds the address in brackets
        raise InvalidSetting(
            f"HTTP cannot be served on {host}, port {port}: {reason}; choose another --host or --port"
        ) from None
    log.info("serving http://%s:%d", host, listening[0].getsockname()[1])
    return listening


def _allow_many_connections() -> None:
    """Raise the limit of open files: each waiting poll is one, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        log.debug("raised the limit of open files to %d from %d", hard, soft)
