"""Waiting times of messages: with an idle worker, and behind slow messages."""

import json
import os
import subprocess
import sys
import time

import reliq
from bench.suite.contestants import BENCH
from bench.suite.harness import Check, Row, Setting, fresh_redis, percentile
from reliq.model.keys import QueueKeys
from tests.support.workers import eventually

_SCRIPT = BENCH / "contestants" / "timed.py"


class Receiver:
    """A process that notes, for each message, how long ago it was sent (the clock is the machine's)."""

    def __init__(self, variant: str, url: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(BENCH.parent)}
        self.process = subprocess.Popen(
            [sys.executable, str(_SCRIPT), variant, url], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def waits(self) -> dict[str, list[float]]:
        """End it; seconds by kind of message."""
        output, _ = self.process.communicate("", timeout=60)
        found: dict[str, list[float]] = json.loads(output)
        return found


def _stamp(kind: str) -> str:
    return f"{kind} {time.monotonic():.7f}"


def idle(setting: Setting) -> Row:
    """One message at a time, in turns to a worker and to a bare BLMOVE loop, which wait for nothing else."""
    messages, waits = setting.volume(1500, 10_000), {}
    with fresh_redis() as (server, client):
        app, keys = reliq.Reliq(server.url), QueueKeys("bench")
        queue, receivers = app.queue("bench"), {name: Receiver(name, server.url) for name in ("reliq", "blmove")}
        queue.send(_stamp("warm"))
        client.lpush("bare", _stamp("warm"))
        eventually(lambda: client.exists("bare") == 0 and client.hget(keys.counters, "acked") == b"1")
        for _ in range(messages):
            queue.send(_stamp("quick"))
            time.sleep(0.003)
            client.lpush("bare", _stamp("quick"))
            time.sleep(0.003)
        eventually(lambda: client.exists("bare") == 0 and client.hget(keys.counters, "acked") == b"%d" % (messages + 1))
        waits = {name: receiver.waits()["quick"] for name, receiver in receivers.items()}
        app.close()
    row = Row("latency idle, send -> handler starts")
    for part, bound in ((0.5, 1.5), (0.99, 2.0)):
        ours, bare = (percentile(waits[name], part) for name in ("reliq", "blmove"))
        row.checks.append(Check(f"p{part * 100:.0f} / bare BLMOVE loop", [ours / bare], bound, at_least=False))
        row.notes.append(f"p{part * 100:.0f}: reliq {ours * 1000:.2f} ms, BLMOVE loop {bare * 1000:.2f} ms")
    return row


def slow_neighbours(setting: Setting) -> Row:
    """8 threads, every hundredth message takes 1 s, 400 messages/s: half of the threads' capacity.

    The slow ones come evenly, so that four threads are busy with them at any time. Came they at random, all eight would
    be for 5 % of the time (Erlang C), and no queue could start a message then.
    """
    messages = setting.volume(6000, 24_000)
    with fresh_redis() as (server, client):
        app, keys = reliq.Reliq(server.url), QueueKeys("bench")
        queue, receiver = app.queue("bench"), Receiver("threads", server.url)
        queue.send(_stamp("warm"))
        eventually(lambda: client.hget(keys.counters, "acked") == b"1")
        began = time.monotonic()
        for number in range(messages):
            queue.send(_stamp("slow" if number % 100 == 0 else "quick"))
            time.sleep(max(0.0, began + (number + 1) / 400 - time.monotonic()))
        eventually(lambda: client.hget(keys.counters, "acked") == b"%d" % (messages + 1))
        waits = receiver.waits()["quick"]
        app.close()
    p99 = percentile(waits, 0.99) * 1000
    row = Row("quick messages behind slow neighbours (8 threads)", [Check("p99 ms", [p99], 50, at_least=False)])
    row.notes = [f"{name}: {percentile(waits, part) * 1000:.2f} ms" for name, part in (("p50", 0.5), ("max", 1.0))]
    return row
