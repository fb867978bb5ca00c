"""Limits while worker processes are killed: never exceeded, no slot is lost, and what was spent is what was charged."""

import contextlib
import random
import threading
import time
from typing import Any

import pytest
import redis

import reliq
from reliq.model.keys import QueueKeys
from tests.support.workers import eventually, process

pytestmark = pytest.mark.campaign

SHOP = """
import time
from typing import Any
import reliq

app = reliq.Reliq()


@app.handler("q")
def handle(message):
    time.sleep(0.003)
    if message.cost > 1:
        message.charge(60)
        time.sleep(0.002)
        message.charge(40)
"""


@pytest.fixture
def workers(url, tmp_path):
    """A monitor, and a function that starts a worker process with four threads."""
    (tmp_path / "shop.py").write_text(SHOP)
    with contextlib.ExitStack() as stack:
        stack.enter_context(process("monitor", "--url", url, "--quiet"))
        arguments = ("worker", "shop:app", "--url", url, "--quiet", "--no-monitor", "--threads", "4")
        yield lambda: stack.enter_context(process(*arguments, folder=tmp_path))


class Watch(threading.Thread):
    """Reads the queue all the time, and keeps the most messages that were in processing at once."""

    def __init__(self, queue):
        super().__init__(daemon=True)
        self.most = 0
        self.over = threading.Event()
        self._queue = queue

    def run(self):
        while not self.over.is_set():
            self.most = max(self.most, self._queue.stats().processing)


def handled(queue, least):
    eventually(lambda: queue.stats().counters.get("acked", 0) >= least, timeout=60)


def _kill(queue, workers):
    """Kill workers while they handle messages."""
    running = [workers() for _ in range(2)]
    for kill in range(1, 4):
        handled(queue, kill * 200)
        victim = running.pop(random.randrange(2))
        victim.kill()
        victim.wait()
        running.append(workers())


@pytest.mark.parametrize(
    ("settings", "at_once"), [({"concurrency": 5}, 5), ({"key_concurrency": 2}, 6)], ids=["queue", "keys"]
)
def test_no_more_than_allowed_and_no_slot_lost(app, workers, settings, at_once):
    """With two messages of each of three keys at once, or five of all."""
    queue = app.queue("q")
    queue.configure(max_deliveries=1000, **settings)
    for key in ("a", "b", "c"):
        queue.send_many(range(600), limit_key=key)  # enough are left after the kills to see all slots used
    watch = Watch(queue)
    watch.start()
    _kill(queue, workers)
    eventually(lambda: queue.stats().processing == at_once, what="all slots are used after the kills")
    eventually(lambda: queue.stats().counters["acked"] == 1800, timeout=60)
    watch.over.set()
    watch.join()
    assert watch.most == at_once
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.delayed, stats.dead) == (0, 0, 0, 0)


def test_each_run_takes_what_it_has_charged_and_one_that_was_killed_before_its_cost(app, url, workers):
    """The bucket gets a token an hour, so what it lacks at the end is what was taken."""
    queue, keys = app.queue("q"), QueueKeys("q")
    queue.configure(max_deliveries=1000, rate="1/h", burst=1_000_000)
    queue.send_many([reliq.NewMessage("x", cost=100) for _ in range(900)])
    _kill(queue, workers)
    eventually(lambda: queue.stats().counters["acked"] == 900, timeout=60)
    client: Any = redis.Redis.from_url(url)
    charged = [int(client.get(key)) for key in client.scan_iter(keys.charged("*"), count=1000)]
    claimed, released = (queue.stats().counters.get(name, 0) for name in ("claimed", "released"))
    taken = sum(charged) + 100 * (claimed - released - len(charged))  # what was released had not been started
    lacks = float(client.hget(keys.flow, "full_at")) / 3_600_000 - time.time() / 3600
    assert len(charged) >= 900
    assert {*charged} <= {60, 40}
    assert abs(lacks - taken) < 1, f"{claimed} claimed, {released} released, {len(charged)} charged"
