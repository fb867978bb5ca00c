"""How soon other monitors lead the queues of one that goes, and what several monitors cost compared with one.

    PYTHONPATH=.:monitor:api python bench/handover.py [--queues 60] [--monitors 3] [--times 10]

A hand-over is measured from the signal until a message that a dead consumer held in each of the queues is back.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import redis

import reliq
from bench.suite.contestants import BENCH
from bench.suite.harness import fresh_redis
from reliq import ops
from reliq.model.keys import QueueKeys, monitors_until, new_owner

_SETTLED = 3.0  #: seconds until the shares of monitors that have just started are final
_WATCHED = 10.0  #: seconds

Monitor = subprocess.Popen[bytes]


def started(url: str) -> Monitor:
    paths = os.pathsep.join(str(BENCH.parent / part) for part in (".", "monitor", "api"))
    command = [sys.executable, "-m", "reliq", "monitor", "--url", url, "--quiet"]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths})


@contextlib.contextmanager
def several(url: str, client: redis.Redis, count: int) -> Iterator[list[Monitor]]:
    monitors = [started(url) for _ in range(count)]
    try:
        settled(client, count)
        yield monitors
    finally:
        for one in monitors:
            one.send_signal(signal.SIGCONT)
            one.terminate()
            one.wait()


def settled(client: redis.Redis, count: int) -> None:
    while client.zcard(monitors_until("0")) != count:
        time.sleep(0.01)
    time.sleep(_SETTLED)


def abandon(app: reliq.Reliq, queues: list[QueueKeys]) -> None:
    """Leave a message in the list of a dead consumer of each queue."""
    consumer = new_owner(connected=False)
    requests: list[ops.Op] = []
    for keys in queues:
        requests += [ops.register(keys, consumer, 60.0), ops.claim(keys, consumer, 60.0, 1)]
    app.store.call(requests)
    app.store.call([ops.command("DEL", keys.lease(consumer)) for keys in queues])


def back(client: redis.Redis, queues: list[QueueKeys]) -> bool:
    pipeline = client.pipeline(transaction=False)
    for keys in queues:
        pipeline.llen(keys.messages)
    return all(pipeline.execute())


def handovers(queue_count: int, monitor_count: int, times: int) -> None:
    with fresh_redis() as (server, client), reliq.Reliq(server.url) as app:
        queues = [QueueKeys(f"queue-{number}") for number in range(queue_count)]
        for keys in queues:
            app.queue(keys.queue).configure(max_deliveries=1000)
            app.queue(keys.queue).send("x")
        with several(server.url, client, monitor_count) as monitors:
            for end in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
                took = []
                for _ in range(times):
                    victim = monitors.pop(0)
                    victim.send_signal(end)
                    began = time.monotonic()
                    abandon(app, queues)
                    while not back(client, queues):
                        time.sleep(0.005)
                    took.append(time.monotonic() - began)
                    victim.kill()
                    victim.wait()
                    monitors.append(started(server.url))
                    settled(client, monitor_count)
                took.sort()
                print(
                    f"{end.name}: one of {monitor_count} monitors of {queue_count} queues, {times} times: "
                    f"p50 {took[len(took) // 2]:.2f} s, most {took[-1]:.2f} s",
                    flush=True,
                )


def costs(queue_count: int, monitor_count: int) -> None:
    with fresh_redis() as (server, client), reliq.Reliq(server.url) as app:
        for number in range(queue_count):
            app.queue(f"queue-{number}").send("x")
        with several(server.url, client, monitor_count) as monitors:
            watched = [psutil.Process(one.pid) for one in monitors]

            def used() -> list[float]:
                of_redis = client.info("cpu")
                times = [sum(one.cpu_times()[:2]) for one in watched]
                return [
                    client.info("stats")["total_commands_processed"],
                    of_redis["used_cpu_user"] + of_redis["used_cpu_sys"], *times,
                ]  # fmt: skip

            before, began = used(), time.monotonic()
            time.sleep(_WATCHED)
            after, seconds = used(), time.monotonic() - began
        commands, of_redis, *each = ((late - early) / seconds for early, late in zip(before, after, strict=True))
        print(
            f"{monitor_count} idle monitors of {queue_count} queues: {commands:.0f} commands/s, Redis {of_redis:.4f}, "
            f"all monitors {sum(each):.4f} of a core",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", type=int, default=60)
    parser.add_argument("--monitors", type=int, default=3)
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    for count in (1, options.monitors, 8):
        costs(options.queues, count)
    handovers(options.queues, options.monitors, options.times)


if __name__ == "__main__":
    main()
