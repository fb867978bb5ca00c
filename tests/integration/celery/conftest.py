"""kombu's connections to the Redis of a test, and the Celery application as a producer."""

import gc
import importlib
from collections.abc import Iterator
from typing import Any

import kombu
import kombu.pools
import pytest

from tests.integration.celery.workers import APP, environment


@pytest.fixture
def broker(url: str) -> str:
    return f"reliq+{url}"


@pytest.fixture
def connection(broker: str) -> Iterator[kombu.Connection]:
    with kombu.Connection(broker) as connection:
        yield connection


@pytest.fixture
def client(broker: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The application in this process, as a producer."""
    for name, value in environment(broker).items():
        monkeypatch.setenv(name, value)
    client = importlib.reload(importlib.import_module(APP)).app
    yield client
    gc.collect()  # results of Celery unsubscribe when they are collected, and need Redis for it
    client.close()  # which leaves connections to the garbage collector
    client.backend.client.connection_pool.disconnect()
    kombu.pools.reset()
