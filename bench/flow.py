"""The limits of a queue under real worker processes: are they kept, and what do they cost?

    PYTHONPATH=.:monitor:api python bench/flow.py [--only rate,concurrency,keys,fair,breaker,cost] [--kills 200]

A Redis of its own. Processes are workers with their monitors, started by `reliq worker`. The state of the queue is read
a thousand times a second, with the server's clock before and after each reading, so that a window is never counted as
longer than it was. Takes about seven minutes; most of it are the 200 kills, one each half second.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import reliq
from bench.suite.harness import fresh_redis
from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage

PROCESSES = 4
KEYS = QueueKeys("q")

SHOP = """
import os, time
import reliq

app = reliq.Reliq()
HANDLERS = {
    "nothing": lambda message: None,
    "5 ms": lambda message: time.sleep(0.005),
    "50 ms": lambda message: time.sleep(0.05),
}
rule = None


def flaky(message):
    if os.path.exists(os.environ["DOWN"]):
        raise ConnectionError("the service is down")


if os.environ["HANDLER"] == "flaky":
    rule = reliq.breaker(threshold=0.5, minimum=20, window="30s", open_for="1s")
    app.handler("q", breaker=rule, retry=reliq.fixed("0s", limit=3))(flaky)
else:
    app.handler("q")(HANDLERS[os.environ["HANDLER"]])
"""


class Workers:
    """Worker processes, each with a monitor."""

    def __init__(self, url: str, folder: Path, handler: str, threads: int = 1) -> None:
        (folder / "shop.py").write_text(SHOP)
        self.down = folder / "down"
        self._environment = {**os.environ, "RELIQ_URL": url, "HANDLER": handler, "DOWN": str(self.down)}
        self._folder, self._threads = folder, threads
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, count: int = PROCESSES) -> None:
        command = [sys.executable, "-m", "reliq", "worker", "shop:app", "--quiet", "--threads", str(self._threads)]
        for _ in range(count):
            self.processes.append(
                subprocess.Popen(command, cwd=self._folder, env=self._environment, stderr=subprocess.DEVNULL)
            )

    def kill_one(self) -> None:
        victim = self.processes.pop(random.randrange(len(self.processes)))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.start(1)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


@contextlib.contextmanager
def workers(url: str, handler: str, threads: int = 1) -> Iterator[Workers]:
    with tempfile.TemporaryDirectory() as folder:
        made = Workers(url, Path(folder), handler, threads)
        try:
            yield made
        finally:
            made.stop()


def claims(app: reliq.Reliq, until: Callable[[int], bool]) -> list[tuple[float, int, float]]:
    """Readings of how many messages were claimed, each with the server's time in seconds before and after it."""
    found: list[tuple[float, int, float]] = []
    while not found or not until(found[-1][1]):
        before, counters, after = app.store.call(
            [ops.command("TIME"), ops.read_hash(KEYS.counters), ops.command("TIME")]
        )
        found.append((seconds(before), int(counters.get("claimed", 0)), seconds(after)))
        time.sleep(0.001)
    return found


def seconds(reply: list[bytes]) -> float:
    return int(reply[0]) + int(reply[1]) / 1e6


def rate(url: str, app: reliq.Reliq, kills: int) -> None:
    """`rate="1000/s"` over four processes for ten seconds."""
    limit, burst = 1000, 100
    queue = app.queue("q")
    queue.configure(rate=f"{limit}/s", burst=burst)
    with workers(url, "nothing") as some:
        some.start()
        while queue.stats().consumers < PROCESSES:
            time.sleep(0.05)
        queue.send_many(range(14_000))
        readings = claims(app, lambda claimed: claimed >= 13_000)
    start = next(place for place, reading in enumerate(readings) if reading[1] > burst)
    first = readings[start]
    last = next(reading for reading in readings if reading[2] >= first[2] + 10)
    exact = (last[1] - first[1]) / (last[2] - first[2])
    over = max(
        claimed - earlier[1] - (burst + limit * (after - earlier[0]))
        for place, (_, claimed, after) in enumerate(readings)
        for earlier in readings[max(0, place - 2000) : place]
    )
    print(f"rate=1000/s over {PROCESSES} processes: {exact:,.0f}/s over 10 s, {exact / limit - 1:+.1%} (asked: 2 %)")
    print(f"  the fullest of all windows of up to 2,000 readings: {-over:.1f} messages below burst + rate x t")


def concurrency(url: str, app: reliq.Reliq, kills: int) -> None:
    """`concurrency=20` while a process is killed each half second."""
    queue, most, in_use = app.queue("q"), 0, 0
    queue.configure(concurrency=20, max_deliveries=10_000)
    queue.send_many(range(2000 + kills * 250))
    with workers(url, "5 ms", threads=8) as some:
        some.start()
        killed, next_kill = 0, time.monotonic() + 2
        while killed < kills:
            most = max(most, queue.stats().processing)
            if time.monotonic() > next_kill:
                some.kill_one()
                killed, next_kill = killed + 1, next_kill + 0.5
            time.sleep(0.001)
        until = time.monotonic() + 20
        while in_use < 20 and time.monotonic() < until:
            in_use = max(in_use, queue.stats().processing)
        lost = queue.stats()
    missing = (
        lost.counters["enqueued"] - lost.counters["acked"] - lost.ready - lost.processing - lost.dead - lost.delayed
    )
    print(f"concurrency=20 with {kills} kills: at most {most} in processing (asked: 20),")
    print(f"  {in_use} slots in use afterwards (asked: 20)")
    print(f"  handled {lost.counters['acked']:,}, nowhere {missing}")


def keys(url: str, app: reliq.Reliq, kills: int) -> None:
    """A key with 5,000 messages and `key_rate="5/s"`, and 2,000 messages a second of 1,000 other keys for 5 seconds."""
    busy, steps, at_once = 5000, 50, 200
    took: dict[bool, list[float]] = {True: [], False: []}
    for limited in (True, False, True, False):
        app.store.call(ops.command("FLUSHALL"))
        queue = app.queue("q")
        queue.configure(fair=True, key_rate="5/s" if limited else None)
        with workers(url, "nothing") as some:
            some.start()
            while queue.stats().consumers < PROCESSES:
                time.sleep(0.05)
            queue.send_many([b"x"] * busy, limit_key="busy")
            began = time.monotonic()
            for step in range(steps):
                first = step * at_once
                queue.send_many([NewMessage(b"x", limit_key=f"k{n % 1000}") for n in range(first, first + at_once)])
                time.sleep(max(0.0, began + step * 0.1 - time.monotonic()))
            while others_done(queue, busy) < steps * at_once:
                time.sleep(0.005)
            took[limited].append(time.monotonic() - began)
    ratio = min(took[False]) / min(took[True])
    print(
        f"one key over its 5/s, 2,000/s of 1,000 others: {ratio:.2f} x the throughput without the limit (asked: 0.95)"
    )


def others_done(queue: reliq.Queue, busy: int) -> int:
    stats = queue.stats()
    return stats.counters.get("acked", 0) - (busy - stats.waiting - stats.delayed)


def fair(url: str, app: reliq.Reliq, kills: int, many: int = 1_000_000) -> None:
    """One tenant with a million messages, then nine with a thousand each."""
    queue = app.queue("q")
    queue.configure(fair=True)
    for start in range(0, many, 10_000):
        queue.send_many([b"large"] * min(10_000, many - start), limit_key="large")
    for number in range(9):
        queue.send_many([b"small"] * 1000, limit_key=f"small-{number}")
    with queue.consumer() as consumer:  # what is handed out, in its order; the handlers do not matter
        handed = small = 0
        while small < 9000:
            messages = consumer.claim(100)
            handed += len(messages)
            small += sum(message.body == b"small" for message in messages)
            consumer.ack(*messages)
    print(f"fair: nine tenants with 1,000 messages beside one with {many:,}: done after {handed:,} messages,")
    print(f"  {handed / 10_000:.2f} x their share (asked: 1.3)")


def breaker(url: str, app: reliq.Reliq, kills: int) -> None:
    """A handler that fails for 30 seconds, over four processes."""
    queue = app.queue("q")
    queue.send_many(range(20_000))
    with workers(url, "flaky") as some:
        some.down.touch()
        some.start()
        time.sleep(30)
        stats = queue.stats()
        charged = stats.counters.get("retried", 0) + stats.dead
        some.down.unlink()
        began = time.monotonic()
        while queue.stats().breaker != "closed":
            time.sleep(0.01)
        recovered = time.monotonic() - began
        while queue.stats().ready or queue.stats().processing:
            time.sleep(0.05)
        stats = queue.stats()
    batch = 256
    print(f"breaker, 30 s of failures over {PROCESSES} processes: {stats.dead} dead,")
    print(f"  {charged} charged (asked: at most minimum + 4 x batch = {20 + PROCESSES * batch})")
    print(
        f"  closed {recovered:.1f} s after the end of the outage (open_for is 1 s), {stats.counters['acked']:,} handled"
    )


def cost(url: str, app: reliq.Reliq, kills: int) -> None:
    """Redis' CPU of a claim and an ack with 100,000 keys: without limits, and with `key_rate`."""
    cases = {"without limits": (None, 0), "none over its rate": ("1/h", 0), "1,000 over their rate": ("1/h", 1000)}
    spent: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(3):
        for name, (key_rate, over) in cases.items():
            app.store.call(ops.command("FLUSHALL"))
            queue = app.queue("q")
            queue.configure(key_rate=key_rate)
            keys = [f"k{number}" for number in range(100_000)] + [f"k{number * 100}" for number in range(over)]
            for start in range(0, len(keys), 1000):
                queue.send_many([NewMessage(b"x" * 200, limit_key=key) for key in keys[start : start + 1000]])
            with queue.consumer() as consumer:
                before, claimed = cpu(app), 0
                while messages := consumer.claim(256):
                    claimed += len(messages)
                    consumer.ack(*messages)
                spent[name].append((cpu(app) - before) / claimed * 1e6)
    none, some = min(spent["none over its rate"]), min(spent["1,000 over their rate"])
    print("claim + ack with 100,000 keys, us of Redis' CPU a message:")
    print("  " + ", ".join(f"{name} {min(found):.1f}" for name, found in spent.items()))
    print(f"  1,000 over their rate beside none: {some / none:.2f} x (asked: 1.5)")


def cpu(app: reliq.Reliq) -> float:
    (info,) = app.store.call(ops.server_info("cpu"))
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


PARTS = {"rate": rate, "concurrency": concurrency, "keys": keys, "fair": fair, "breaker": breaker, "cost": cost}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,...", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="kills of `concurrency` (default: 200)")
    options = parser.parse_args()
    for part in options.only.split(","):
        with fresh_redis() as (server, _), reliq.Reliq(server.url) as app:
            PARTS[part](server.url, app, options.kills)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
