"""The output of handlers, read while they run and afterwards, by threads and by asyncio."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

import reliq
from reliq import InvalidSetting, aio
from reliq.features.output import ops as own
from reliq.features.output.steps import Reading
from reliq.model.keys import QueueKeys
from reliq.protocol.deletion import delete
from tests.support.handlers import settled, working_as
from tests.support.turns import Monitor
from tests.support.workers import eventually

KEYS = QueueKeys("q")
LARGEST = 1024 * 1024


def bound(app: reliq.Reliq, kind: str, chunks: Any, **options: Any) -> None:
    """Make a handler that emits what a generator yields."""
    if kind == "async":

        @app.handler("q", **options)
        async def emit_async(message: reliq.Message) -> None:
            for one in chunks(message):
                await message.emit(one)
    else:

        @app.handler("q", **options)
        def emit(message: reliq.Message) -> None:
            for one in chunks(message):
                message.emit(one)


def test_output_is_read_while_the_handler_runs_and_afterwards(app, kind):
    gate = threading.Event()

    def chunks(message):
        yield from ("once ", "upon ")
        assert gate.wait(30)
        yield from ({"a": 1}, b"\xff")

    bound(app, kind, chunks)
    queue = app.queue("q")
    one = queue.send("x")
    with working_as(kind, app):
        reading = queue.output(one)
        assert [next(reading).value for _ in range(2)] == ["once ", "upon "]
        assert queue.stats().processing == 1
        gate.set()
        assert [chunk.value for chunk in reading] == [{"a": 1}, b"\xff"]
        eventually(lambda: settled(app))
    every = list(queue.output(one))
    assert [(chunk.run, chunk.value) for chunk in every] == [(1, "once "), (1, "upon "), (1, {"a": 1}), (1, b"\xff")]
    assert [chunk.value for chunk in queue.output(one, after=every[1].id)] == [{"a": 1}, b"\xff"]
    assert sorted(every, key=lambda chunk: chunk.at) == every


def test_the_output_of_a_message_whose_worker_dies_for_the_last_time_ends(app, client):
    queue = app.queue("q")
    queue.configure(max_deliveries=1)
    one = queue.send("x")
    with queue.consumer() as lost:
        (message,) = lost.claim()
        message.emit("half")
        client.delete(KEYS.lease(lost.id))
        Monitor(app.store).scan()
    assert queue.stats().dead == 1
    assert not app.store.call(own.emitted(KEYS, one, "", 10)).open
    assert [chunk.value for chunk in queue.output(one)] == ["half"]


def test_a_retry_begins_a_new_run_and_a_dead_letter_ends_the_output(app, kind):
    def chunks(message):
        yield f"try {message.failures}"
        raise ValueError("as it should")

    bound(app, kind, chunks, retry=reliq.fixed(0, limit=1))
    queue = app.queue("q")
    one = queue.send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().dead)
        assert [(chunk.run, chunk.value) for chunk in queue.output(one)] == [(1, "try 0"), (2, "try 1")]


def test_a_reader_follows_a_message_of_a_queue_with_partitions(app):
    bound(app, "threads", lambda message: range(5), retry=reliq.fixed(0, limit=1))
    queue = app.queue("q")
    queue.configure(partitions=3)
    ids = [queue.send("x", key=key) for key in "abcd"]
    found: dict[str, list[Any]] = {}
    readers = [
        threading.Thread(target=lambda one=one: found.update({one: [chunk.value for chunk in queue.output(one)]}))
        for one in ids
    ]
    for reader in readers:
        reader.start()
    with working_as("threads", app, monitor=True):
        for reader in readers:
            reader.join(30)
    assert found == {one: [0, 1, 2, 3, 4] for one in ids}


def test_a_reader_of_asyncio_follows(app, url):
    async def read(identity: str) -> list[Any]:
        async with aio.Reliq(url) as own:
            return [chunk.value async for chunk in own.queue("q").output(identity)]

    bound(app, "threads", lambda message: range(5))
    one = app.queue("q").send("x")
    with working_as("threads", app):
        assert asyncio.run(read(one)) == [0, 1, 2, 3, 4]


def test_any_number_of_tasks_follow_with_few_connections(app, url, client, monkeypatch):
    looks, look = Counter[str](), Reading._look

    def counted(reading: Reading) -> Any:
        looks[reading._id] += 1
        return look(reading)

    monkeypatch.setattr(Reading, "_look", counted)

    async def read(queue: Any, identity: str) -> list[Any]:
        return [chunk.value async for chunk in queue.output(identity, wait="20s")]

    async def follow() -> list[Any]:
        async with aio.Reliq(url) as other:
            queue = other.queue("q")
            ids = await queue.send_many(range(300))
            following = asyncio.gather(*(read(queue, one) for one in ids))
            await asyncio.to_thread(eventually, lambda: all(looks[one] > 1 for one in ids))
            assert client.info("clients")["connected_clients"] < 200
            with working_as("threads", app):
                return await following

    bound(app, "threads", lambda message: [message.json(), "end"])
    assert asyncio.run(follow()) == [[number, "end"] for number in range(300)]


def test_a_robbed_run_cannot_write(app, client):
    queue = app.queue("q")
    one = queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        message.emit("mine")
        client.delete(*client.keys(KEYS.lease("*")))
        Monitor(app.store).scan()
        with pytest.raises(reliq.LeaseLost, match="nothing was recorded"):
            message.emit("late")
        with queue.consumer() as other:
            (again,) = other.claim()
            again.emit("theirs")
            with pytest.raises(reliq.LeaseLost):
                message.emit("late")
            other.ack(again)
    assert [(chunk.run, chunk.value) for chunk in queue.output(one)] == [(1, "mine"), (2, "theirs")]


def test_a_message_without_output_has_no_key_and_a_reader_waits_for_its_first_chunk(app, client):
    queue = app.queue("q")
    one = queue.send("x")
    assert list(queue.output(one, wait=0)) == []
    assert list(queue.output(one, follow=False)) == []
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert not client.keys("*output*")
        timer = threading.Timer(0.2, lambda: (message.emit("first"), consumer.ack(message)))
        timer.start()
        assert [chunk.value for chunk in queue.output(one)] == ["first"]
        timer.join()


@pytest.mark.parametrize("how", ["cancel", "purge", "discard"])
def test_output_goes_with_a_message_that_is_deleted_unhandled(app, client, how):
    queue = app.queue("q")
    one = queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        message.emit("a secret")
        consumer.dead(message, "rejected") if how == "discard" else consumer.release(message)
    assert {"cancel": lambda: queue.cancel(one), "purge": queue.purge, "discard": lambda: queue.dead.purge(all=True)}[
        how
    ]()
    assert client.exists(KEYS.output(one))
    assert Monitor(app.store).clean_outputs() == 1
    assert not client.exists(KEYS.output(one), KEYS.followed)
    assert list(queue.output(one, wait=0)) == []


def test_a_deleted_queue_leaves_no_output(app, client):
    queue = app.queue("q")
    one = queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        message.emit("x")
        consumer.ack(message)
    assert client.exists(KEYS.output(one))
    app.store.run(delete("q", force=True))
    assert client.keys("reliq:{q}:*") == []


def test_the_largest_chunk_has_a_mebibyte(app):
    queue = app.queue("q")
    one = queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        message.emit(b"x" * LARGEST)
        message.emit("x" * (LARGEST - 2))  # and two quotation marks
        consumer.ack(message)
    assert [len(chunk.value) for chunk in queue.output(one)] == [LARGEST, LARGEST - 2]


def test_what_is_no_chunk_is_refused(app):
    queue = app.queue("q")
    one = queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        for wrong in (float("nan"), object()):
            with pytest.raises(reliq.InvalidMessage, match=r"^emit got \w+, which cannot be stored as a chunk: "):
                message.emit(wrong)
        for large in (b"x" * (LARGEST + 1), "x" * (LARGEST - 1)):
            with pytest.raises(reliq.InvalidMessage, match=r"^emit got 1,048,577 bytes, the limit of a chunk is 1 MiB"):
                message.emit(large)
        with pytest.raises(reliq.InvalidSetting, match="id of a chunk"):
            list(queue.output(one, after="yesterday"))
    with pytest.raises(reliq.ReliqError):
        message.emit("x")


def test_a_chunk_id_of_more_than_64_bits_is_refused(app):
    with pytest.raises(InvalidSetting, match="give the id of a chunk"):
        list(app.queue("q").output("x", after="99999999999999999999-0"))
