"""A queue with partitions."""

import pytest

import reliq


@pytest.fixture
def orders(app: reliq.Reliq) -> reliq.Queue:
    queue = app.queue("orders")
    queue.configure(partitions=4)
    return queue
