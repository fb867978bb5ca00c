"""Fixtures for pytest: `pytest_plugins = ["reliq.testing.fixtures"]` in conftest.py.

`offline(app)` returns a bench without a server, `on_server(app)` one on an empty Redis server, which is started once
for all tests. Both end with the test.
"""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from reliq.client.app import Reliq
from reliq.embedded import EmbeddedRedis
from reliq.ops import flush_all
from reliq.testing.bench import Bench
from reliq.transport.store import Store


@pytest.fixture
def offline() -> Iterator[Callable[[Reliq], Bench]]:
    """A function that makes a bench of an application, without a server."""
    with contextlib.ExitStack() as benches:
        yield lambda app: benches.enter_context(Bench(app))


@pytest.fixture(scope="session")
def reliq_server() -> Iterator[EmbeddedRedis]:
    """A Redis server of the test session."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def on_server(reliq_server: EmbeddedRedis) -> Iterator[Callable[[Reliq], Bench]]:
    """A function that makes a bench of an application, on the empty server of the test session."""
    store = Store(reliq_server.url)
    store.call(flush_all())
    store.close()
    with contextlib.ExitStack() as benches:
        yield lambda app: benches.enter_context(Bench(app, reliq_server.url))
