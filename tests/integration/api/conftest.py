"""The service, without keys, in a thread: one for all tests of a process. Each test has queues of its own name."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

import reliq
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import QueueKeys
from reliq.model.partitions import bucket_of
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


@pytest.fixture
def half_full(app: reliq.Reliq, orders: reliq.Queue) -> tuple[reliq.Queue, str, str]:
    """A queue with two partitions, of which one is full; keys of messages that belong there, and to the other one."""
    orders.configure(partitions=2, max_length=20)
    layout = app.store.call(ops.layout(QueueKeys(orders.name)))
    homes = {layout.homes(orders.name, bucket_of(reliq.NewMessage(0, key=key)) or 0)[0]: key for key in "abcdefgh"}
    full, free = homes.values()
    orders.send_many([reliq.NewMessage("earlier", key=full) for _ in range(10)])
    return orders, full, free


Post = Callable[..., httpx.Response]


@pytest.fixture
def post(service: httpx.Client, name: str) -> Post:
    """POST JSON to a call of the queue."""

    def send(call: str, body: Any = None, **options: Any) -> httpx.Response:
        return service.post(f"/v1/queues/{name}/{call}", json={} if body is None else body, **options)

    return send
