"""Cost of metrics for a worker: the same messages with and without, in turns, on a separate Redis. And of a scrape.

On a busy machine believe the last figure: the part of a run's own CPU time that was spent in measuring.

python bench/metrics.py [rounds] [messages]
"""

import statistics
import sys
import threading
import time

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.observability.histograms import Measurements
from reliq.observability.prometheus import Exporter
from reliq.transport.store import Store
from reliq.worker import Options, Worker

QUEUE = "bench"


class Timed(Measurements):
    """Records the CPU time that measuring took, per thread."""

    def __init__(self) -> None:
        super().__init__()
        self.spent = 0.0

    def ran_in_turn(self, *arguments) -> None:
        started = time.thread_time()
        super().ran_in_turn(*arguments)
        self.spent += time.thread_time() - started


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


def seconds_of_a_scrape(url: str) -> float:
    app, taken = reliq.Reliq(url), []
    for number in range(1000):
        app.queue(f"queue-{number}").send("x")
    exporter = Exporter(Store(url))
    for _ in range(5):
        started = time.monotonic()
        exporter.render()
        taken.append(time.monotonic() - started)
    return statistics.median(taken)


def main(rounds: int = 15, messages: int = 100_000) -> None:
    taken: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    shares: list[float] = []
    with EmbeddedRedis(settings=("--appendonly", "no")) as server:
        seconds_of_a_run(server.url, messages, None)
        for number in range(rounds):
            for on in (True, False) if number % 2 else (False, True):
                taken[on].append(seconds_of_a_run(server.url, messages, Measurements() if on else None))
            timed = Timed()
            _, used = seconds_of_a_run(server.url, messages, timed)
            shares.append(timed.spent / used)
            off, measured = (messages / taken[place][-1][0] for place in (False, True))
            print(f"off {off:9,.0f}/s   on {measured:9,.0f}/s", flush=True)
        print(f"a scrape of 1,000 queues takes {1000 * seconds_of_a_scrape(server.url):.0f} ms (median of 5)")
    # The best of many runs: other load of the machine can only make a run slower.
    for what, place in (("time", 0), ("CPU time", 1)):
        off, measured = (min(run[place] for run in taken[key]) for key in (False, True))
        print(f"measuring costs {100 * (measured / off - 1):+.1f} % {what} (best of {rounds} runs each)")
    middle, least, most = (100 * of(shares) for of in (statistics.median, min, max))
    print(f"measuring is {middle:.1f} % of a run's CPU time (median of {rounds}; {least:.1f} to {most:.1f})")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
