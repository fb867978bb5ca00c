"""The service, without keys, in a thread: one for all tests of a process. Each test has queues of its own name."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

import reliq
from reliq.embedded import EmbeddedRedis
from tests.integration.api.serving import serving


@pytest.fixture(scope="session")
def _service(redis_server: EmbeddedRedis) -> Iterator[httpx.Client]:
    with serving(redis_server.url) as client:
        yield client


@pytest.fixture
def service(url: str, _service: httpx.Client) -> httpx.Client:
    return _service


@pytest.fixture
def name() -> str:
    return f"q{uuid.uuid4().hex}"


@pytest.fixture
def orders(app: reliq.Reliq, name: str) -> reliq.Queue:
    """The queue as the library sees it."""
    return app.queue(name)


Post = Callable[..., httpx.Response]


@pytest.fixture
def post(service: httpx.Client, name: str) -> Post:
    """POST JSON to a call of the queue."""

    def send(call: str, body: Any = None, **options: Any) -> httpx.Response:
        return service.post(f"/v1/queues/{name}/{call}", json={} if body is None else body, **options)

    return send
