"""What a distant Redis costs: producers, workers and latency at different round-trip times.

    PYTHONPATH=.:monitor:api python bench/distance.py [--round-trips 0,1,5,20,50] [--seconds 3]

A relay holds back each byte for half of the round trip, in both directions; it does not limit the bandwidth.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import reliq
import reliq.aio
from bench.suite.harness import fresh_redis, working

BODY = b"x" * 200
THREADS, TASKS, BATCH, PROBES, WAITING = 16, 100, 1000, 20, 200_000
RUN = 0.01  #: seconds of a handler
TITLES = (
    "first send of a process, ms", "`send` in a loop", f"`send` in {THREADS} threads", f"`send` in {TASKS} tasks",
    f"`send_many` of {BATCH:,}", "worker, handlers that do nothing", "worker, handlers of 10 ms: one thread",
    f"{THREADS} threads", f"{TASKS} tasks", "from `send` to the handler, ms",
)  # fmt: skip


# --- the relay ---


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):  # a killed process resets its connections
        while data := await reader.read(1 << 20):
            loop.call_later(delay, writer.write, data)
    loop.call_later(delay, writer.close)


def _relay(port: int, delay: float, told: Any) -> None:
    """Forward to a port, each byte after `delay` seconds. Says its own port."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        await asyncio.gather(_pass_on(reader, server[1], delay), _pass_on(server[0], writer, delay))

    async def serve() -> None:
        listening = await asyncio.start_server(accepted, "127.0.0.1", 0, limit=1 << 20)
        told.send(listening.sockets[0].getsockname()[1])
        await listening.serve_forever()

    asyncio.run(serve())


@contextlib.contextmanager
def far(url: str, round_trip: float) -> Iterator[str]:
    """Yield the URL of the same Redis at a distance of so many seconds."""
    if not round_trip:
        yield url
        return
    port = int(url.rpartition(":")[2].partition("/")[0])
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_relay, args=(port, round_trip / 2, theirs), daemon=True
    )
    process.start()
    try:
        yield url.replace(f":{port}", f":{ours.recv()}")
    finally:
        process.kill()
        process.join()


# --- producers, in messages a second ---


def _rate(seconds: float, call: Callable[[], int]) -> float:
    """Repeat a call that sends for some seconds; at least once."""
    began, done = time.monotonic(), 0
    while not done or time.monotonic() - began < seconds:
        done += call()
    return done / (time.monotonic() - began)


def producers(app: reliq.Reliq, seconds: float) -> Iterator[float]:
    queue = app.queue("sent")

    def one() -> int:
        queue.send(BODY)
        return 1

    def many() -> int:
        return len(queue.send_many([BODY] * BATCH))

    yield _rate(seconds, one)
    with ThreadPoolExecutor(THREADS) as pool:
        yield sum(pool.map(lambda _: _rate(seconds, one), range(THREADS)))
    yield asyncio.run(_tasks(app.url, seconds))
    yield _rate(seconds, many)


async def _tasks(url: str, seconds: float) -> float:
    async with reliq.aio.Reliq(url) as app:
        queue, until = app.queue("sent"), time.monotonic() + seconds

        async def sender() -> int:
            sent = 0
            while time.monotonic() < until:
                await queue.send(BODY)
                sent += 1
            return sent

        await queue.send(BODY)  # connects
        return sum(await asyncio.gather(*(sender() for _ in range(TASKS)))) / seconds


# --- workers ---


def worked(near: str, url: str, seconds: float, run: float, threads: int = 1, *, is_async: bool = False) -> float:
    """Return the messages a second of one worker process whose handler takes `run` seconds, once it has started."""
    with reliq.Reliq(near) as filling:
        filling.queue("work").purge()
        for _ in range(WAITING // BATCH):
            filling.queue("work").send_many([BODY] * BATCH)
    app, at = reliq.Reliq(url), list[float]()

    def handle(message: reliq.Message) -> None:
        if run:
            time.sleep(run)
        at.append(time.monotonic())

    async def handle_async(message: reliq.Message) -> None:
        await asyncio.sleep(run)
        at.append(time.monotonic())

    app.handler("work")(handle_async if is_async else handle)
    with working(app, threads=threads, concurrency=TASKS):
        time.sleep(seconds + 1)
    del at[: len(at) // 4]
    return (len(at) - 1) / (at[-1] - at[0])


def latency(url: str) -> float:
    """Return the median milliseconds from the call of `send` to the handler of an idle worker."""
    app, came = reliq.Reliq(url), threading.Event()

    @app.handler("probe")
    def handle(message: reliq.Message) -> None:
        came.set()

    took = []
    with working(app):
        queue = app.queue("probe")
        queue.send(BODY)
        for _ in range(PROBES):
            came.wait(10)
            time.sleep(0.2)
            came.clear()
            began = time.monotonic()
            queue.send(BODY)
            came.wait(10)
            took.append(1000 * (time.monotonic() - began))
    return statistics.median(took)


def measured(near: str, round_trip: float, seconds: float) -> list[float]:
    with far(near, round_trip) as url, reliq.Reliq(url) as app:
        began = time.monotonic()
        app.queue("sent").send(BODY)
        first = 1000 * (time.monotonic() - began)
        return [
            first, *producers(app, seconds), worked(near, url, seconds, 0.0), worked(near, url, seconds, RUN),
            worked(near, url, seconds, RUN, THREADS), worked(near, url, seconds, RUN, is_async=True), latency(url),
        ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round-trips", default="0,1,5,20,50", metavar="MS,...")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    options = parser.parse_args()
    round_trips = [float(one) for one in options.round_trips.split(",")]
    with fresh_redis() as (server, _):
        columns = []
        for round_trip in round_trips:
            print(f"{round_trip:g} ms ...", flush=True)
            columns.append(measured(server.url, round_trip / 1000, options.seconds))
    print(f"\n| round trip | {' | '.join(f'{one:g} ms' for one in round_trips)} |\n|---|{'---|' * len(columns)}")
    for title, values in zip(TITLES, zip(*columns, strict=True), strict=True):
        print(f"| {title} | {' | '.join(f'{one:,.1f}' if title.endswith('ms') else f'{one:,.0f}' for one in values)} |")


if __name__ == "__main__":
    main()
