"""A redrive that Ctrl-C ends says how far it came."""

import json
import re
import signal

import pytest

from tests.support.workers import eventually, process

LETTERS = 500


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "JSON"])
def test_an_interrupted_redrive_says_how_far_it_came(app, tmp_path, options):
    queue = app.queue("big")
    queue.send_many([f"{number}" for number in range(LETTERS)])
    with queue.consumer() as consumer:
        for message in consumer.claim(limit=LETTERS):
            consumer.dead(message, "why")
    with process("dead", "redrive", "big", "--rate", "20", *options, folder=tmp_path, RELIQ_URL=app.url) as child:
        eventually(lambda: queue.stats().ready >= 10)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        said = child.stdout.read().decode()
    ready, dead = queue.stats().ready, queue.stats().dead
    assert ready + dead == LETTERS
    if options:
        found = json.loads(said)
        told, left = found["redriven"], found["dead"]
        assert found["stopped"] == "interrupted"
    else:
        ((told, left),) = re.findall(r"^interrupted: at least (\d+) redriven, (\d+) stay dead\n$", said)
        told, left = int(told), int(left)
    assert left == dead
    assert ready - told in (0, 2), "of a call whose answer was not read"
