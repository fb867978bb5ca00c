"""The polling of 2,000 accounts by four workers that keep being killed: every account stays in the cycle, once.

    python examples/polling.py [ROUNDS]

Each account is a member of the queue's cycle. A visit ends with `Again`, which puts the account behind all others,
in the same atomic step that takes it from the worker. A worker that is killed in the middle of a visit loses nothing:
the monitor puts its accounts back.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import reliq
from reliq.embedded import EmbeddedRedis

ACCOUNTS = 2000
WORKERS = 4
KILLS = 5

app = reliq.Reliq()


@app.handler("accounts")
def poll(message: reliq.Message) -> reliq.Again:
    """Poll one account, named by `message.key`."""
    time.sleep(0.001)
    return reliq.Again()


def start_worker(url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "reliq", "worker", "polling:app", "--url", url, "--quiet"]
    return subprocess.Popen(command, cwd=Path(__file__).parent, env={**os.environ, "PYTHONUNBUFFERED": "1"})


def places(accounts: reliq.Queue) -> tuple[int, int]:
    """Return the number of messages in all states, and of accounts in the cycle."""
    stats = accounts.stats()
    return stats.ready + stats.processing + stats.delayed + stats.dead, len(accounts.cycle.members())


def visits(accounts: reliq.Queue) -> int:
    return accounts.stats().counters.get("requeued", 0)


def main(rounds: int = 5) -> None:
    with EmbeddedRedis() as server:
        accounts = reliq.Reliq(server.url).queue("accounts")
        entered = accounts.cycle.add(*(f"account-{number:04}" for number in range(ACCOUNTS)))
        again = accounts.cycle.add("account-0007")
        print(f"{entered} accounts entered the cycle; adding one of them again added {again}")
        workers = [start_worker(server.url) for _ in range(WORKERS)]
        try:
            for kill in range(1, KILLS + 1):
                target = visits(accounts) + rounds * ACCOUNTS // KILLS
                while visits(accounts) < target:
                    time.sleep(0.02)
                victim = workers.pop(random.randrange(WORKERS))
                victim.kill()
                victim.wait()
                messages, members = places(accounts)
                print(f"kill {kill}: {members} accounts in the cycle, {messages} messages for them")
                if (messages, members) != (ACCOUNTS, ACCOUNTS):
                    sys.exit("an account was lost, or is there twice")
                workers.append(start_worker(server.url))
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait()
        print(f"{visits(accounts)} visits, {visits(accounts) / ACCOUNTS:.1f} rounds; {places(accounts)[1]} accounts")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
