"""A real Redis for every test process, empty for every test."""

import contextlib
import os
import sys
from collections.abc import Iterator

import pytest

import reliq
from reliq.embedded import EmbeddedRedis
from reliq_monitor.liveness import OUTAGE_GRACE
from tests.support.workers import eventually

for name in [name for name in os.environ if name.startswith("RELIQ_")]:
    del os.environ[name]

# Compiled modules are kept, also by the hundreds of processes that the tests start: an import takes half the time then.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_SERVER = pytest.StashKey[EmbeddedRedis]()


@pytest.hookimpl(trylast=True)  # after the folders have set their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try tests with a browser or a JVM once more, and no other: a race in the queue must fail the build.

    Those with a JVM come first: one worker of pytest-xdist has them, and so one JVM, until others have nothing else.
    """
    for item in items:
        if item.get_closest_marker("browser") or item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.flaky(reruns=1))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def pytest_configure(config: pytest.Config) -> None:
    """Start the server of a worker of pytest-xdist before it collects, which takes as long as the server has to age."""
    if hasattr(config, "workerinput"):
        stack = contextlib.ExitStack()
        config.add_cleanup(stack.close)
        config.stash[_SERVER] = stack.enter_context(EmbeddedRedis())


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> Iterator[EmbeddedRedis]:
    """Old enough that a monitor judges leases at its first look."""
    import redis

    with contextlib.ExitStack() as stack:
        server = pytestconfig.stash.get(_SERVER, None) or stack.enter_context(EmbeddedRedis())
        client = stack.enter_context(redis.Redis(port=server.port))
        eventually(lambda: client.info("server")["uptime_in_seconds"] > OUTAGE_GRACE)
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
