"""One endpoint for all tests of a process. Each test has queues of its own name."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from reliq.embedded import EmbeddedRedis
from tests.integration.sqs.serving import client, query_client, serving


@pytest.fixture(scope="session")
def port(redis_server: EmbeddedRedis) -> Iterator[int]:
    with serving(redis_server.url) as port:
        yield port


@pytest.fixture(scope="session")
def _sqs(port: int) -> Any:
    return client(port)


@pytest.fixture
def sqs(url: str, _sqs: Any) -> Any:
    """A client of boto3."""
    return _sqs


@pytest.fixture(scope="session")
def _sqs_query(port: int) -> Any:
    return query_client(port)


@pytest.fixture(params=["json", "query"])
def either(url: str, _sqs: Any, _sqs_query: Any, request: pytest.FixtureRequest) -> Any:
    """A client of boto3 that speaks one of both protocols."""
    return _sqs if request.param == "json" else _sqs_query


@pytest.fixture
def http(url: str, port: int) -> Iterator[httpx.Client]:
    """A client for requests that no SDK makes."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"q{uuid.uuid4().hex}"


@pytest.fixture
def queue(sqs: Any, name: str) -> Callable[..., str]:
    """Make a queue; return its URL."""

    def make(suffix: str = "", **attributes: str) -> str:
        made: str = sqs.create_queue(QueueName=name + suffix, Attributes=attributes)["QueueUrl"]
        return made

    return make


@pytest.fixture
def fifo(queue: Callable[..., str]) -> Callable[..., str]:
    """Make a FIFO queue with deduplication by content; return its URL."""

    def make(suffix: str = "", **attributes: str) -> str:
        given = {"FifoQueue": "true", "ContentBasedDeduplication": "true", **attributes}
        return queue(f"{suffix}.fifo", **given)

    return make
