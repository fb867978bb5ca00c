"""kill -9 of workers, monitors and Redis (append-only file, always) under flows over three queues, one with partitions.

FLOWS="300,100" python -m pytest tests/campaign/test_flows.py: so many flows of 20 messages, and kills.
"""

import contextlib
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

import reliq
from reliq.errors import RedisUnavailable
from reliq.features.flows.model import OnFailure
from tests.campaign.test_durable import MONITORS, WORKERS, Fleet, redis_with_log
from tests.reference import flows as rules

__all__ = ["redis_with_log"]

FLOWS, KILLS = map(int, os.environ.get("FLOWS", "20,10").split(","))
RULES: tuple[OnFailure, ...] = ("run", "skip")
QUEUES, SIZE = ("flow-a", "flow-b", "flow-c"), 20
PATIENCE = 120 + 2 * FLOWS + 3 * KILLS


#: What members with these states have become, for those behind them.
_BECAME = {"handled": rules.HANDLED, "dead": rules.DEAD_LETTER, "skipped": rules.LOST}


class Graph:
    """A flow by chance, and what must become of its members."""

    def __init__(self, app: reliq.Reliq, chance: random.Random) -> None:
        self.after: list[list[int]] = []
        self.fate: list[str] = []  #: by the rules of the reference model
        with app.flow() as flow:
            self.id = flow.id
            sent: list[reliq.FlowMessage] = []
            for number in range(SIZE):
                before = sorted(chance.sample(range(number), min(number, chance.choice((0, 1, 1, 2, 3)))))
                before = [*range(number)] if number == SIZE - 1 else before
                dies, rule = chance.random() < 0.08, chance.choice(RULES)
                ends = {rules.fate(rule, _BECAME[self.fate[one]]) for one in before}
                self.fate.append("skipped" if rules.IS_SKIPPED in ends else "dead" if dies else "handled")
                self.after.append(before)
                key = chance.choice(("", "", f"k{chance.randrange(5)}"))
                message = reliq.NewMessage("dies" if dies else "x", key=key) if key else "dies" if dies else "x"
                sent.append(
                    flow.send(chance.choice(QUEUES), message, after=[sent[one] for one in before], on_failure=rule)
                )

    def fates(self, app: reliq.Reliq) -> list[str]:
        progress = app.flow_progress(self.id)
        return [one.state for one in progress.members] if progress else []


@pytest.mark.campaign
@pytest.mark.timeout(PATIENCE + 60)
def test_each_message_of_a_flow_runs_after_all_before_it_and_none_is_lost(redis_with_log, tmp_path):
    log, chance = tmp_path / "log", random.Random(7)
    app = reliq.Reliq(redis_with_log.url)
    app.queue("flow-c").configure(partitions=3)
    for name in QUEUES:
        app.queue(name).configure(max_deliveries=1000)
    graphs = [Graph(app, chance) for _ in range(FLOWS)]
    left, until = dict(enumerate(graphs)), time.monotonic() + PATIENCE
    with contextlib.ExitStack() as stack:
        fleet = Fleet(stack, redis_with_log.url, log, "tests.campaign.flows_app:app")
        for kill in range(KILLS):
            time.sleep(chance.random())
            if kill % 6 == 5:
                redis_with_log.kill()
                redis_with_log.start()
            else:
                fleet.kill(chance.randrange(WORKERS + MONITORS))
        while left and time.monotonic() < until:
            with contextlib.suppress(RedisUnavailable):
                left = {at: one for at, one in left.items() if one.fates(app) != one.fate}
            time.sleep(0.2)
        stats = [app.queue(name).stats() for name in QUEUES]
    assert [(one.fates(app), one.fate) for one in left.values()] == []
    app.close()
    runs = check(log, graphs)
    fates = Counter(fate for one in graphs for fate in one.fate)
    counters = Counter(name for one in stats for name, count in one.counters.items() for _ in range(count))
    assert [(one.ready, one.waiting, one.delayed, one.processing, one.missing) for one in stats] == [
        (0, 0, 0, 0, 0)
    ] * 3
    assert (counters["acked"], counters["dead_lettered"], counters["cancelled"]) == (
        fates["handled"], fates["dead"], fates["skipped"],
    )  # fmt: skip
    print(f"flows={FLOWS} messages={FLOWS * SIZE} kills={KILLS} runs={runs} fates={dict(fates)}")


def check(log: Path, graphs: list[Graph]) -> int:
    """Go through what the handlers have noted, in its order; return how many runs there were."""
    by_id = {one.id: one for one in graphs}
    over: set[tuple[str, int]] = set()
    runs = 0
    for line in log.read_text().splitlines():
        what, flow, text = line.split()
        number, graph = int(text), by_id[flow]
        if what == "begin":
            runs += 1
            early = [one for one in graph.after[number] if (flow, one) not in over and graph.fate[one] != "skipped"]
            assert early == [], f"{number} of {flow} began before {early} had ended"
            assert graph.fate[number] != "skipped"
        if what == "end" or graph.fate[number] == "dead":
            over.add((flow, number))
    return runs
