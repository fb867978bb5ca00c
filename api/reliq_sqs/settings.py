"""The settings of `reliq sqs`, read once at the start."""

import re
from dataclasses import dataclass, field

from reliq_api.settings import ServiceSettings

ACCOUNT = re.compile(r"[0-9]{12}")  #: the id of an account


@dataclass(frozen=True, slots=True)
class Settings(ServiceSettings):
    """The endpoint's settings. With `no_auth` it serves this machine without signatures."""

    port: int = 9324
    account: str = "000000000000"  #: the one account, in URLs, ARNs and sender ids
    region: str = "us-east-1"  #: the region whose queues have the names of reliq's
    endpoint_url: str | None = None  #: the beginning of queue URLs; None = from the Host header
    secret: str | None = field(default=None, repr=False)  #: encrypts the secrets of access keys
    strict_timing: bool = False  #: a deleted name, and a purge, may not be repeated for 60 s
    metrics_port: int | None = None  #: where /metrics is served; None = nowhere
    metrics_host: str = "127.0.0.1"
    keep_alive: float = 65.0  #: seconds an idle connection is kept; SDKs keep theirs up to a minute
