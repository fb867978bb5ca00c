"""What the producer sequence costs: batches of 100 by the push script against a bare LPUSH of the same elements.

python bench/send.py
"""

import statistics
import time

import redis

from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.keys import QueueKeys
from reliq.message import NewMessage
from reliq.store import Store

ROUNDS, BATCH, PRODUCERS = 3000, 100, 1000


def main() -> None:
    keys = QueueKeys("q")
    batch = [NewMessage(b"x" * 200).element(0) for _ in range(BATCH)]
    with EmbeddedRedis() as server, redis.Redis(port=server.port) as client:
        store = Store(server.url)
        bare, sequenced = [], []
        for number in range(1, ROUNDS + 1):
            for taken, op in (
                (bare, ops.command("LPUSH", "bare", *batch)),
                (sequenced, ops.push(keys, batch, "producer", number, 0)),
            ):
                began = time.perf_counter()
                store.call(op)
                taken.append(time.perf_counter() - began)
            if number % 100 == 0:
                client.delete("bare", keys.messages)
        left, right = statistics.median(bare), statistics.median(sequenced)
        print(f"LPUSH of {BATCH}: {left * 1e6:.0f} us, push: {right * 1e6:.0f} us, {right / left - 1:+.0%}")
        for number in range(PRODUCERS):
            store.call(ops.push(keys, batch[:1], f"{number:016x}", 1, 1_763_715_000_000))
        size = client.memory_usage(keys.producers, samples=0)
        print(f"{size / (PRODUCERS + 1):.0f} bytes a producer")
        store.close()


if __name__ == "__main__":
    main()
