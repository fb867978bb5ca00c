"""Order by key and the cycle while worker processes are killed at random."""

import contextlib
import itertools
import random
from collections import Counter, defaultdict

import pytest

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from tests.support.workers import ROOT, eventually, process

pytestmark = pytest.mark.campaign

KEYS_OF_ORDER = [f"customer-{number}" for number in range(20)]


@pytest.fixture
def workers(url, tmp_path):
    """A monitor, and a function that starts a worker process."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(process("monitor", "--url", url, "--quiet"))

        def start():
            arguments = ("worker", "tests.acceptance.order_app:app", "--url", url, "--quiet", "--no-monitor")
            return stack.enter_context(process(*arguments, folder=ROOT, ORDER_HISTORY=str(tmp_path / "history")))

        yield start


def kill_and_replace(running, start):
    victim = running.pop(random.randrange(len(running)))
    victim.kill()
    victim.wait()
    running.append(start())


def wait_for(queue, counter, least):
    eventually(lambda: queue.stats().counters.get(counter, 0) >= least, timeout=60, what=f"{least} {counter}")


def test_each_key_is_handled_in_order_one_at_a_time(app, workers, tmp_path):
    queue = app.queue("ordered")
    queue.configure(max_deliveries=100)
    for number in range(100):
        for key in KEYS_OF_ORDER:
            queue.send(str(number), key=key)
    running = [workers() for _ in range(3)]
    for kill in range(1, 7):
        wait_for(queue, "acked", kill * 250)
        kill_and_replace(running, workers)
    wait_for(queue, "acked", 2000)

    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.delayed, stats.dead) == (0, 0, 0, 0)
    history = defaultdict(list)
    for line in (tmp_path / "history").read_text().splitlines():
        event, key, number, *_ = line.split()
        history[key].append((event, int(number)))
    assert stats.counters["retried"] > 100  # so that failing messages did hold back their keys
    for key in KEYS_OF_ORDER:
        events = history[key]
        started = [number for event, number in events if event == "S"]
        assert started == sorted(started), f"{key} went back"
        assert set(started) == set(range(100)), f"{key} lost something"
        # One at a time: between a start and its end there is no other message of the key.
        for (event, number), following in itertools.pairwise(events):
            assert event == "E" or following[1] == number, f"{key}: {following} began before {number} was over"
    assert app.store.call(ops.command("EXISTS", QueueKeys("ordered").active, QueueKeys("ordered").waiting)) == 0


def everybody(app):
    """The members that have a message, wherever it is, at one instant."""
    keys = QueueKeys("accounts")
    consumers = app.store.call(ops.members(keys.consumers))
    while True:
        ready = (keys.messages, keys.next_round)
        lists = [ops.command("LRANGE", key, 0, -1) for key in (*ready, *map(keys.processing, consumers))]
        *found, delayed, known = app.store.call(
            ops.Transaction((*lists, ops.command("ZRANGE", keys.delayed, 0, -1), ops.members(keys.consumers)))
        )
        if set(known) <= set(consumers):
            elements = itertools.chain(*found, delayed)
            return Counter(Message.decode("accounts", one).key for one in elements)
        consumers = known


def test_after_each_kill_every_account_is_in_the_cycle_exactly_once(app, workers):
    accounts = [f"account-{number}" for number in range(300)]
    queue = app.queue("accounts")
    queue.configure(max_deliveries=100)
    queue.cycle.add(*accounts)
    running = [workers() for _ in range(4)]
    for kill in range(1, 9):
        wait_for(queue, "requeued", kill * 400 + 1)
        kill_and_replace(running, workers)
        assert everybody(app) == Counter(accounts)
    assert sorted(queue.cycle.members()) == sorted(accounts)
