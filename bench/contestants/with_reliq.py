"""reliq's worker. Variants: `def` handler, `async` handler, `slow` (def, 16 threads, 10 ms of sleep a message)."""

import time

from play import BODY, play

import reliq
from reliq.transport.store import Store
from reliq.worker import Options, Worker

QUEUE = "bench"


def fill(url, messages, variant="def"):
    queue = reliq.Reliq(url).queue(QUEUE)
    for start in range(0, messages, 10_000):
        queue.send_many([BODY] * min(10_000, messages - start))


def consume(url, count, variant="def"):
    app = reliq.Reliq(url)
    if variant == "async":

        @app.handler(QUEUE)
        async def handle(message):
            count()
    elif variant == "slow":

        @app.handler(QUEUE)
        def handle(message):
            time.sleep(0.01)
            count()
    else:

        @app.handler(QUEUE)
        def handle(message):
            count()

    Worker(Store(url), app.handlers, Options(threads=16 if variant == "slow" else 1)).run()


if __name__ == "__main__":
    play(
        fill,
        consume,
        ("reliq-queue", "redis", "hiredis", "msgspec"),
        "the defaults of `reliq worker`: 1 process, 1 thread",
    )
