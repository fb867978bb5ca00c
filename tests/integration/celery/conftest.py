"""kombu's connections to the Redis of a test."""

from collections.abc import Iterator

import kombu
import pytest


@pytest.fixture
def broker(url: str) -> str:
    return f"reliq+{url}"


@pytest.fixture
def connection(broker: str) -> Iterator[kombu.Connection]:
    with kombu.Connection(broker) as connection:
        yield connection
