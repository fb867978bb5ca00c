"""A crash of Redis that loses nothing which it has answered."""

import redis

from reliq.embedded import EmbeddedRedis


def crash(server: EmbeddedRedis) -> None:
    """Kill the server. With `appendfsync everysec` it writes its file up to two seconds late while the disk is busy."""
    with redis.Redis(port=server.port) as client:
        client.config_set("appendfsync", "always")
    server.kill()
