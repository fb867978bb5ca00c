"""CPU time of a monitor of many queues, its cost for Redis, and the lateness of its promotions.

    PYTHONPATH=.:monitor:api python bench/monitor.py [--queues 1000] [--rates 20,200]

First by how many of the queues have a consumer and a delayed message, then by how many messages become due each second.
"""

import argparse
import random
import time
from bisect import insort
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import redis

import reliq
from bench.suite.flat import BODY, monitor_shares
from bench.suite.harness import fresh_redis, percentile
from reliq import ops
from reliq.model.keys import QueueKeys, monitors_until, new_owner

_DELAYS = (0.06, 0.3, 1.0)
_BUSY = 50  #: queues that messages are sent to
_FLOW = 11.0  #: seconds, while the monitor is watched
_LOOK = 0.004


def idle(app: reliq.Reliq, count: int, every: int) -> None:
    """Create queues; one in `every` has a consumer and a delayed message, with 0 none."""
    for number in range(count):
        queue = app.queue(f"queue-{number}")
        queue.send(BODY)
        if every and number % every == 0:
            queue.send(BODY, delay=3600)
            app.store.call(ops.register(QueueKeys(queue.name), new_owner(connected=False), 3600.0))


def flow(app: reliq.Reliq, client: redis.Redis, count: int, rate: float) -> list[float]:
    """Send delayed messages for a while; return how many seconds after its due time each was ready."""
    queues = [app.queue(f"queue-{number}") for number in range(0, count, max(1, count // _BUSY))]
    due: list[list[float]] = [[] for _ in queues]  #: by the monotonic clock, soonest first
    before = _ready(client, queues)
    while not client.exists(monitors_until("0")):
        time.sleep(_LOOK)
    late: list[float] = []
    began, sent = time.monotonic(), 0
    while (now := time.monotonic()) < began + _FLOW + max(_DELAYS) + 1:
        if now < began + _FLOW and sent < (now - began) * rate:
            place, delay = random.randrange(len(queues)), random.choice(_DELAYS)
            queues[place].send(BODY, delay=delay)
            insort(due[place], time.monotonic() + delay)
            sent += 1
            continue
        lengths, seen = _ready(client, queues), time.monotonic()
        for place, length in enumerate(lengths):
            came = length - before[place]
            late += [seen - one for one in due[place][:came]]
            del due[place][:came]
        before = lengths
        time.sleep(_LOOK)
    return late


def _ready(client: redis.Redis, queues: Sequence[reliq.Queue]) -> list[int]:
    pipeline = client.pipeline(transaction=False)
    for queue in queues:
        pipeline.llen(QueueKeys(queue.name).messages)
    lengths: list[int] = pipeline.execute()
    return lengths


def measure_idle(count: int, words: str, every: int) -> str:
    with fresh_redis() as (server, _):
        app = reliq.Reliq(server.url)
        idle(app, count, every)
        monitor, of_redis = monitor_shares(server.url)
        app.close()
    return f"{words} of {count} queues busy: monitor {monitor:.4f}, Redis {of_redis:.4f} of a core"


def measure_flow(count: int, rate: float) -> str:
    with fresh_redis() as (server, client), ThreadPoolExecutor() as threads:
        app = reliq.Reliq(server.url)
        idle(app, count, 0)
        flowing = threads.submit(flow, app, client, count, rate)
        monitor, _ = monitor_shares(server.url)
        late = flowing.result()
        app.close()
    worst = f"late p50 {percentile(late, 0.5):.3f} s, p99 {percentile(late, 0.99):.3f} s, of {len(late)}"
    return f"{rate:g} due a second: monitor {monitor:.4f} of a core, {worst}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--rates", default="20,200")
    options = parser.parse_args()
    for words, every in (("none", 0), ("a tenth", 10), ("all", 1)):
        print(measure_idle(options.queues, words, every), flush=True)
    for rate in options.rates.split(","):
        print(measure_flow(options.queues, float(rate)), flush=True)


if __name__ == "__main__":
    main()
