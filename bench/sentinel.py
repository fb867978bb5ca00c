"""Failovers under load: three sentinels, a master, replicas, a producer. What was lost, for how long no send passed.

    python bench/sentinel.py --failovers 10 --durability replicas=1 [--replicas 2] [--kind planned|paused|killed]

planned: SENTINEL FAILOVER, the master lives. paused: the master hangs for 4 s and comes back while it takes itself for
the master. killed: the master dies. After each the fleet is whole again before the next.
"""

import argparse
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import redis

import reliq
from reliq.embedded import EmbeddedRedis, find_server

SERVICE, DOWN_AFTER = "mymaster", 1.0


class Fleet:
    """A master, its replicas and three sentinels, all on this machine."""

    def __init__(self, replicas=2):
        self._stack, self.replicas = contextlib.ExitStack(), replicas
        self.servers, self.sentinels = [], []

    def __enter__(self):
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        at_once = ("--repl-diskless-sync-delay", "0")
        self.servers.append(self._stack.enter_context(EmbeddedRedis(settings=at_once)))
        for _ in range(self.replicas):
            settings = ("--replicaof", "127.0.0.1", str(self.servers[0].port), *at_once)
            self.servers.append(self._stack.enter_context(EmbeddedRedis(settings=settings)))
        for number in range(3):
            self._start_sentinel(folder / f"{number}.conf")
        wait(self.whole, "the fleet")
        return self

    def _start_sentinel(self, path):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        path.write_text(
            f"port {port}\nbind 127.0.0.1\nsentinel monitor {SERVICE} 127.0.0.1 {self.servers[0].port} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER * 1000:.0f}\n"
            f"sentinel failover-timeout {SERVICE} 10000\n"
        )
        command = [find_server(), str(path), "--sentinel"]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._stack.callback(child.wait)
        self._stack.callback(child.kill)
        self.sentinels.append(self._stack.enter_context(redis.Redis(port=port, socket_timeout=2)))
        wait(lambda: ping(self.sentinels[-1]), "a sentinel")

    def __exit__(self, *error):
        self._stack.close()

    @property
    def url(self):
        ports = (one.connection_pool.connection_kwargs["port"] for one in self.sentinels)
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in ports) + f"/{SERVICE}/0"

    def master(self):
        """The server that all sentinels name, or None."""
        ports = {int(one.sentinel_get_master_addr_by_name(SERVICE)[1]) for one in self.sentinels}
        return next((one for one in self.servers if ports == {one.port}), None)

    def whole(self):
        """Whether there is one master, every replica in step, every sentinel aware, and nothing under way."""
        master = self.master()
        if master is None:
            return False
        with redis.Redis(port=master.port) as client:
            info = client.info("replication")
            online = [info.get(f"slave{place}", {}).get("state") for place in range(self.replicas)]
            if info["role"] != "master" or online != ["online"] * self.replicas:
                return False
        for sentinel in self.sentinels:
            state = sentinel.sentinel_master(SERVICE)
            known = (int(state["num-slaves"]), int(state["num-other-sentinels"]))
            if known != (self.replicas, 2) or state["flags"].strip() != "master":
                return False
        return True

    def fail_over(self, kind):
        """Make another server the master and the former one its replica; return the start time, by time.monotonic()."""
        former, began = self.master(), time.monotonic()
        if kind == "planned":
            self.sentinels[0].execute_command("SENTINEL", "FAILOVER", SERVICE)
        elif kind == "paused":
            os.kill(former.pid, signal.SIGSTOP)
            time.sleep(4)
            os.kill(former.pid, signal.SIGCONT)
        else:
            former.kill()
            wait(lambda: self.master() not in (None, former), "a failover")
            former.start()
        wait(lambda: self.master() not in (None, former) and self.whole(), "the fleet after a failover")
        return began


def ping(client):
    with contextlib.suppress(redis.exceptions.RedisError):
        return client.ping()
    return False


def wait(condition, what, timeout=60.0):
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        with contextlib.suppress(redis.exceptions.RedisError, KeyError):
            if condition():
                return
        time.sleep(0.05)
    raise TimeoutError(f"not within {timeout:g} s: {what}")


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
            wait(lambda producer=producer: len(producer.answered) > 100, "a hundred sends")
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
