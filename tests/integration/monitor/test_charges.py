"""Poison in one queue of a process takes no message of its other queues with it."""

import pytest

from tests.support.workers import eventually, process

APP = """
import os, signal, time
import reliq

app = reliq.Reliq()

@app.handler("poison", retry=reliq.fixed("10ms"))
def poison(message):
    if message.body == b"poison":
        os.kill(os.getpid(), signal.SIGKILL)

@app.handler("innocent", retry=reliq.fixed("10ms"))
def innocent(message):
    time.sleep(0.2)
"""


@pytest.mark.slow
def test_innocents_of_another_queue_are_never_charged(app, tmp_path):
    """Both queues of each process have redelivered messages; only the one that was being tried kills it."""
    (tmp_path / "shop.py").write_text(APP)
    for queue in ("poison", "innocent"):
        app.queue(queue).configure(max_deliveries=2)
    app.queue("poison").send_many(["poison"] * 4 + ["well"] * 20)
    app.queue("innocent").send_many(["x"] * 16)
    arguments = ("worker", "shop:app", "--processes", "2", "--threads", "4", "--url", app.url)
    with process(*arguments, folder=tmp_path):
        eventually(lambda: app.queue("poison").stats().dead == 4, timeout=60)
        eventually(lambda: app.queue("innocent").stats().counters.get("acked") == 16, timeout=60)
        eventually(lambda: app.queue("poison").stats().counters.get("acked") == 20, timeout=60)
    assert app.queue("innocent").stats().dead == 0
    letters = app.queue("poison").dead.list().letters
    died = [(letter.body, letter.reason, letter.deliveries) for letter in letters]
    assert died == [(b"poison", "max_deliveries", 2)] * 4


SLOW_APP = """
import asyncio, os, signal
import reliq
from reliq.worker import loop, trials

loop.Trials = lambda: trials.Trials(caution=0.0)  # several trials at a time from the first one on
app = reliq.Reliq()

@app.handler("q")
async def handle(message):
    if message.body == b"poison":
        with open("deaths", "ab", buffering=0) as file:
            file.write(b".")
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.3)
"""


def test_poison_among_many_slow_messages_is_found_and_takes_none_with_it(app, tmp_path):
    """They run several at a time after a death; each further one halves their number until the poison runs alone."""
    (tmp_path / "shop.py").write_text(SLOW_APP)
    queue = app.queue("q")
    queue.configure(max_deliveries=2)
    queue.send_many(["well"] * 20 + ["poison"] + ["well"] * 11)
    arguments = ("worker", "shop:app", "--concurrency", "32", "--processes", "2", "--url", app.url)
    with process(*arguments, folder=tmp_path):
        eventually(lambda: queue.stats().counters.get("acked") == 31, timeout=100)
        eventually(lambda: queue.stats().dead == 1, timeout=60)
    (letter,) = queue.dead.list().letters
    assert (letter.body, letter.reason, letter.deliveries) == (b"poison", "max_deliveries", 2)
    deaths = len((tmp_path / "deaths").read_bytes())
    assert deaths <= 1 + 5 + 2, "the first one, one for each halving of 32, and those that are charged"
