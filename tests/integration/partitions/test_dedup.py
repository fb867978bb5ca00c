"""Deduplication keys hold across a change of the number of partitions."""

from collections.abc import Iterator
from typing import Any

import pytest

import reliq
from reliq import ops
from reliq.features.staging.steps import Job, PartWriter, commit, open_job, roll_forward
from reliq.model.keys import QueueKeys, dedup_digest
from reliq.model.partitions import bucket_of
from reliq.ops.chunks import framed, place, placed_chunk
from tests.support.turns import Monitor

_TURNS = 5  #: of a monitor, after which a change has ended, and closed partitions are forgotten


def change(app: reliq.Reliq, count: int) -> None:
    """Change the number of partitions, and let a monitor bring that to its end."""
    monitor = Monitor(app.store)
    app.queue("orders").configure(partitions=count)
    for _ in range(_TURNS):
        monitor.scan()
        monitor.tend_partitions()


def messages(other: str) -> Iterator[reliq.NewMessage]:
    """Twenty messages with a dedup key each, and all with the `other` key, if there is one."""
    for number in range(20):
        options: Any = {other: f"k{number}"} if other else {}
        yield reliq.NewMessage("body", dedup_key=f"d{number}", **options)


def sent(app: reliq.Reliq, other: str) -> list[str]:
    return [app.queue("orders").send(message) for message in messages(other)]


def prepared(app: reliq.Reliq, other: str) -> None:
    for message in messages(other):
        app.queue("orders").prepare(message).commit()


def staged(app: reliq.Reliq, other: str) -> None:
    """Stage and commit them, as a task of Spark does."""
    job, layout = Job(QueueKeys("orders")), app.store.call(ops.layout(QueueKeys("orders")))
    app.store.run(open_job(job))
    of_home: dict[str, list[bytes]] = {}
    for message in messages(other):
        bucket = bucket_of(message)
        assert bucket is not None
        where = place(0, 3_600_000, dedup_digest(message.dedup_key or ""), message.digest)
        of_home.setdefault(layout.homes("orders", bucket)[0], []).extend((framed(where), framed(message.element(0))))
    parts = []
    for home, frames in of_home.items():
        writer = PartWriter(job, home, "0")
        app.store.run(writer.add([placed_chunk(len(frames) // 2, b"".join(frames))]))
        parts.append(writer.part)
    app.store.run(commit(job, parts))
    app.store.run(roll_forward(job))


def handle_all(app: reliq.Reliq) -> int:
    with app.queue("orders").consumer() as consumer:
        handled = 0
        while messages := consumer.claim(limit=100, wait=0.3):
            handled += len(messages)
            consumer.ack(*messages)
        return handled


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2), (2, 3), (2, 1), (4, 1)])
@pytest.mark.parametrize("other", ["", "key", "limit_key"])
@pytest.mark.parametrize("handled", [False, True], ids=["ready", "handled"])
def test_a_duplicate_is_found_after_a_change(app, url, before, after, other, handled):
    change(app, before)
    first = sent(app, other)
    if handled:
        assert handle_all(app) == 20
    change(app, after)

    assert sent(app, other) == first
    with reliq.Reliq(url) as stranger:
        assert sent(stranger, other) == first
    assert handle_all(app) == (0 if handled else 20)


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2), (2, 3), (2, 1), (4, 1)])
@pytest.mark.parametrize("other", ["", "key", "limit_key"])
@pytest.mark.parametrize("again", [prepared, staged])
def test_what_waits_in_one_home_before_it_enters_is_looked_up_in_the_others(app, before, after, other, again):
    change(app, before)
    sent(app, other)
    change(app, after)

    again(app, other)
    counters = app.queue("orders").stats().counters
    assert counters["deduplicated"] == 20
    assert "dedup_conflicts" not in counters
    assert handle_all(app) == 20


@pytest.mark.parametrize("other", ["", "key"])
def test_rows_staged_while_messages_move_are_looked_up_in_the_new_home(app, other):
    app.queue("orders").send_many(["in the way"] * 20)
    app.queue("orders").configure(partitions=4)
    sent(app, other)
    staged(app, other)
    assert app.queue("orders").stats().counters["deduplicated"] == 20


@pytest.mark.parametrize("other", ["", "key"])
def test_a_closed_partition_is_kept_until_its_dedup_keys_have_expired(app, client, other):
    change(app, 4)
    first = sent(app, other)
    handle_all(app)
    change(app, 1)
    closed = app.store.call(ops.layout(QueueKeys("orders"))).every("orders")[1:]
    assert len(closed) == 3

    for name in closed:
        client.hset(QueueKeys(name).config, "dedup_until", 1)
        client.delete(*client.keys(QueueKeys(name).dedup_of("*")))
    change(app, 1)

    assert app.store.call(ops.layout(QueueKeys("orders"))).every("orders") == ["orders"]
    assert len(set(first) & set(sent(app, other))) < 20


def test_a_partition_without_dedup_keys_notes_nothing(app, client):
    change(app, 4)
    app.queue("orders").send_many([b"x"] * 400, key="k")
    assert not any(client.hexists(name, "dedup_until") for name in client.keys("*config"))


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (4, 3)])
def test_of_many_messages_of_a_call_with_one_dedup_key_the_first_is_enqueued(app, before, after):
    change(app, before)
    change(app, after)
    for number in range(4):
        some = [reliq.NewMessage(f"{place}", dedup_key=f"d{number}") for place in range(400)]
        ids = app.queue("orders").send_many(some)
        assert set(ids) == {some[0].id}
    assert app.queue("orders").stats().ready == 4


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (4, 3)])
def test_of_many_messages_of_a_call_that_replace_each_other_the_last_one_stays(app, before, after):
    change(app, before)
    change(app, after)
    orders = app.queue("orders")
    for number in range(20):
        key = f"d{number}"
        orders.send_many(
            [
                reliq.NewMessage(f"{key} 0", dedup_key=key, replace=True, debounce="1h"),
                *(reliq.NewMessage(f"{key} {place}", dedup_key=key, replace=True) for place in (1, 2)),
            ]
        )
    with orders.consumer() as consumer:
        handled = []
        while some := consumer.claim(limit=100):
            handled += [message.body.decode() for message in some]
            consumer.ack(*some)
    assert sorted(handled) == sorted(f"d{number} 2" for number in range(20))
