"""What measuring costs a worker: the same messages with and without, in turns, on a Redis of its own.

python bench/metrics.py [rounds] [messages]
"""

import statistics
import sys
import threading
import time

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.observe import Measurements
from reliq.store import Store
from reliq.worker import Options, Worker

QUEUE = "bench"


def seconds_of_a_run(url: str, messages: int, measurements: Measurements | None) -> tuple[float, float]:
    """By the clock, and of this process's CPU time, which other programs on the machine disturb less."""
    app, done, left = reliq.Reliq(url), threading.Event(), [messages]

    @app.handler(QUEUE)
    def handle(message: reliq.Message) -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    for start in range(0, messages, 10_000):
        app.queue(QUEUE).send_many([b"x" * 100] * min(10_000, messages - start))
    store = Store(url)
    worker = Worker(store, app.handlers, Options(), measurements=measurements)
    thread = threading.Thread(target=worker.run)
    started, used = time.monotonic(), time.process_time()
    thread.start()
    done.wait()
    taken = time.monotonic() - started, time.process_time() - used
    worker.stop()
    thread.join()
    return taken


def main(rounds: int = 15, messages: int = 100_000) -> None:
    clock, cpu = [], []
    with EmbeddedRedis(settings=("--appendonly", "no")) as server:
        seconds_of_a_run(server.url, messages, None)
        for number in range(rounds):
            turns = [None, Measurements()]
            taken = {}
            for one in turns if number % 2 else reversed(turns):
                taken[one is None] = seconds_of_a_run(server.url, messages, one)
            (off, off_cpu), (on, on_cpu) = taken[True], taken[False]
            clock.append(on / off)
            cpu.append(on_cpu / off_cpu)
            print(f"off {messages / off:9,.0f}/s   on {messages / on:9,.0f}/s", flush=True)
    for what, ratios in (("time", clock), ("CPU time", cpu)):
        print(f"measuring costs {100 * (statistics.median(ratios) - 1):+.1f} % {what} (median of {rounds} pairs)")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
