"""`max_bytes`: what a queue may take of Redis' memory."""

import pytest

import reliq
from reliq import ops
from reliq.errors import InvalidSetting, QueueFull
from reliq.model.keys import QueueKeys

MIB = 1024 * 1024


def used(app, *names):
    """What Redis says, looking at every element."""
    return sum(app.store.call(ops.command("MEMORY", "USAGE", name, "SAMPLES", 0)) or 0 for name in names)


@pytest.fixture
def orders(app):
    queue = app.queue("orders")
    queue.configure(max_bytes=2 * MIB)
    return queue


def fill(queue, size, **options):
    """Send until the queue is full; how many it took, and what it then said."""
    count = 0
    while True:
        try:
            queue.send(b"x" * size, **options)
        except QueueFull as error:
            return count, str(error)
        count += 1


@pytest.mark.parametrize("size", [100, 3_000, 20_000, 200_000])
@pytest.mark.parametrize(
    "options", [{}, {"delay": "1h"}, {"priority": "high"}, {"key": "k"}], ids=["ready", "delayed", "high", "key"]
)
def test_a_queue_takes_no_more_memory_than_its_quota(app, orders, size, options):
    keys = QueueKeys("orders")
    if size == 100:
        orders.send_many([b"y" * 1000 for _ in range(1500)], **options)
    count, text = fill(orders, size, **options)
    taken = used(app, keys.messages, keys.high, keys.low, keys.waiting, keys.delayed, keys.bodies)
    assert 0.9 * (2 * MIB - size) < taken < 1.05 * 2 * MIB  # an estimate: most blocks are looked at, not all
    assert count > 0
    assert f"of at most {2 * MIB} bytes; none of the 1 was enqueued" in text
    assert orders.stats().counters["rejected"] == 1


def test_a_call_that_would_exceed_it_is_refused_whole(orders):
    with pytest.raises(QueueFull):
        orders.send_many([b"x" * 200_000] * 12)
    assert orders.stats().ready == 0
    orders.send_many([b"x" * 200_000] * 8)


def test_what_was_handled_makes_room(orders):
    count, _ = fill(orders, 200_000)
    with orders.consumer() as consumer:
        consumer.ack(*consumer.claim(limit=2))
    assert fill(orders, 200_000)[0] == 2
    assert count > 2


def test_without_one_nothing_is_asked_and_none_is_refused(app, orders):
    orders.configure(max_bytes=None)
    orders.send_many([b"x" * 200_000] * 12)
    assert orders.config().max_bytes is None


def test_max_length_holds_beside_max_bytes(orders):
    orders.configure(max_length=2)
    orders.send_many([1, 2])
    with pytest.raises(QueueFull, match="holds 2 of at most 2 messages"):
        orders.send(3)


def test_what_is_published_and_a_cycle_are_counted_too(app, orders):
    app.subscribe("orders", "order.*")
    fill(orders, 200_000)
    with pytest.raises(QueueFull, match="bytes; nothing was enqueued in any"):
        app.publish("order.created", b"x" * 200_000)
    for size in (20_000, 1_000, 100):  # thousands of 100 bytes would fit
        fill(orders, size)
    with pytest.raises(QueueFull, match="bytes; 0 entered"):
        orders.cycle.add(*(f"member-{number}-{'x' * 400}" for number in range(100)))


@pytest.mark.parametrize("wrong", [0, -1, MIB - 1, 1.5, "1", "1 MB", True, 10**16])
def test_quotas_that_make_no_sense(app, wrong):
    with pytest.raises(InvalidSetting, match="max_bytes"):
        app.queue("orders").configure(max_bytes=wrong)
    assert app.queue("orders").config() == reliq.Config()
