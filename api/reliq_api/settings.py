"""The settings of `reliq api`, read once at the start, and those that every service over HTTP has."""

from dataclasses import dataclass, field

from reliq.contract import values


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The settings of a service over HTTP."""

    #: The Redis server; None = RELIQ_URL, else redis://localhost:6379/0.
    url: str | None = field(default=None, repr=False)
    host: str = "127.0.0.1"
    port: int = 8080
    allow_eviction: bool | None = None
    max_buffered: int = 256 * 1024 * 1024  #: bytes of request bodies in memory; each may take twice its size
    memory_watermark: float = 0.9  #: share of Redis' maxmemory above which nothing more is enqueued
    send_timeout: float = values.SEND_TIMEOUT  #: seconds for which a call is repeated after a lost reply
    connections: int = values.CALLS_AT_ONCE  #: to Redis, for calls that run at once; waiting polls need none
    no_auth: bool = False  #: serve this machine without a key, for development
    access_log: bool = False
    grace: float = 25.0  #: seconds running calls have after SIGTERM
    header_timeout: float = 10.0  #: seconds a client has to send its headers
    body_timeout: float = 30.0  #: seconds a client may be silent while it sends its body, which has twice that in all
    keep_alive: float = 30.0  #: seconds an idle connection is kept
    write_timeout: float = 30.0  #: seconds for which a client may read nothing of its answer
    clients: int = 10_000  #: connections of clients; those above are refused


@dataclass(frozen=True, slots=True)
class Settings(ServiceSettings):
    """The service's settings. `no_auth` ends with the first key."""

    max_body: int = values.BODY_LIMIT  #: bytes of one message's body
    max_batch: int = 100_000  #: messages in one batch call
    stream_timeout: float = 3600.0  #: seconds that the body of a batch may take in all
