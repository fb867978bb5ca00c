"""Consumers that wait for a slot of `concurrency`, or for messages within limits: they are told, and do not ask."""

import contextlib
import functools
import threading
from collections import Counter

import pytest

import reliq
from reliq import ops
from reliq.contract import values
from reliq.model.keys import QueueKeys
from reliq.protocol import claimant, limits
from tests.support.workers import eventually, process

KEYS = QueueKeys("q")
NEVER = 1000.0


@pytest.fixture
def queue(url):
    with reliq.Reliq(url) as app:
        yield app.queue("q")


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """Consumers claim only when they are told to; how often each has claimed."""
    monkeypatch.setattr(values, "SLOW_LOOK", NEVER)
    counts = Counter[str]()
    original = claimant.Claimant._limited_op

    def counted(self, *arguments):
        counts[self.id] += 1
        return original(self, *arguments)

    monkeypatch.setattr(claimant.Claimant, "_limited_op", counted)
    return counts


@pytest.fixture
def waiting(queue):
    """A function that starts so many consumers, which wait for a message each and keep it; their messages."""
    got, over = list[bytes](), threading.Event()

    def wait():
        with queue.consumer(lease=3600) as consumer:
            while not over.is_set():
                for message in consumer.claim(1, wait=2):
                    got.append(message.body)
                    over.wait(60)
                    consumer.ack(message)

    with contextlib.ExitStack() as stack:

        def start(count):
            for _ in range(count):
                thread = threading.Thread(target=wait)
                thread.start()
                stack.callback(thread.join)
            return got

        yield start
        over.set()


def _has(got, count):
    return len(got) == count


def _are_blocked(client, for_messages, to_be_told):
    return (blocked(client, "blmove"), blocked(client, "blpop")) == (for_messages, to_be_told)


def blocked(client, command):
    return sum(one["cmd"] == command for one in client.client_list())


def test_the_end_of_a_message_tells_one_of_those_that_wait(queue, client, waiting, asked):
    queue.configure(concurrency=1)
    queue.send_many(["first", "second", "third"])
    with queue.consumer(lease=3600) as consumer:
        (message,) = consumer.claim(5)
        got = waiting(6)
        eventually(lambda: blocked(client, "blpop") == 6)
        before = asked.total()
        consumer.ack(message)
        eventually(lambda: got == [b"second"])
    eventually(lambda: blocked(client, "blpop") == 5)
    assert asked.total() - before <= 2
    assert queue.stats().ready == 1


def test_consumers_that_wait_for_a_slot_send_no_requests(queue, client, waiting, asked):
    queue.configure(concurrency=1)
    queue.send_many(["first", "second"])
    with queue.consumer(lease=3600) as consumer:
        consumer.claim(1)
        waiting(3)
        eventually(lambda: blocked(client, "blpop") == 3)

        def waits():
            return client.info("commandstats")["cmdstat_blpop"]["calls"]

        claims, before = asked.total(), waits()
        eventually(lambda: waits() >= before + 6)
        assert asked.total() <= claims + 6  # each begins `claim` with one, and waits two seconds


def test_a_message_wakes_one_consumer_of_a_queue_with_limits(queue, client, waiting, asked):
    queue.configure(rate="1000/s")
    got = waiting(8)
    eventually(lambda: _are_blocked(client, 1, 7))
    for number in range(3):
        before = asked.total()
        queue.send(number)
        eventually(functools.partial(_has, got, number + 1))
        eventually(functools.partial(_are_blocked, client, 1, 6 - number))
        assert asked.total() - before < 8  # that one, its follower, and those whose two seconds were over


def test_messages_that_come_together_go_to_all_that_wait(queue, client, waiting):
    queue.configure(concurrency=5)
    got = waiting(8)
    eventually(lambda: blocked(client, "blmove") == 1)
    queue.send_many(range(8))
    eventually(lambda: len(got) == 5)
    assert queue.stats().processing == 5


@pytest.mark.long
def test_a_worker_that_is_killed_gives_its_slot_to_one_that_waits(queue, client, url, tmp_path, waiting):
    (tmp_path / "shop.py").write_text(
        "import time, reliq\napp = reliq.Reliq()\n\n@app.handler('q')\ndef handle(message):\n    time.sleep(600)\n"
    )
    queue.configure(concurrency=1)
    queue.send("first")
    with process("monitor", "--url", url, "--quiet"):
        arguments = ("worker", "shop:app", "--url", url, "--quiet", "--no-monitor")
        with process(*arguments, folder=tmp_path) as worker:
            eventually(lambda: queue.stats().processing == 1, timeout=30)
            got = waiting(2)
            eventually(lambda: blocked(client, "blpop") == 2)
            worker.kill()
            worker.wait()
            eventually(lambda: got == [b"first"], timeout=30)
    assert client.hget(KEYS.holders, "#") == b"1"


def test_more_consumers_than_are_counted_in_one_call_are_all_counted(queue, client, monkeypatch):
    monkeypatch.setattr(limits, "_AT_ONCE", 100)
    queue.send_many(range(30))
    with contextlib.ExitStack() as stack:
        for number in range(700):
            queue._store.call(ops.register(KEYS, f"idle-{number}", NEVER))
        holding = [stack.enter_context(queue.consumer()) for _ in range(10)]
        for one in holding:
            assert len(one.claim(2)) == 2
        queue.configure(concurrency=23)
        last = stack.enter_context(queue.consumer())
        assert len(last.claim(10)) == 3
        assert client.hget(KEYS.holders, "#") == b"23"
        assert last.claim(1) == []
