"""Plans with budgets: a queue with a rate, whose messages have costs and whose runs say what they have really cost."""

import random
from collections.abc import Sequence
from typing import Any

from tests.simulation.choices import Action, Actor, Choice, Fault, Setting
from tests.simulation.partitioned import has_partitions

_EACH = 5  #: of so many seeds one has budgets
_FAULTS = ("reply lost", "reply lost", "request lost", "late", "killed after", "paused after")


def has_costs(seed: int) -> bool:
    return seed % _EACH == 1


def with_costs(seed: int, choices: Sequence[Choice], active: float) -> list[Choice]:
    """Return the choices of a plan, with a rate for one of its queues, and a producer of messages with costs."""
    chance = random.Random(f"the costs of {seed}")
    queue = max(one.queue for one in choices if isinstance(one, Action))
    limits = ("rate", "burst", "concurrency", "key_concurrency", "key_rate", "fair")
    others = [one for one in choices if not (isinstance(one, Setting) and one.queue == queue and one.name in limits)]
    rate = chance.choice(("10/s", "40/s", "1200/m"))
    rate = "60/s" if has_partitions(seed) else rate  # each partition has a share of it
    found: list[Choice] = [*others, Setting(queue, "rate", rate)]
    if chance.random() < 0.7:
        found.append(Setting(queue, "burst", chance.choice((3, 6, 20))))
    if chance.random() < 0.5:
        found.append(Setting(queue, "key_rate", chance.choice(("10/s", "600/m"))))
    if chance.random() < 0.4:
        found.append(Setting(queue, "fair", "true"))
        found.append(Setting(queue, "weights", "a:2"))
    producer = "producer-c"
    found.append(Actor(producer, "producer"))
    found += [_send(chance, producer, queue, active) for _ in range(chance.randint(3, 7))]
    workers = [one.name for one in choices if isinstance(one, Actor) and one.kind == "worker"]
    for _ in range(chance.choice((0, 1, 2, 3))):
        what = chance.choice(_FAULTS)
        seconds = round(chance.uniform(0.2, 3.0), 3) if what == "late" or what.startswith("paused") else 0.0
        found.append(Fault(f"{chance.choice(workers)}/handler", chance.randint(1, 15), what, seconds))
    return found


def _send(chance: random.Random, actor: str, queue: str, active: float) -> Action:
    options: dict[str, Any] = {"count": chance.choice((1, 2, 4)), "cost": chance.choice((1, 2, 3, 8))}
    if chance.random() < 0.7:
        options["charges"] = tuple(chance.choice((0, 1, 2, 5, 12)) for _ in range(chance.choice((1, 1, 2))))
    kind = chance.random()
    if kind < 0.3:
        options["limit_key"] = chance.choice("ab")
    elif kind < 0.5:
        options["key"] = chance.choice("ab")
    if chance.random() < 0.2:
        options["plan"] = chance.choice((("fail",), ("again",), ("crash",)))
    if chance.random() < 0.2:
        options["delay"] = round(chance.uniform(0.05, 1.0), 3)
    return Action(actor, round(chance.uniform(0, active - 1), 3), "send", queue, options)
