"""Plans with flows: chains, groups and other graphs of messages in all queues, of which some wait for others."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reliq.features.flows.model import OnFailure
from tests.simulation.choices import Action, Actor, Choice, Fault

_EACH = 5  #: of so many seeds one has flows
_FAULTS = (
    "reply lost", "reply lost", "request lost", "late", "killed before", "killed after", "paused before",
    "paused after",
)  # fmt: skip
_PLANS = ((), (), (), ("fail",), ("dead",), ("dead",), ("crash",), ("again",))


@dataclass(frozen=True)
class Member:
    """A message of a flow, and the numbers of those it waits for."""

    queue: str
    after: tuple[int, ...]
    rule: OnFailure
    options: dict[str, Any] = field(default_factory=dict)


def has_flows(seed: int) -> bool:
    return seed % _EACH == _EACH - 2


def with_flows(seed: int, choices: Sequence[Choice], active: float) -> list[Choice]:
    """Return the choices of a plan, with two producers of flows, and an operator who cancels some."""
    chance = random.Random(f"the flows of {seed}")
    queues = sorted({one.queue for one in choices if isinstance(one, Action)})
    found: list[Choice] = list(choices)
    for number in (1, 2):
        name = f"producer-f{number}"
        found.append(Actor(name, "producer"))
        for _ in range(chance.randint(1, 3)):
            at = round(chance.uniform(0, active - 1), 3)
            cancel = round(chance.uniform(0.1, 2.0), 3) if chance.random() < 0.15 else None
            found.append(Action(name, at, "flow", queues[0], {"members": _graph(chance, queues), "cancel": cancel}))
        for _ in range(chance.choice((0, 0, 1, 2))):
            what = chance.choice(_FAULTS)
            seconds = round(chance.uniform(0.2, 5.0), 3) if what == "late" or what.startswith("paused") else 0.0
            found.append(Fault(f"{name}/calls", chance.randint(1, 20), what, seconds))
    found.append(Actor("judge", "operator"))
    for what in ("redrive", "purge_dead", "cancel", "cancel", "purge"):
        if chance.random() < 0.3:
            options = {"which": chance.randrange(1000)} if what == "cancel" else {}
            found.append(Action("judge", round(chance.uniform(1, active + 1), 3), what, chance.choice(queues), options))
    return found


def _graph(chance: random.Random, queues: Sequence[str]) -> tuple[Member, ...]:
    """Return a graph: each member waits for none, one or several of those before it."""
    members: list[Member] = []
    for number in range(chance.choice((2, 3, 4, 6, 9))):
        before = range(max(0, number - chance.choice((1, 3, 9))), number)
        after = tuple(sorted(chance.sample(before, min(len(before), chance.choice((0, 1, 1, 2, 4))))))
        members.append(
            Member(chance.choice(queues), after, chance.choice(("fail", "fail", "skip", "run")), _options(chance))
        )
    return tuple(members)


def _options(chance: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"plan": chance.choice(_PLANS)}
    kind = chance.random()
    if kind < 0.25:
        options["key"] = chance.choice("ab")
    elif kind < 0.35:
        options["limit_key"] = chance.choice("ab")
    if chance.random() < 0.15:
        options["delay"] = round(chance.uniform(0.05, 2.0), 3)
    if chance.random() < 0.1:
        options["large"] = True
    if chance.random() < 0.1:
        options["priority"] = chance.choice(("high", "low"))
    if chance.random() < 0.15:
        options["takes"] = chance.choice((0.2, 0.8))
    return options
