"""Plans with durable handlers: messages whose handlers have steps, sleep, and wait for signals; and who gives these."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.choices import Action, Actor, Choice, Fault
from tests.simulation.partitioned import QUEUE, has_partitions

_EACH = 4  #: of so many seeds one has durable handlers
SIGNALS = ("yes", "no")
PRODUCER = "producer-d"
_FAULTS = (
    "reply lost", "reply lost", "request lost", "late", "killed before", "killed after", "paused before",
    "paused after",
)  # fmt: skip
_ACTS = (
    "step", "step", "step", "step once", "step fails", "step fails once", "step fails often", "step crashes",
    "step raises", "sleep", "sleep", "sleep free", "wait", "wait", "wait free", "wait short", "wait short free",
)  # fmt: skip


def has_durable(seed: int) -> bool:
    return seed % _EACH == _EACH - 1


def with_durable(seed: int, choices: Sequence[Choice], active: float, message: Any) -> list[Choice]:
    """Return the choices of a plan, with durable messages; `message`: makes the options of one."""
    chance = random.Random(f"the durable handlers of {seed}")
    queues = sorted({one.queue for one in choices if isinstance(one, Action)})
    found: list[Choice] = [*choices, Actor(PRODUCER, "producer"), Actor("signaller", "operator")]
    sends = [_send(chance, chance.choice(queues), active, message) for _ in range(chance.randint(3, 8))]
    if has_partitions(seed):
        sends += [_keyed(chance, active) for _ in range(chance.randint(2, 5))]
        sends += _wandering(seed, active)
    else:
        found += _latest(seed, queues[seed // _EACH % len(queues)], active)
    found += [_talking(seed, number, send) for number, send in enumerate(sends)]
    for _ in range(chance.randint(2, 10)):
        options: dict[str, Any] = {"which": chance.randrange(1000), "signal": chance.choice(SIGNALS)}
        if chance.random() < 0.2:
            options["early"] = True
        found.append(
            Action("signaller", round(chance.uniform(0, active + 2), 3), "signal", chance.choice(queues), options)
        )
    if seed % 3:  # those that have died by then
        found.append(Action("signaller", active + 1.5, "purge_dead", queues[seed % len(queues)]))
    workers = [one.name for one in choices if isinstance(one, Actor) and one.kind == "worker"]
    tasks = ["signaller/calls", *(f"{name}/handler" for name in workers * 2)]
    for _ in range(chance.choice((0, 1, 2, 4))):
        what = chance.choice(_FAULTS)
        seconds = round(chance.uniform(0.2, 4.0), 3) if what == "late" or what.startswith("paused") else 0.0
        found.append(Fault(chance.choice(tasks), chance.randint(1, 25), what, seconds))
    return found + _late(seed, workers)


def _late(seed: int, workers: Sequence[str]) -> list[Choice]:
    """Return calls of handlers that arrive after those that repeat them, and after what the handlers do next."""
    chance = random.Random(f"the late calls of {seed}")
    count = 3 if chance.random() < 0.4 else 0
    return [
        Fault(f"{chance.choice(workers)}/handler", chance.randint(1, 15), "late", round(chance.uniform(0.32, 0.9), 3))
        for _ in range(count)
    ]


def _send(chance: random.Random, queue: str, active: float, message: Any) -> Action:
    options = message(chance)
    options["count"] = min(options["count"], 3)
    return Action(PRODUCER, round(chance.uniform(0, active), 3), "send", queue, options | _script(chance))


def _keyed(chance: random.Random, active: float) -> Action:
    """Return a call with messages of keys, which change their homes with the number of partitions."""
    count = chance.choice((1, 2, 4))
    options = {"count": count, "keys": tuple(chance.choices("abcdefgh", k=count)), **_script(chance)}
    return Action(PRODUCER, round(chance.uniform(0, active), 3), "send", QUEUE, options)


def _wandering(seed: int, active: float) -> list[Action]:
    """Return calls with messages that rest again and again, so that their keys move meanwhile, and emit in between."""
    chance = random.Random(f"the wandering of {seed}")
    found = []
    for _ in range(3):
        script = [("emit", "", 0.01)]
        for number in range(3):
            script += [("sleep", f"nap-{number}", chance.choice((0.4, 0.9))), ("emit", "", 0.01)]
        options = {"count": 4, "keys": tuple(chance.sample("abcdefgh", 4)), "script": tuple(script)}
        found.append(Action(PRODUCER, round(chance.uniform(0, active - 2), 3), "send", QUEUE, options))
    return found


def _talking(seed: int, number: int, send: Action) -> Action:
    """Return a call whose handlers emit output between what they do else, in every second one."""
    chance = random.Random(f"the output of {seed}, {number}")
    if chance.random() < 0.5:
        return send
    acts = list(send.options["script"])
    for _ in range(chance.choice((1, 2, 3))):
        acts.insert(chance.randint(0, len(acts)), ("emit", "", chance.choice((0.01, 0.1))))
    return replace(send, options={**send.options, "script": tuple(acts)})


def _latest(seed: int, queue: str, active: float) -> list[Choice]:
    """Return calls with messages of which the latest wins, and which rest with a line that they let go, or keep."""
    chance = random.Random(f"the latest of {seed}")
    began = chance.uniform(0, active - 2)
    found: list[Choice] = [Actor("producer-w", "producer")]
    for number in range(chance.randint(3, 6)):
        what, name = chance.choice((("sleep free", "nap"), ("sleep free", "nap"), ("wait short free", "yes")))
        options = {
            "count": 1, "dedup_key": "w", "replace": True, "takes": chance.choice((0.1, 0.6)),
            "script": ((what, name, chance.choice((0.3, 0.7))),),
        }  # fmt: skip
        found.append(Action("producer-w", round(began + 0.25 * number, 3), "send", queue, options))
    return found


def _script(chance: random.Random) -> dict[str, Any]:
    """Return what the handlers do, one act after another: what, its name, and a number."""
    acts = []
    for number in range(chance.choice((1, 2, 3, 3, 5))):
        what = chance.choice(_ACTS)
        kind = what.split(" ")[0]
        name = chance.choice(SIGNALS) if kind == "wait" else f"{kind}-{number}"
        seconds = chance.choice((0.05, 0.3, 0.9)) if kind == "wait" else chance.choice((0.01, 0.2, 0.8))
        acts.append((what, name, 1.9 if kind == "step" and chance.random() < 0.03 else seconds))
    return {"script": tuple(acts)}
