"""What it costs to follow messages: track, results and batches, beside the same queue without them.

    PYTHONPATH=.:monitor:api python bench/life.py [--messages 100000] [--long 1000000] [--rounds 5]

A Redis of its own, without persistence; bodies of 200 bytes; one worker with a handler that does nothing. Redis CPU is
that of the server's process for a message sent and handled. Then a long queue: find and cancel in it, and the longest
command that Redis carried out meanwhile.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import redis

import reliq
from bench.suite.harness import fresh_redis, working

BODY = "x" * 200
SENT_AT_ONCE = 1000
MODES = ("plain", "track", "result", "batch", "history")
MOST = {"track": 1.35, "result": 1.25, "batch": 1.20}


def nothing(message: reliq.Message) -> None:
    """Handle a message."""


def cpu_us(client: "redis.Redis") -> float:
    used = client.info("cpu")
    return float((used["used_cpu_user"] + used["used_cpu_sys"]) * 1e6)


def send(app: reliq.Reliq, mode: str, messages: int) -> None:
    def all_of(to: Callable[[list[str]], object]) -> None:
        for first in range(0, messages, SENT_AT_ONCE):
            to([BODY] * min(SENT_AT_ONCE, messages - first))

    if mode == "batch":
        with app.batch(on_done=("reports", "done")) as batch:
            all_of(lambda bodies: batch.send_many("q", bodies))
    else:
        all_of(app.queue("q").send_many)


def handled(url: str, client: "redis.Redis", mode: str, messages: int) -> dict[str, float]:
    """Send and handle messages; return the figures of Redis for each."""
    client.flushall()
    app = reliq.Reliq(url)
    queue = app.queue("q")
    app.handler("q", result="1h" if mode == "result" else None)(nothing)
    if mode == "track":
        queue.configure(track=True)
    if mode == "history":
        queue.configure(history="1h")
    client.config_resetstat()
    before, taken = cpu_us(client), client.info("stats")["total_net_input_bytes"]
    send(app, mode, messages)
    with working(app):
        while queue.stats().counters.get("acked", 0) < messages:
            time.sleep(0.01)
    calls = sum(one["calls"] for one in client.info("commandstats").values())
    app.close()
    return {
        "cpu": (cpu_us(client) - before) / messages,
        "bytes": (client.info("stats")["total_net_input_bytes"] - taken) / messages,
        "commands": calls / messages,
    }


def costs(url: str, client: "redis.Redis", messages: int, rounds: int) -> None:
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for number in range(-1, rounds):  # the first one loads the scripts, and is forgotten
        for mode in MODES if number % 2 else MODES[::-1]:
            figures = handled(url, client, mode, messages if number >= 0 else SENT_AT_ONCE)
            if number >= 0:
                found[mode].append(figures)
    print(f"{messages:,} messages of 200 B, {rounds} rounds; Redis, for each message:")
    for mode in MODES:
        ratios = [one["cpu"] / plain["cpu"] for one, plain in zip(found[mode], found["plain"], strict=True)]
        middle = {name: statistics.median(one[name] for one in found[mode]) for name in found[mode][0]}
        asked = f", at most {MOST[mode]}" if mode in MOST else ""
        print(
            f"  {mode:8} CPU {middle['cpu']:6.2f} us  {statistics.median(ratios):5.2f} x plain "
            f"({min(ratios):.2f}..{max(ratios):.2f}{asked})  {middle['bytes']:6.0f} bytes in  "
            f"{middle['commands']:5.2f} commands"
        )


def longest_ms(client: "redis.Redis") -> str:
    found = client.info("latencystats")
    return ", ".join(
        f"{name.removeprefix('latency_percentiles_usec_')} p99.9 {one['p99.9'] / 1000:.2f} ms, longest "
        f"{one['p100'] / 1000:.2f} ms"
        for name, one in found.items()
        if name.endswith("evalsha")
    )


def timed(what: str, client: "redis.Redis", act: Callable[[], object]) -> None:
    client.config_resetstat()
    began = time.perf_counter()
    answer = act()
    print(f"  {what:42} {(time.perf_counter() - began) * 1000:9.1f} ms  {longest_ms(client)}  {answer}")


def long_queue(url: str, client: "redis.Redis", messages: int, track: bool) -> None:
    client.flushall()
    client.config_set("latency-tracking-info-percentiles", "50 99.9 100")
    app = reliq.Reliq(url)
    queue = app.queue("q")
    if track:
        queue.configure(track=True)
    ids: list[str] = []
    for first in range(0, messages, 10_000):
        ids += queue.send_many(
            [reliq.NewMessage(BODY, headers={"tenant": str(at % 100)}) for at in range(first, first + 10_000)]
        )
    print(f"{messages:,} ready messages, {'with' if track else 'without'} track:")

    def place(identity: str) -> object:
        found = queue.find(identity)
        return found and (found.place.value, found.position)

    for share in (0.0, 0.5, 1.0):
        timed(f"find, {share:.0%} from the tail", client, partial(place, ids[int(share * (messages - 1))]))
    timed("find what is not there", client, lambda: place("unknown"))
    timed("cancel one in the middle", client, lambda: queue.cancel(ids[messages // 2]).value)
    if not track:
        timed("dry run: 1 % by a header", client, lambda: queue.cancel_many(headers={"tenant": "7"}, dry_run=True))
        timed("cancel 1 % by a header", client, lambda: queue.cancel_many(headers={"tenant": "7"}))
    app.close()


def batch_bytes(url: str, client: "redis.Redis", messages: int) -> None:
    client.flushall()
    app = reliq.Reliq(url)
    with app.batch() as batch:
        batch.send_many("q", [BODY] * min(messages, 100_000))
        field = client.hget("reliq:{q}:followed", f" {batch.id}")
        print(
            f"a batch: {len(field or b'') + 13} bytes in the hash of its queue, and its record of "
            f"{client.memory_usage(f'reliq:{{@batches}}:batch:{batch.id}')} bytes; 19 bytes in each message"
        )
    app.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000, help="of each round (default 100,000)")
    parser.add_argument("--long", type=int, default=1_000_000, help="messages of the long queue (default 1,000,000)")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with fresh_redis() as (server, client):
        costs(server.url, client, options.messages, options.rounds)
        batch_bytes(server.url, client, options.messages)
        for track in (False, True):
            long_queue(server.url, client, options.long, track)


if __name__ == "__main__":
    main()
