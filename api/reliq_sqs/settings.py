"""The settings of `reliq sqs`, read once at the start."""

from dataclasses import dataclass, field

from reliq.contract import values


@dataclass(frozen=True, slots=True)
class Settings:
    """The endpoint's settings."""

    url: str | None = field(
        default=None, repr=False
    )  #: the Redis server; None = RELIQ_URL, else redis://localhost:6379/0
    host: str = "127.0.0.1"
    port: int = 9324
    account: str = "000000000000"  #: the one account, in URLs, ARNs and sender ids
    region: str = "us-east-1"  #: the region whose queues have the names of reliq's
    endpoint_url: str | None = None  #: the beginning of queue URLs; None = from the Host header
    secret: str | None = field(default=None, repr=False)  #: encrypts the secrets of access keys
    no_auth: bool = False  #: serve this machine without signatures
    strict_timing: bool = False  #: a deleted name, and a purge, may not be repeated for 60 s
    allow_eviction: bool | None = None
    max_buffered: int = 256 * 1024 * 1024  #: bytes of request bodies in memory; each may take twice its size
    memory_watermark: float = 0.9  #: share of Redis' maxmemory above which nothing more is enqueued
    send_timeout: float = values.SEND_TIMEOUT  #: seconds for which a call is repeated after a lost reply
    connections: int = 64  #: to Redis, for calls that run at once
    access_log: bool = False
    metrics_port: int | None = None  #: where /metrics is served; None = nowhere
    metrics_host: str = "127.0.0.1"
    grace: float = 25.0  #: seconds running calls have after SIGTERM
    header_timeout: float = 10.0  #: seconds a client has to send its headers
    body_timeout: float = 30.0  #: seconds a client may be silent while it sends its body, which has twice that in all
    keep_alive: float = 65.0  #: seconds an idle connection is kept; SDKs keep theirs up to a minute
    write_timeout: float = 30.0  #: seconds for which a client may read nothing of its answer
    clients: int = 10_000  #: connections of clients; those above are refused
