"""Cost of publishing: to 3 subscriptions against 3 messages in one send_many; with 10,000 bindings against 10.

python bench/topics.py
"""

import random
import statistics
import time
from collections.abc import Callable

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.features.topics.routing import Routes

ROUNDS, CALLS, KEYS = 20, 500, 2000


def rate(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return CALLS / (time.perf_counter() - began)


def publishing(app: reliq.Reliq) -> None:
    body = "x" * 200
    for queue in ("a@x", "b@x", "c@x"):
        app.subscribe(queue, "order.#")
    publish, send_many, ratios = [], [], []
    for _ in range(ROUNDS):  # interleaved: other load of the machine affects both
        publish.append(rate(lambda: app.publish("order.created.eu", body)))
        send_many.append(rate(lambda: app.queue("d").send_many([body] * 3)))
        ratios.append(publish[-1] / send_many[-1])
        for queue in ("a@x", "b@x", "c@x", "d"):
            app.queue(queue).purge()
    print(
        f"publish to 3: {statistics.median(publish):.0f}/s, send_many of 3: {statistics.median(send_many):.0f}/s, "
        f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )


def routes(count: int) -> tuple[Routes, list[str]]:
    """`count` bindings of which a few match each key, and keys that were never asked for before."""
    rng = random.Random(count)
    words = [f"w{number}" for number in range(100)]
    bindings = [("all", "#")]
    for number in range(count - 1):
        pattern = [rng.choice(words) for _ in range(3)]
        if number % 3:
            pattern[rng.randrange(3)] = rng.choice(["*", "#"])
        bindings.append((f"q{number}", ".".join(pattern)))
    return Routes(bindings), [".".join(rng.choice(words) for _ in range(3)) for _ in range(KEYS)]


def matching() -> None:
    costs = {}
    for count in (10, 10_000):
        routes_, keys = routes(count)
        for what in ("a new key", "a known key"):
            began = time.process_time()
            for key in keys:
                routes_.match(key)
            costs[count, what] = (time.process_time() - began) / len(keys) * 1e6
    for what in ("a new key", "a known key"):
        few, many = costs[10, what], costs[10_000, what]
        print(f"matching {what}: {few:.2f} us with 10 bindings, {many:.2f} us with 10,000, {many - few:+.2f} us")


def main() -> None:
    with EmbeddedRedis() as server:
        app = reliq.Reliq(server.url)
        publishing(app)
        app.close()
    matching()


if __name__ == "__main__":
    main()
