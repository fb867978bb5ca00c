"""A real Redis for every test process, empty for every test."""

import contextlib
import functools
import gc
import itertools
import os
import signal
import socket
import sys
from collections.abc import Generator, Iterator

import hypothesis
import pytest
import redis.utils

import reliq
from reliq import embedded
from reliq.embedded import EmbeddedRedis
from reliq.transport.store import Store
from reliq_monitor.liveness import OUTAGE_GRACE
from tests.support import parser, ports, warm
from tests.support.workers import eventually

# No test fails because the machine is busy.
hypothesis.settings.register_profile("reliq", deadline=None)
hypothesis.settings.load_profile("reliq")

for name in [name for name in os.environ if name.startswith("RELIQ_")]:
    del os.environ[name]

# Compiled modules are kept, also by the hundreds of processes that the tests start: an import takes half the time then.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell's background job ignores Ctrl-C, and so would all processes that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# redis-py reads its own version from the package's metadata for every pool and client: 1.5 ms, thousands of times.
redis.utils.get_lib_version = functools.cache(redis.utils.get_lib_version)

# Each command in this process would make the parser of all commands: 24 ms, hundreds of times.
parser.share()

# A server of a test keeps its port, also while the test has stopped it.
embedded.free_port = ports.free_port

_SERVER = pytest.StashKey[EmbeddedRedis]()


_LONG = ("tests/acceptance/", "tests/integration/celery/")  #: where most of the longest tests are that need no JVM


@pytest.hookimpl(trylast=True)  # after the folders have set their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Try tests with a browser or a JVM once more, and no other: a race in the queue must fail the build.

    The longest tests come first, for the last ones decide when all are done.
    """
    for item in items:
        if item.get_closest_marker("browser") or item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.flaky(reruns=1))
    items[:] = _longest_first(items, getattr(config, "workerinput", {}).get("workercount", 1))


def _longest_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Order tests so that each worker of pytest-xdist, which gets one part of them, begins with long ones.

    The first worker begins with those that need a JVM: it has one for all of them, until others have nothing else.
    """
    spark, long, short = list[pytest.Item](), list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_long = item.nodeid.startswith(_LONG) or item.get_closest_marker("long")
        kind = spark if item.get_closest_marker("spark") else long if is_long else short
        kind.append(item)
    rest = iter(short)
    others = max(1, workers - 1)
    ordered: list[pytest.Item] = []
    for part in [spark, *(long[place::others] for place in range(others))]:
        ordered += part
        ordered += itertools.islice(rest, max(0, len(items) // workers - len(part)))
    return [*ordered, *rest]


def pytest_configure(config: pytest.Config) -> None:
    """Start the server of a worker of pytest-xdist before it collects, which takes as long as the server has to age."""
    if hasattr(config, "workerinput"):
        stack = contextlib.ExitStack()
        config.add_cleanup(stack.close)
        config.stash[_SERVER] = stack.enter_context(EmbeddedRedis())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Fork the workers from one process that has imported what they collect."""
    if warm.possible({}):
        from tests.support import collected

        collected.prepare(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected, and later not in what that has made.

    Most of it stays: the looks took a third of the time, and a full one in a test went through it again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> Iterator[EmbeddedRedis]:
    """Old enough that a monitor judges leases at its first look."""
    with contextlib.ExitStack() as stack:
        server = pytestconfig.stash.get(_SERVER, None) or stack.enter_context(EmbeddedRedis())
        client = stack.enter_context(redis.Redis(port=server.port))
        eventually(lambda: client.info("server")["uptime_in_seconds"] > OUTAGE_GRACE)
        yield server


@pytest.fixture
def url(redis_server: EmbeddedRedis) -> str:
    # Without redis-py, whose client takes thirty times as long to make as the command to run.
    with socket.create_connection(("127.0.0.1", redis_server.port), timeout=30) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        assert connection.recv(64) == b"+OK\r\n"
    return redis_server.url


@pytest.fixture
def app(url: str) -> Iterator[reliq.Reliq]:
    app = reliq.Reliq(url)
    yield app
    app.close()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = Store(url)
    yield store
    store.close()
