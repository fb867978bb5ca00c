"""How soon the messages of a killed worker are handled: those that ran, by how many it ran at a time.

    PYTHONPATH=.:monitor:api python bench/recovery.py [--slots 1,10,50,200,1000] [--seconds 1]

A worker whose slots all run a message is killed (SIGKILL). One other takes over, with a monitor, from the moment at
which the messages are back in their queue. It handled nothing before.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import time
from collections.abc import Iterator

import reliq
from bench.suite.harness import fresh_redis, working
from reliq_monitor import MonitorThread

_LOOK = 0.05  #: seconds between two looks at the queue


def application(url: str, seconds: float) -> reliq.Reliq:
    app = reliq.Reliq(url)

    @app.handler("q")
    async def handle(message: reliq.Message) -> None:
        await asyncio.sleep(seconds)

    return app


def work(url: str, slots: int, seconds: float) -> None:
    with working(application(url, seconds), concurrency=slots):
        time.sleep(3600)


@contextlib.contextmanager
def worker(url: str, slots: int, seconds: float) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=work, args=(url, slots, seconds))
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def recovered(slots: int, seconds: float) -> float:
    """Return the seconds from the return of the messages until they are handled."""
    with fresh_redis() as (server, _), reliq.Reliq(server.url) as app:
        queue = app.queue("q")
        queue.send_many(["x"] * slots)
        with worker(server.url, slots, 3600.0):
            while queue.stats().processing < slots:
                time.sleep(_LOOK)
        monitor = MonitorThread(app.store)
        monitor.start()
        try:
            while queue.stats().processing:
                time.sleep(_LOOK)
            began = time.monotonic()
            with worker(server.url, slots, seconds):
                while queue.stats().counters.get("acked", 0) < slots:
                    time.sleep(_LOOK)
                return time.monotonic() - began
        finally:
            monitor.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", default="1,10,50,200,1000")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    for slots in map(int, options.slots.split(",")):
        took = recovered(slots, options.seconds)
        print(f"{slots} messages of {options.seconds:g} s, all at a time: handled again {took:.1f} s later", flush=True)


if __name__ == "__main__":
    main()
