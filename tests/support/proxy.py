"""Proxies between client and Redis, for faults that a healthy network does not show."""

from reliq.cli.trials.proxy import Proxy

__all__ = ["Proxy", "ignores_watch"]


def ignores_watch(data: bytes) -> bytes:
    """What a proxy does that pools connections: WATCH has no effect."""
    return data.replace(b"$5\r\nWATCH\r\n", b"$6\r\nEXISTS\r\n")
