"""A real Redis for every test process, empty for every test."""

import os
from collections.abc import Iterator

import pytest

import reliq
from reliq.embedded import EmbeddedRedis

for name in [name for name in os.environ if name.startswith("RELIQ_")]:
    del os.environ[name]


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def url(redis_server: EmbeddedRedis) -> str:
    import redis

    with redis.Redis(port=redis_server.port) as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def app(url: str) -> Iterator[reliq.Reliq]:
    app = reliq.Reliq(url)
    yield app
    app.close()
