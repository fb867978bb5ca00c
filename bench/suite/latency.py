"""Waiting times of messages: with an idle worker, and behind slow messages."""

import json
import os
import subprocess
import sys
import time

import reliq
from bench.suite.contestants import BENCH
from bench.suite.harness import Check, Row, Setting, fresh_redis, percentile
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


_QUICK, _SLOW = 0.003, 0.3  #: seconds between two messages; of the partitions of a slow sender most are at rest


def idle(setting: Setting, partitions: int = 1, *, at_rest: bool = False) -> Row:
    """One message at a time, in turns to a worker and to a bare BLMOVE loop, which wait for nothing else."""
    messages, waits = setting.volume(100, 300) if at_rest else setting.volume(1500, 10_000), {}
    pause = _SLOW if at_rest else _QUICK
    with fresh_redis() as (server, client), reliq.Reliq(server.url) as app:
        queue = app.queue("bench")
        if partitions > 1:
            queue.configure(partitions=partitions)
        receivers = {name: Receiver(name, server.url) for name in ("reliq", "blmove")}
        for _ in range(2 * partitions):  # each of its loops has had one
            queue.send(_stamp("warm"))
        client.lpush("bare", _stamp("warm"))
        eventually(lambda: client.exists("bare") == 0 and _acked(queue) == 2 * partitions)
        for _ in range(messages):
            queue.send(_stamp("quick"))
            time.sleep(pause)
            client.lpush("bare", _stamp("quick"))
            time.sleep(pause)
        eventually(lambda: client.exists("bare") == 0 and _acked(queue) == messages + 2 * partitions)
        waits = {name: receiver.waits()["quick"] for name, receiver in receivers.items()}
    row = Row(
        f"latency {'at rest' if at_rest else 'idle'}, send -> handler starts"
        + (f", {partitions} partitions" if partitions > 1 else "")
    )
    for part, bound in ((0.5, 1.5), (0.99, 2.0)):
        ours, bare = (percentile(waits[name], part) for name in ("reliq", "blmove"))
        row.checks.append(Check(f"p{part * 100:.0f} / bare BLMOVE loop", [ours / bare], bound, at_least=False))
        row.notes.append(f"p{part * 100:.0f}: reliq {ours * 1000:.2f} ms, BLMOVE loop {bare * 1000:.2f} ms")
    return row


def _acked(queue: reliq.Queue) -> int:
    return int(queue.stats().counters.get("acked", 0))


def slow_neighbours(setting: Setting) -> Row:
    """8 threads, every hundredth message takes 1 s, 400 messages/s: half of the threads' capacity.

    The slow ones come evenly, so that four threads are busy with them at any time. Came they at random, all eight would
    be for 5 % of the time (Erlang C), and no queue could start a message then.
    """
    messages = setting.volume(6000, 24_000)
    with fresh_redis() as (server, _), reliq.Reliq(server.url) as app:
        queue, receiver = app.queue("bench"), Receiver("threads", server.url)
        queue.send(_stamp("warm"))
        eventually(lambda: _acked(queue) == 1)
        began = time.monotonic()
        for number in range(messages):
            queue.send(_stamp("slow" if number % 100 == 0 else "quick"))
            time.sleep(max(0.0, began + (number + 1) / 400 - time.monotonic()))
        eventually(lambda: _acked(queue) == messages + 1)
        waits = receiver.waits()["quick"]
    p99 = percentile(waits, 0.99) * 1000
    row = Row("quick messages behind slow neighbours (8 threads)", [Check("p99 ms", [p99], 50, at_least=False)])
    row.notes = [f"{name}: {percentile(waits, part) * 1000:.2f} ms" for name, part in (("p50", 0.5), ("max", 1.0))]
    return row
