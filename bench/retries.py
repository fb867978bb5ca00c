"""Millions of delayed messages and dead letters: their effect on other clients, and the cost of size.

    python bench/retries.py [--messages 1000000] [--letters 100000]

A Redis of its own; the monitor is a process of its own, as in production.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.ops import Revival, command
from reliq.transport.store import Store

BODY = b"x" * 200


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def pings(store: Store, until: Callable[[], bool]) -> list[float]:
    """Round trips of PING on a connection of its own, in ms, until the condition holds (looked at each 50 ms)."""
    connection, found, look = store.connection(), [], 0.0
    while True:
        started = time.perf_counter()
        store.call(command("PING"), connection)
        found.append((time.perf_counter() - started) * 1000)
        if started > look:
            look = started + 0.05
            if until():
                return found
        time.sleep(0.001)


def promotion(server: EmbeddedRedis, messages: int) -> None:
    app = reliq.Reliq(server.url)
    queue = app.queue("due")
    due = time.time() + max(5.0, messages / 30_000)
    for start in range(0, messages, 10_000):
        batch = [NewMessage(BODY, delay=max(0.001, due - time.time())) for _ in range(min(10_000, messages - start))]
        queue.send_many(batch)
    calm = pings(Store(server.url), lambda: time.time() > due - 1)
    monitor = subprocess.Popen(
        [sys.executable, "-m", "reliq", "monitor", "--quiet"], env={**os.environ, "RELIQ_URL": server.url}
    )
    busy = pings(Store(server.url), lambda: queue.stats().delayed < messages)
    started = time.monotonic()
    before = queue.stats().delayed
    busy = pings(Store(server.url), lambda: queue.stats().delayed == 0)
    seconds = time.monotonic() - started
    monitor.terminate()
    monitor.wait()
    print(f"promotion of {messages:,} due at once: {before / seconds:,.0f} messages/s")
    for name, values in (("meanwhile", busy), ("before", calm)):
        print(f"  PING {name}: p50 {percentile(values, 0.5):.2f} ms, p99 {percentile(values, 0.99):.2f} ms")
    app.close()


def sizes(server: EmbeddedRedis, most: int) -> None:
    """The cost of one operation on sets of 10, 10 k and 1 M entries, in microseconds."""
    app = reliq.Reliq(server.url)
    rows: dict[str, list[float]] = {}
    counts = [10, 10_000, most]
    for count in counts:
        queue = app.queue(f"size-{count}")
        for start in range(0, count, 10_000):
            queue.send_many(
                [NewMessage(BODY, delay=3600 + place / 1000) for place in range(min(10_000, count - start))]
            )
        fill_dead(app, queue, count)
        for name, cost in operations(app, queue).items():
            rows.setdefault(name, []).append(cost)
    print(f"cost of an operation, us, at {', '.join(f'{count:,}' for count in counts)} entries:")
    for name, costs in rows.items():
        print(f"  {name:24} " + " ".join(f"{cost:9.0f}" for cost in costs) + f"   x{costs[-1] / costs[0]:.2f}")
    app.close()


def fill_dead(app: reliq.Reliq, queue: reliq.Queue, count: int) -> list[str]:
    ids: list[str] = []
    with queue.consumer() as consumer:
        while len(ids) < count:
            step = min(1000, count - len(ids))
            ids += queue.send_many([BODY] * step)
            messages = consumer.claim(limit=step)
            consumer._first.settle(messages, died)
    return ids


def died(message: Message):
    from reliq.protocol.outcomes import buried, failure_now

    return buried(message, failure_now("bench", "ValueError", "no such order"), "rejected")


def timed(action: Callable[[], object], times: int = 300) -> float:
    costs = []
    for _ in range(times):
        started = time.perf_counter()
        action()
        costs.append(time.perf_counter() - started)
    return statistics.median(costs) * 1e6


def operations(app: reliq.Reliq, queue: reliq.Queue) -> dict[str, float]:
    ids = iter([queue.send(BODY, delay=7200) for _ in range(300)])
    letters = fill_dead(app, queue, 300)
    look, put_back = iter(letters), iter(letters)
    keys = queue._steps.keys

    def redrive_one() -> None:
        letter = queue.dead.get(next(put_back))
        assert letter is not None
        app.store.call(
            reliq.ops.redrive(keys, [Revival(letter.element, letter.id, letter.revived(keep_failures=False))])
        )

    return {
        "send(delay=)": timed(lambda: queue.send(BODY, delay=3600)),
        "cancel": timed(lambda: queue.cancel(next(ids))),
        "promote, none due": timed(lambda: app.store.call(reliq.ops.promote(keys, 100))),
        "dead.get": timed(lambda: queue.dead.get(next(look))),
        "dead.list(limit=50)": timed(lambda: queue.dead.list(limit=50), 50),
        "get + redrive of one": timed(redrive_one),
        "stats": timed(queue.stats),
    }


def redrives(server: EmbeddedRedis, letters: int) -> None:
    app = reliq.Reliq(server.url)
    queue = app.queue("dead")
    fill_dead(app, queue, letters)
    started = time.monotonic()
    done = queue.dead.redrive().redriven
    print(f"redrive of {done:,}, unlimited: {done / (time.monotonic() - started):,.0f} messages/s")
    fill_dead(app, queue, 1000)
    started = time.monotonic()
    done = queue.dead.redrive(rate=100).redriven
    print(f"redrive of {done:,} at rate=100: {done / (time.monotonic() - started):.1f} messages/s")
    app.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--letters", type=int, default=100_000)
    options = parser.parse_args()
    for part, size in ((redrives, options.letters), (promotion, options.messages), (sizes, options.messages)):
        with EmbeddedRedis(settings=("--appendonly", "no")) as server:
            part(server, size)


if __name__ == "__main__":
    main()
