"""Cost of the producer sequence: ready-made batches of 100 with the push script, against a bare LPUSH of the same.

python bench/send.py

Bare is redis-py's `lpush`, as anybody would write it, and the LPUSH on reliq's own connection, which packs faster: what
is left then is the script alone. The last line is the whole of `send_many`, which also makes the ids and elements.
"""

import itertools
import statistics
import time

import redis

import reliq
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage

ROUNDS, BATCH, PRODUCERS = 2000, 100, 1000


def main() -> None:
    keys, bodies = QueueKeys("q"), ["x" * 200] * BATCH
    batch = [NewMessage(body).element(0) for body in bodies]
    with EmbeddedRedis() as server, redis.Redis(port=server.port) as client:
        app = reliq.Reliq(server.url)
        store, queue, sequence = app.store, app.queue("q"), itertools.count(1)
        calls = {
            "redis-py LPUSH": lambda: client.lpush("bare", *batch),
            "LPUSH by reliq": lambda: store.call(ops.command("LPUSH", "bare", *batch)),
            "push, sequence": lambda: store.call(ops.push(keys, batch, "producer", next(sequence), 1_763_715_000_000)),
            "send_many": lambda: queue.send_many(bodies),
        }
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(1, ROUNDS + 1):  # in turns: other load of the machine affects all
            for name, call in calls.items():
                began = time.perf_counter()
                call()
                taken[name].append(time.perf_counter() - began)
            if number % 100 == 0:
                client.delete("bare", keys.messages)
        medians = {name: statistics.median(times) for name, times in taken.items()}
        for name, median in medians.items():
            than = [f"{median / medians[bare] - 1:+.0%} of {bare}" for bare in ("redis-py LPUSH", "LPUSH by reliq")]
            print(f"{name:16} {median * 1e6:6.0f} us   {', '.join(than)}")
        client.delete(keys.producers)
        for number in range(PRODUCERS):
            store.call(ops.push(keys, batch[:1], f"{number:016x}", 1, 1_763_715_000_000))
        size = client.memory_usage(keys.producers, samples=0)
        print(f"{size / PRODUCERS:.0f} bytes a producer")
        app.close()


if __name__ == "__main__":
    main()
