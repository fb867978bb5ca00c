"""The statistics of a queue: each field says what it means, and how those of partitions become those of the queue."""

from dataclasses import fields

import pytest

from reliq.model.stats import Stats, whole
from reliq_api import schemas

FIRST = Stats(
    "q", ready=1, processing=2, delayed=3, dead=4, waiting=1, oldest_ready_age=5.0, consumers=1, paused=False,
    counters={"enqueued": 10, "acked": 1}, overdue=1.0, max_length=10, members=1,
)  # fmt: skip
SECOND = Stats(
    "q", ready=10, processing=20, delayed=30, dead=40, waiting=10, oldest_ready_age=2.0, consumers=2, paused=True,
    counters={"enqueued": 100}, prepared=1, limited_by="rate", breaker="open", overdue=3.0, max_length=11, high=2,
    low=3, schedules=1, next_tick=7.0, tick_overdue=2.0, exact=False,
)  # fmt: skip


def test_the_statistics_of_a_queue_are_put_together_from_those_of_its_partitions():
    assert whole([FIRST, SECOND]) == Stats(
        "q", ready=11, processing=22, delayed=33, dead=44, waiting=11, oldest_ready_age=5.0, consumers=3, paused=True,
        counters={"enqueued": 110, "acked": 1}, prepared=1, limited_by="rate", breaker="open", overdue=3.0,
        max_length=21, high=2, low=3, members=1, schedules=1, next_tick=7.0, tick_overdue=2.0, exact=False,
    )  # fmt: skip


def test_without_one_of_its_partitions_they_are_not_exact():
    found = whole([FIRST], unseen=2)
    assert (found.ready, found.exact, found.unseen) == (1, False, 2)


@pytest.mark.parametrize("one", fields(Stats), ids=lambda one: one.name)
def test_each_field_shows_over_http_with_what_it_means(one):
    text = one.metadata["text"]
    assert text[0].islower()
    assert not text.endswith(".") or text.endswith("...")
    described = schemas.QueueStats.model_fields[one.name].description
    assert described is not None
    assert described.casefold().startswith(text.casefold())
