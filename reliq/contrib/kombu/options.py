"""Where the broker is, and the transport options."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote

from reliq.contract import values
from reliq.errors import InvalidSetting
from reliq.protocol.application import reconnect_grace, url_from_environment

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_ORDERS = ("descending", "ascending")
_STEPS, _ORDER = "priority_steps", "queue_order_strategy"  #: options of the Redis transport that count here too


@dataclass(frozen=True, slots=True)
class Options:
    """The `transport_options` that reliq reads; those of other transports are ignored.

    `lease`: how long a silent worker keeps its messages. `monitor`: whether a process that consumes runs a monitor.
    `reconnect_grace`: how long a worker may be without its connection before a monitor considers it dead; by default
    RELIQ_RECONNECT_GRACE, else 5 s. `guard`: whether a process that consumes starts another one that returns its
    messages at once if it is killed; Celery's workers do so by default. `max_body`: the largest body.
    `priority_order`: "descending" (0 is the first, as in kombu's Redis transport) or "ascending" (9, as in RabbitMQ).
    `prioritised`: use three priorities in all queues, not only in those declared with `max_priority`; also set by the
    Redis transport's `priority_steps` and `queue_order_strategy="priority"`.
    `eta_in_worker`: leave tasks that are not due yet to Celery's worker, as other transports do.
    `global_keyprefix`: stands before the names of all queues and exchanges, for several applications in one Redis.
    """

    lease: float = values.LEASE
    monitor: bool = True
    reconnect_grace: values.Duration | None = None
    guard: bool = False
    max_body: values.Size = values.MAX_BODY_BYTES
    allow_eviction: bool | None = None
    priority_order: str = "descending"
    prioritised: bool = False
    eta_in_worker: bool = False
    global_keyprefix: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the options of a kombu connection; raises InvalidSetting."""
        ours = {name: given[name] for name in cls.__slots__ if name in given}
        if given.get(_STEPS) or given.get(_ORDER) == "priority":
            ours.setdefault("prioritised", True)
        if "lease" in ours:
            ours["lease"] = values.seconds(ours["lease"], "lease", values.MIN_LEASE_SECONDS, values.MAX_LEASE_SECONDS)
        if ours.get("priority_order", "descending") not in _ORDERS:
            raise InvalidSetting(f"priority_order is {ours['priority_order']!r}: it is one of {', '.join(_ORDERS)}")
        return cls(**ours)

    @classmethod
    def unknown(cls, given: Mapping[str, Any]) -> list[str]:
        """Return the names of options that reliq does not read."""
        return sorted(given.keys() - {*cls.__slots__, _STEPS, _ORDER})

    @property
    def grace(self) -> float:
        """The reconnect grace of the monitor, in seconds; raises InvalidSetting."""
        return reconnect_grace(self.reconnect_grace)


def broker_url(client: Any) -> str:
    """Return reliq's URL for a `kombu.Connection`, from its URL or from its parts, with its `ssl` options."""
    address = client.hostname or ""
    if "://" not in address:
        address = _assembled(client) if address else url_from_environment(None)
    if address.startswith(("reliq+", "reliq:")):
        address = address.removeprefix("reliq+").replace("reliq:", "redis:", 1)
    return _with_tls(address, client.ssl) if client.ssl else address


def _assembled(client: Any) -> str:
    """Return the URL of a connection that was given as parts, or that kombu has taken apart for a failover."""
    scheme = str(client.transport_cls).removeprefix("reliq").removeprefix("+") or "redis"
    login = ""
    if client.userid or client.password:
        login = f"{quote(client.userid or '', safe='')}:{quote(client.password or '', safe='')}@"
    port = f":{client.port}" if client.port else ""
    path = str(client.virtual_host or "").strip("/")
    return f"{scheme if scheme in SCHEMES else 'redis'}://{login}{client.hostname}{port}/{path}"


def _with_tls(url: str, given: Any) -> str:
    """Return the URL with Celery's `broker_use_ssl`: True, or redis-py's options."""
    scheme, _, rest = url.partition("://")
    items = given.items() if isinstance(given, dict) else ()
    options = {name: _tls_text(value) for name, value in items if value is not None or name == "ssl_cert_reqs"}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())
    secure = scheme if scheme.startswith(("rediss", "unix")) else scheme.replace("redis", "rediss", 1)
    return f"{secure}://{rest}{('&' if '?' in rest else '?') + query if query else ''}"


def _tls_text(value: Any) -> str:
    if isinstance(value, ssl.VerifyMode):
        return value.name.removeprefix("CERT_").lower()
    return str(value).removeprefix("CERT_").lower() if str(value).startswith("CERT_") else str(value)
