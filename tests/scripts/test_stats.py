"""stats, and what is read with it: a queue in which nothing is says nothing of what it does not have."""

import pytest
import redis

from reliq.model.keys import QueueKeys
from reliq.model.stats import Stats
from reliq.ops import MOST_CONSUMERS


@pytest.fixture
def queue(app):
    return app.queue("q")


def test_an_empty_queue_has_no_figure_but_zero(queue):
    assert queue.stats() == Stats(
        "q", ready=0, processing=0, delayed=0, dead=0, waiting=0, oldest_ready_age=0.0, consumers=0, paused=False,
        counters={},
    )  # fmt: skip


def test_partitions_that_do_not_change_have_no_key_elsewhere(queue):
    queue.configure(partitions=2)
    queue.send("a", key="k")
    found = queue.partitions()
    assert [found.moving, *(part.keys_elsewhere for part in found.partitions)] == [False, 0, 0]


@pytest.mark.parametrize("consumers", [MOST_CONSUMERS, MOST_CONSUMERS + 1])
def test_the_messages_of_any_number_of_consumers_are_counted(queue, url, consumers):
    keys, names = QueueKeys("q"), [f"c{number}" for number in range(consumers)]
    with redis.Redis.from_url(url) as client, client.pipeline() as pipeline:
        pipeline.sadd(keys.consumers, *names)
        for name in names:
            pipeline.lpush(keys.processing(name), "one")
        pipeline.execute()
    found = queue.stats()
    assert (found.consumers, found.processing, found.exact) == (consumers, consumers, consumers <= MOST_CONSUMERS)
