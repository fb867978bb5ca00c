"""Resources for a number of messages per second on a Redis Cluster, computed from the cost of a message measured here.

    PYTHONPATH=.:monitor:api python bench/scale.py [--rate 10000000] [--load 0.6] [--messages 100000]

One queue is one hash slot, so one node: a stream of messages is split over as many queues (partitions) as it needs
nodes, or more. `--load`: how busy a core may be; the rest is for peaks, the monitor and a failover.
"""

import argparse
import math

from bench.suite.cost import Cost, measure
from bench.suite.flat import consumers, monitor_shares, queues, state

_QUEUED_BYTES = 275  #: by `make bench`
_BACKLOG_SECONDS = 60
_NODE_MEMORY = 16 * 2**30
_WATCHED = 1_000  #: consumers, and queues, for which a monitor's CPU time is measured


def needs(rate: float, load: float, costs: dict[str, Cost], watching: float) -> list[tuple[str, str]]:
    send, consume = costs["send_many"], costs["consume"]
    redis_us = send.redis_us + consume.redis_us
    by_cpu = math.ceil(rate * redis_us / 1e6 / load)
    backlog = rate * _BACKLOG_SECONDS * _QUEUED_BYTES
    by_memory = math.ceil(backlog / (_NODE_MEMORY * 0.5))
    nodes, workers = max(by_cpu, by_memory), math.ceil(rate * consume.client_us / 1e6 / load)
    partitions = 4 * nodes
    monitors = math.ceil((workers + partitions) / _WATCHED * watching / load)
    wire = (send.bytes_in + send.bytes_out + consume.bytes_in + consume.bytes_out) * 8
    return [
        ("a message costs Redis", f"{redis_us:.2f} us ({send.redis_us:.2f} in, {consume.redis_us:.2f} out)"),
        ("a node carries", f"{load / redis_us * 1e6:,.0f} messages/s with its one core {load:.0%} busy"),
        ("master nodes by CPU", f"{by_cpu}"),
        ("master nodes by memory", f"{by_memory} of 16 GiB, half of it for {_BACKLOG_SECONDS} s of backlog"),
        ("partitions (queues)", f"{partitions}: four a node, so that slots can be moved when nodes are added"),
        (
            "worker processes",
            f"{workers}, with handlers that do nothing; a handler of 1 ms needs {rate / 1e3 / load:,.0f}",
        ),
        ("producer processes", f"{math.ceil(rate * send.client_us / 1e6 / load)}, sending a thousand a call"),
        ("network, all nodes", f"{rate * wire / 1e9:,.0f} Gbit/s, {rate * wire / 1e9 / nodes:.1f} a node"),
        (
            "monitors",
            f"{monitors + 1}: {monitors} at work, each {_WATCHED:,} watched take {watching:.1%} of a core; a spare",
        ),
    ]


def watching() -> float:
    """Of a core: what a monitor takes for a thousand consumers or for a thousand queues, whichever is more."""
    shares = []
    for build in (consumers, queues):
        with state(build, _WATCHED) as app:
            shares.append(monitor_shares(app.url)[0])
    return max(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1e7)
    parser.add_argument("--load", type=float, default=0.6)
    parser.add_argument("--messages", type=int, default=100_000)
    options = parser.parse_args()
    costs = measure(options.messages)
    print(f"{'a message':10} {'Redis us':>9} {'client us':>9} {'trips':>7} {'commands':>8} {'bytes in':>8} {'out':>6}")
    for name, one in costs.items():
        print(
            f"{name:10} {one.redis_us:9.2f} {one.client_us:9.2f} {one.round_trips:7.4f} {one.commands:8.2f} "
            f"{one.bytes_in:8.0f} {one.bytes_out:6.0f}"
        )
    print(f"\n{options.rate:,.0f} messages/s in and out")
    for what, needed in needs(options.rate, options.load, costs, watching()):
        print(f"  {what:24} {needed}")


if __name__ == "__main__":
    main()
