"""Limits while worker processes are killed: never exceeded, and no slot is lost."""

import contextlib
import random
import threading

import pytest

from tests.support.workers import eventually, process

pytestmark = pytest.mark.campaign

SHOP = """
import time
import reliq

app = reliq.Reliq()


@app.handler("q")
def handle(message):
    time.sleep(0.003)
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
    running = [workers() for _ in range(2)]
    for kill in range(1, 4):
        handled(queue, kill * 200)
        victim = running.pop(random.randrange(2))
        victim.kill()
        victim.wait()
        running.append(workers())
    eventually(lambda: queue.stats().processing == at_once, what="all slots are used after the kills")
    eventually(lambda: queue.stats().counters["acked"] == 1800, timeout=60)
    watch.over.set()
    watch.join()
    assert watch.most == at_once
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.delayed, stats.dead) == (0, 0, 0, 0)
