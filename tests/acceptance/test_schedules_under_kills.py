"""Several monitors, killed and paused again and again: every tick is one message, none is lost, none comes twice."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from datetime import datetime
from itertools import pairwise

import pytest

from tests.support.workers import eventually, process

pytestmark = pytest.mark.campaign

SCHEDULES = 50
KILLS = 12
MONITORS = 3


def test_one_message_a_tick_while_monitors_are_killed_and_paused(app, url):
    options = {"catch_up": "all", "catch_up_limit": 1000}
    steps = app.schedules._steps
    definitions = [steps.define(f"s-{number}", "1s", f"q-{number % 5}", "x", options) for number in range(SCHEDULES)]
    app.store.run(steps.put(definitions))
    chance = random.Random(7)
    with contextlib.ExitStack() as running:

        def start():
            return running.enter_context(process("monitor", "--quiet", "--url", url))

        monitors = [start() for _ in range(MONITORS)]
        eventually(lambda: app.schedules.get("s-0").fired)
        for kill in range(KILLS):
            monitor = monitors.pop(0)
            if kill % 2:  # it leads again, beside the next leader, with what it had prepared
                os.kill(monitor.pid, signal.SIGSTOP)
                time.sleep(chance.uniform(0.8, 1.5))
                os.kill(monitor.pid, signal.SIGCONT)
            time.sleep(chance.uniform(0.1, 0.8))  # a kill at any moment of a tick
            monitor.kill()
            monitors.append(start())
        until = max(one.next_tick for one in app.schedules.list())
        eventually(lambda: min(one.next_tick for one in app.schedules.list()) > until)
    found = app.schedules.list()
    sent = Counter(identity for queue in range(5) for identity in ids(app, f"q-{queue}"))
    assert max(sent.values()) == 1
    assert len(sent) == sum(one.fired for one in found)
    assert sum(one.missed for one in found) == 0
    for one in found:
        ticks = sorted(tick_of(identity) for identity in sent if identity.startswith(f"{one.name}@"))
        steps_between = [later - earlier for earlier, later in pairwise(ticks)]
        assert steps_between == [1.0] * (len(ticks) - 1)  # no tick is left out
        assert ticks[-1] == one.last_tick.timestamp()
        assert len(ticks) >= KILLS / 2


def ids(app, queue):
    with app.queue(queue).consumer() as consumer:
        while messages := consumer.claim(limit=1000):
            for message in messages:
                yield message.id
                consumer.ack(message)


def tick_of(identity):
    return datetime.fromisoformat(identity.partition("@")[2]).timestamp()
