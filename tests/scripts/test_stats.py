"""stats, and what is read with it: a queue in which nothing is says nothing of what it does not have."""

import pytest

from reliq.model.stats import Stats


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
