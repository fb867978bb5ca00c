"""Plans with receivers: messages with keys are received beside the workers, and deleted, extended, returned or left."""

import random
from collections.abc import Sequence
from typing import Any

from tests.simulation.choices import Action, Actor, Choice, Fault

_EACH = 4  #: of so many seeds one has receivers
_FAULTS = (
    "reply lost", "reply lost", "request lost", "late", "killed before", "killed after", "paused before",
    "paused after",
)  # fmt: skip
THEN = ("delete", "delete", "delete late", "extend", "return", "leave")  #: what becomes of each message of a receive


def has_receivers(seed: int) -> bool:
    return seed % _EACH == 1


def with_receivers(seed: int, choices: Sequence[Choice], active: float) -> list[Choice]:
    """Return the choices of a plan, with receivers of its queues."""
    chance = random.Random(f"the receivers of {seed}")
    queues = sorted({one.queue for one in choices if isinstance(one, Action)})
    found: list[Choice] = list(choices)
    for number in range(1, 1 + chance.randint(1, 2)):
        name = f"receiver-{number}"
        found.append(Actor(name, "receiver"))
        found += [_receive(chance, name, chance.choice(queues), active) for _ in range(chance.randint(3, 8))]
        for _ in range(chance.choice((0, 0, 1, 2))):
            what = chance.choice(_FAULTS)
            seconds = round(chance.uniform(0.2, 3.0), 3) if what == "late" or what.startswith("paused") else 0.0
            found.append(Fault(f"{name}/calls", chance.randint(1, 25), what, seconds))
    producer = "producer-r"
    found.append(Actor(producer, "producer"))
    for _ in range(chance.randint(2, 5)):
        at = round(chance.uniform(0, active), 3)
        options: dict[str, Any] = {"count": chance.choice((1, 2, 5, 8))}
        if chance.random() < 0.8:
            options["key"] = chance.choice("ab")
        if chance.random() < 0.15:
            options["large"] = True
        found.append(Action(producer, at, "send", chance.choice(queues), options))
    return found


def _receive(chance: random.Random, actor: str, queue: str, active: float) -> Action:
    options = {
        "limit": chance.choice((1, 1, 3, 10)),
        "visibility": round(chance.choice((0.05, 0.4, 2.0, 6.0)), 3),
        "runs": chance.random() < 0.6,
        "wait": chance.choice((0.0, 0.0, 0.3, 1.0)),
        "takes": round(chance.uniform(0.0, 1.0), 3),
        "then": tuple(chance.choices(THEN, k=10)),
    }
    return Action(actor, round(chance.uniform(0, active), 3), "receive", queue, options)
