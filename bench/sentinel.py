"""Failovers under load: three sentinels, a master, replicas, a producer. What was lost, for how long no send passed.

    python bench/sentinel.py --failovers 10 --durability replicas=1 [--replicas 2] [--kind planned|paused|killed]

planned: SENTINEL FAILOVER, the master lives. paused: the master hangs for 4 s and comes back while it takes itself for
the master. killed: the master dies. After each the fleet is whole again before the next.
"""

import argparse
import itertools
import json
import threading
import time
from collections import Counter

import reliq
from tests.support.fleet import Fleet, wait


class Producer(threading.Thread):
    """Sends one after the other; notes what was answered, and when."""

    def __init__(self, url, durability):
        super().__init__(daemon=True)
        self.answered, self.at, self.errors = [], [], {}
        self._app, self._durability = reliq.Reliq(url), durability
        self._stopping = threading.Event()

    def run(self):
        queue, number = self._app.queue("q"), 0
        while not self._stopping.is_set():
            number += 1
            try:
                identity = queue.send(number, durability=self._durability)
            except reliq.ReliqError as error:
                name = type(error).__name__
                self.errors[name] = self.errors.get(name, 0) + 1
            else:
                self.answered.append(identity)
                self.at.append(time.monotonic())
            time.sleep(0.001)

    def is_under_way(self):
        return len(self.answered) > 100

    def stop(self):
        self._stopping.set()
        self.join()
        self._app.close()


def campaign(kind, durability, failovers, replicas):
    """Return what a producer observed of these failovers."""
    with Fleet(replicas) as fleet:
        gaps, answered, lost = [], 0, 0
        errors: Counter[str] = Counter()
        for _ in range(failovers):
            producer = Producer(fleet.url, durability)
            producer.start()
            wait(producer.is_under_way, "a hundred sends")
            began = fleet.fail_over(kind)
            time.sleep(0.5)
            producer.stop()
            gaps.append(longest_gap(producer.at, began))
            there = drained(fleet)
            answered += len(producer.answered)
            lost += len(set(producer.answered) - there)
            errors.update(producer.errors)
    return {
        "kind": kind, "durability": durability, "replicas": replicas, "failovers": failovers, "answered": answered,
        "lost": lost, "longest_gap_s": round(max(gaps), 2), "gaps_s": [round(gap, 2) for gap in gaps],
        "errors": errors,
    }  # fmt: skip


def longest_gap(times, began):
    """Seconds between two answers, from just before the failover on."""
    times = [at for at in times if at > began - 0.5]
    return max((after - before for before, after in itertools.pairwise(times)), default=float("inf"))


def drained(fleet):
    """Return the ids of the messages in the queue."""
    app = reliq.Reliq(f"redis://127.0.0.1:{fleet.master().port}/0")
    ids = set()
    with app.queue("q").consumer() as consumer:
        while messages := consumer.claim(limit=1000):
            ids |= {message.id for message in messages}
            consumer.ack(*messages)
    app.close()
    return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["planned", "paused", "killed"], default="planned")
    parser.add_argument("--durability", default="replicas=1")
    parser.add_argument("--failovers", type=int, default=10)
    parser.add_argument("--replicas", type=int, default=2)
    options = parser.parse_args()
    print(json.dumps(campaign(options.kind, options.durability, options.failovers, options.replicas)))


if __name__ == "__main__":
    main()
