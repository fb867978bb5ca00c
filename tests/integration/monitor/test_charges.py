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
    with process(*arguments, folder=tmp_path, PYTHONUNBUFFERED="1"):
        eventually(lambda: app.queue("poison").stats().dead == 4, timeout=60)
        eventually(lambda: app.queue("innocent").stats().counters.get("acked") == 16, timeout=60)
        eventually(lambda: app.queue("poison").stats().counters.get("acked") == 20, timeout=60)
    assert app.queue("innocent").stats().dead == 0
    letters = app.queue("poison").dead.list().letters
    died = [(letter.body, letter.reason, letter.deliveries) for letter in letters]
    assert died == [(b"poison", "max_deliveries", 2)] * 4
