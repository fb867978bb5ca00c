"""Batches of queues with partitions, whose number changes."""

from collections import Counter

import pytest

from tests.integration.partitions.test_resizing import Tending
from tests.support.workers import eventually

KEYS = [f"customer-{number}" for number in range(40)]


@pytest.mark.parametrize("counts", [False, True], ids=["no batch is open", "another batch is open"])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (4, 3), (3, 8)])
def test_letters_of_a_batch_that_has_ended_are_redriven_after_a_change(app, before, after, counts):
    orders, monitor = app.queue("orders"), Tending(app.store)
    orders.configure(partitions=before)
    with app.batch() as batch:
        for key in KEYS:
            batch.send("orders", "a letter", key=key)
    if counts:
        with app.batch() as other:
            other.send("orders", "of another batch", delay="1h")
    with orders.consumer() as consumer:
        while orders.stats().dead < 40:
            for message in consumer.claim(limit=40):
                consumer.dead(message, "broken")
        monitor.scan()
        eventually(lambda: [monitor.end_batches(), app.batch_progress(batch.id)][1] is None)
        orders.configure(partitions=after)
        assert orders.dead.redrive().redriven == 40
        for key in KEYS:
            orders.send("the next one", key=key)
        runs: Counter[str] = Counter()
        settled: Counter[str] = Counter()
        while settled.total() < 80:
            monitor.tend_partitions()
            for message in consumer.claim(limit=1):
                runs[message.id] += 1
                if message.body == b"the next one" or (runs[message.id] == 2 and int(message.key[9:]) % 2):
                    consumer.ack(message)
                    settled["acked"] += 1
                elif runs[message.id] == 2:
                    consumer.dead(message, "broken again")
                    settled["dead"] += 1
                else:
                    consumer.retry(message, delay=0)
    stats = orders.stats()
    assert (stats.ready, stats.waiting, stats.processing, stats.dead) == (0, 0, 0, 20)
    assert settled == {"acked": 60, "dead": 20}
