"""kill -9 of workers, monitors and Redis (append-only file, always) under handlers that emit, with readers that follow.

OUTPUT="2000,100" python -m pytest tests/campaign/test_output.py: so many messages, and kills.
"""

import contextlib
import os
import random
import threading
import time

import pytest

import reliq
from reliq.errors import RedisUnavailable
from tests.campaign.streams import READERS, check_output
from tests.campaign.test_durable import MONITORS, WORKERS, Fleet, redis_with_log, wait_until

__all__ = ["redis_with_log"]

MESSAGES, KILLS = map(int, os.environ.get("OUTPUT", "80,10").split(","))
PATIENCE = 120 + 0.2 * MESSAGES + 3 * KILLS


def follow(queue: reliq.Queue, identity: str, found: list[reliq.Chunk]) -> None:
    """Read all output of a message, and go on behind the latest chunk after each outage of Redis."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(RedisUnavailable):
            for chunk in queue.output(identity, after=found[-1].id if found else "", wait=PATIENCE):
                found.append(chunk)
            return


@pytest.mark.campaign
@pytest.mark.timeout(PATIENCE + 60)
def test_no_chunk_is_lost_or_doubled_and_no_run_writes_after_a_later_one(redis_with_log, tmp_path):
    chance = random.Random(7)
    app = reliq.Reliq(redis_with_log.url)
    queue = app.queue("output")
    queue.configure(max_deliveries=1000)
    ids = queue.send_many(["x"] * MESSAGES)
    found: dict[str, list[reliq.Chunk]] = {one: [] for one in ids}
    with contextlib.ExitStack() as stack:
        fleet = Fleet(stack, redis_with_log.url, tmp_path / "log", "tests.campaign.output_app:app")
        followed = ids[:: max(1, MESSAGES // READERS)]
        readers = [threading.Thread(target=follow, args=[queue, one, found[one]]) for one in followed]
        for reader in readers:
            reader.start()
        for kill in range(KILLS):
            wait_until(queue, lambda stats: stats.processing or stats.counters.get("acked", 0) >= MESSAGES)
            time.sleep(chance.random() * 0.5)
            if kill % 6 == 5:
                redis_with_log.kill()
                redis_with_log.start()
            else:
                fleet.kill(chance.randrange(WORKERS + MONITORS))
        wait_until(queue, lambda stats: stats.counters.get("acked", 0) >= MESSAGES)
        for reader in readers:
            reader.join(PATIENCE)
        stats = queue.stats()
    broken = 0
    for one in ids:
        there = list(queue.output(one))
        broken += check_output(there)
        if one in followed:
            assert found[one] == there
    app.close()
    assert (stats.dead, stats.missing, stats.counters["acked"]) == (0, 0, MESSAGES)
    assert broken, "no run was killed while it emitted"
    print(f"messages={MESSAGES} kills={KILLS} broken runs={broken} counters={stats.counters}")
