"""Plans by seed: queues with some settings, a few processes, what they do, and what goes wrong."""

import random
from typing import Any

from tests.simulation.choices import Action, Actor, Choice, Disaster, Fault, Plan, Setting, Slow
from tests.simulation.costing import has_costs, with_costs
from tests.simulation.flowing import has_flows, with_flows
from tests.simulation.partitioned import has_partitions, with_partitions
from tests.simulation.receiving import has_receivers, with_receivers
from tests.simulation.resting import has_durable, with_durable

ACTIVE = 6.0  #: seconds in which actors act and faults happen
LEASE = 2.0
CALL_FAULTS = (
    "reply lost", "reply lost", "request lost", "refused", "late", "killed before", "killed after", "paused before",
    "paused after",
)  # fmt: skip
OUTCOMES = ("fail", "fail", "again", "dead", "crash")


def plan(seed: int) -> Plan:
    """Return the plan of a seed: always the same one."""
    chance = random.Random(seed)
    choices: list[Choice] = []
    queues = ["q"] if chance.random() < 0.6 else ["q", "r"]
    for queue in queues:
        choices += _settings(chance, queue)
    tasks: list[str] = []
    for number in range(1, 1 + chance.randint(1, 3)):
        name = f"worker-{number}"
        some = queues if chance.random() < 0.7 else [chance.choice(queues)]
        choices.append(
            Actor(name, "worker", {"queues": tuple(some), "limit": chance.choice((1, 2, 5, 20)), **_skew(chance)})
        )
        tasks += [f"{name}/{queue}" for queue in some] * 3 + [f"{name}/beat", f"{name}/watchdog"]
    for queue in queues:
        if not any(isinstance(one, Actor) and queue in one.options["queues"] for one in choices):
            choices.append(Actor(f"worker-of-{queue}", "worker", {"queues": (queue,), "limit": 2}))
    for number in range(1, 1 + chance.choice((1, 2, 2, 3))):
        interval = chance.choice((0.4, 0.7, 1.0))
        choices.append(Actor(f"monitor-{number}", "monitor", {"interval": interval, **_skew(chance)}))
        tasks.append(f"monitor-{number}/scan")
    for number in range(1, 1 + chance.randint(1, 3)):
        name = f"producer-{number}"
        choices.append(Actor(name, "producer", _skew(chance)))
        choices += _sends(chance, name, queues)
        tasks.append(f"{name}/calls")
    if chance.random() < 0.6:
        choices.append(Actor("operator", "operator"))
        choices += _operations(chance, "operator", queues)
        tasks.append("operator/calls")
    choices += _faults(chance, tasks)
    if has_partitions(seed):
        choices = with_partitions(seed, choices, ACTIVE, LEASE)
    if has_receivers(seed):
        choices = with_receivers(seed, choices, ACTIVE)
    if has_durable(seed):
        choices = with_durable(seed, choices, ACTIVE, _message)
    if has_costs(seed):
        choices = with_costs(seed, choices, ACTIVE)
    if has_flows(seed):
        choices = with_flows(seed, choices, ACTIVE)
    return Plan(seed, tuple(choices))


def _skew(chance: random.Random) -> dict[str, Any]:
    """Seconds by which the clock of a process is ahead, of a few processes."""
    return {"skew": chance.choice((-3600.0, 3600.0))} if chance.random() < 0.06 else {}


def _settings(chance: random.Random, queue: str) -> list[Choice]:
    found: list[Choice] = []
    kind = chance.random()
    if kind < 0.12:
        found.append(Setting(queue, "concurrency", chance.randint(1, 3)))
    elif kind < 0.2:
        found.append(Setting(queue, "rate", chance.choice(("5/s", "20/s"))))
    elif kind < 0.26:
        found.append(Setting(queue, "key_concurrency", chance.randint(1, 2)))
    elif kind < 0.31:
        found.append(Setting(queue, "key_rate", chance.choice(("2/s", "10/s"))))
    if chance.random() < 0.08:
        found.append(Setting(queue, "fair", "true"))
    if chance.random() < 0.1:
        found.append(Setting(queue, "track", "true"))
    if chance.random() < 0.1:
        found.append(Setting(queue, "history", 600.0))
    if chance.random() < 0.15:
        found.append(Setting(queue, "max_length", chance.randint(3, 12)))
    if chance.random() < 0.2:
        found.append(Setting(queue, "max_deliveries", chance.randint(2, 3)))
    return found


def _sends(chance: random.Random, actor: str, queues: list[str]) -> list[Choice]:
    return [_send(chance, actor, chance.choice(queues)) for _ in range(chance.randint(2, 6))]


def _send(chance: random.Random, actor: str, queue: str) -> Action:
    at, kind, options = round(chance.uniform(0, ACTIVE), 3), chance.random(), _message(chance)
    what = "send"
    if kind < 0.1 and "replace" not in options:
        what, options["count"] = "prepare", 1
        options |= {
            "decision": chance.choice(("commit", "commit", "rollback", "silence")),
            "after": round(chance.uniform(0, 2), 3),
            "check": chance.choice(("commit", "rollback", "silence")),
        }
    elif kind < 0.18 and "dedup_key" not in options:
        what, options["count"] = "publish", 1
    elif kind < 0.26:
        what = "batch"
    elif kind < 0.3:
        catch_up = chance.choice(("all", "latest"))
        what, options = "schedule", {"when": chance.choice(("1s", "2s")), "ends": ACTIVE, "catch_up": catch_up}
    return Action(actor, at, what, queue, options)


def _message(chance: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"count": chance.choice((1, 1, 1, 2, 5, 12))}
    kind = chance.random()
    if kind < 0.3:
        options["key"] = chance.choice("ab")
    elif kind < 0.4:
        options["dedup_key"] = "x"
        options["window"] = chance.choice((0.5, 3.0, 60.0))
    elif kind < 0.5:
        options |= {"dedup_key": chance.choice("uv"), "replace": True}
        if chance.random() < 0.4:
            options["debounce"] = 0.5
            if chance.random() < 0.5:
                options["at_most"] = chance.choice((0.5, 1.2))
    elif kind < 0.58:
        options["limit_key"] = chance.choice("ab")  # the same text as some ordering keys
    if chance.random() < 0.25 and "replace" not in options:
        options["delay"] = round(chance.uniform(0.05, 3.0), 3)
    if chance.random() < 0.08:
        options["ttl"] = round(chance.uniform(0.1, 3.0), 3)
    if chance.random() < 0.15:
        options["priority"] = chance.choice(("high", "low"))
    if chance.random() < 0.1:
        options["headers"] = {"tenant": "a"}
    if chance.random() < 0.15:
        options["large"] = True
    if chance.random() < 0.15:
        options["takes"] = chance.choice((0.3, 0.3, 2.2))
        options["count"] = 1 if options["takes"] > 1 else min(options["count"], 5)
    if chance.random() < 0.4:
        options["plan"] = tuple(chance.choices(OUTCOMES, (8, 8, 4, 3, 2), k=chance.choice((1, 1, 2, 4))))
    return options


def _operations(chance: random.Random, actor: str, queues: list[str]) -> list[Choice]:
    found: list[Choice] = []
    for _ in range(chance.randint(1, 4)):
        at, queue = round(chance.uniform(0.5, ACTIVE), 3), chance.choice(queues)
        what = chance.choice(
            ("pause", "break", "cancel", "cancel", "cancel_many", "purge", "redrive", "redrive", "purge_dead")
        )
        options: dict[str, Any] = {}
        if what in ("pause", "break"):
            options["seconds"] = round(chance.uniform(0.2, 2.0), 3)
        elif what == "cancel":
            options["which"] = chance.randrange(1000)
        elif what == "cancel_many":
            options["key"] = chance.choice("ab")
        found.append(Action(actor, at, what, queue, options))
    return found


def _faults(chance: random.Random, tasks: list[str]) -> list[Choice]:
    found: list[Choice] = []
    for _ in range(chance.choice((0, 1, 2, 3, 5, 8))):
        what = chance.choice(CALL_FAULTS)
        seconds = 0.0
        if what.startswith("paused"):
            seconds = round(chance.choice((0.3, LEASE * 1.5, LEASE * 3)), 3)
        elif what == "late":
            seconds = round(chance.uniform(0.1, 3.0), 3)
        task = chance.choice(tasks)
        found.append(Fault(task, chance.randint(1, 8 if task.endswith("/calls") else 40), what, seconds))
    found += [
        Slow(chance.choice(tasks), chance.randint(1, 40), round(chance.choice((0.004, 0.02, 0.1, 0.8)), 3))
        for _ in range(chance.randint(0, 12))
    ]
    kind = chance.random()
    if kind < 0.08:
        found.append(Disaster(round(chance.uniform(1, ACTIVE), 3), "restart", round(chance.uniform(0.05, 1.0), 3)))
    elif kind < 0.15:
        found.append(Disaster(round(chance.uniform(1, ACTIVE), 3), "full", round(chance.uniform(0.3, 3.0), 3)))
    elif kind < 0.2:
        found.append(Disaster(round(chance.uniform(1, ACTIVE), 3), "away", round(chance.uniform(0.1, 3.0), 3)))
    elif kind < 0.25:
        at = round(chance.uniform(0, ACTIVE / 2), 3)
        found.append(Disaster(at, "script lost", round(chance.uniform(0.1, 8.0), 3)))
    return found
