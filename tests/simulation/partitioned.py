"""Plans with a queue of several partitions: their number changes while messages with and without keys are sent."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.choices import Action, Actor, Choice, Fault, Setting

QUEUE = "q"
KEYS = "abcdefgh"  #: most changes of the number give some of them another home
RESIZERS = ("resizer-1", "resizer-2")
_EACH = 3  #: of so many seeds one has partitions
_LIMITED = 9  #: of so many seeds one has limits of keys in this queue, if it has no other settings
_MOST = 5
_FAULTS = ("killed before", "killed after", "reply lost", "request lost", "late", "paused before", "paused after")


def has_partitions(seed: int) -> bool:
    return seed % _EACH == _EACH - 1


def with_partitions(seed: int, choices: Sequence[Choice], active: float, lease: float) -> list[Choice]:
    """Return the choices of a plan, with several partitions for one of its queues, and changes of their number."""
    chance = random.Random(f"the partitions of {seed}")
    few, many = sorted(chance.sample(range(1, _MOST + 1), 2))
    counts = [chance.choice((few, many))]
    for _ in range(chance.randint(1, 5)):  # often back to the number before
        others = [few + many - counts[-1]] * 3 if counts[-1] in (few, many) else [few, many]
        counts.append(chance.choice([*others, chance.randint(1, _MOST)]))
    found: list[Choice] = [Setting(QUEUE, "partitions", counts[0]), *map(_divisible, choices)]
    if seed % _LIMITED == _EACH - 1 and not any(isinstance(one, Setting) and one.queue == QUEUE for one in choices):
        found.append(Setting(QUEUE, "key_concurrency", seed // _LIMITED % 2 + 1))
    times = sorted(round(chance.uniform(0.3, active), 3) for _ in counts[1:])
    found += [Actor(name, "operator") for name in RESIZERS]
    found += [
        Action(chance.choice(RESIZERS), at, "resize", QUEUE, {"count": count})
        for at, count in zip(times, counts[1:], strict=True)
    ]
    for name in ("producer-k", "producer-l"):
        found.append(Actor(name, "producer"))
        sends = [_send(chance, name, active) for _ in range(chance.randint(3, 8))]
        found += map(_limited, sends) if any(map(_limits_keys, found)) else sends
    return found + _faults(chance, choices, lease)


def _divisible(choice: Choice) -> Choice:
    """Return a choice that fits to shares of the limits of the queue.

    Each partition can have a share of `concurrency`; ticks that are caught up together need room together.
    """
    if isinstance(choice, Action) and choice.what == "schedule":
        return replace(choice, options={**choice.options, "catch_up": "latest"})
    if isinstance(choice, Setting) and (choice.queue, choice.name) == (QUEUE, "concurrency"):
        return replace(choice, value=choice.value + _MOST)
    return choice


def _limits_keys(choice: Choice) -> bool:
    return isinstance(choice, Setting) and (choice.queue, choice.name) == (QUEUE, "key_concurrency")


def _limited(send: Action) -> Action:
    """Return the call with a limit key in the place of an ordering key, where it has several."""
    keys = send.options["keys"]
    if len(set(keys)) == 1:
        return send
    options = {name: value for name, value in send.options.items() if name != "keys"}
    return replace(send, options={**options, "limit_key": max(keys)})


def _send(chance: random.Random, actor: str, active: float) -> Action:
    """Return a call with messages of one key, of several, or with some that have none."""
    options: dict[str, Any] = {"count": chance.choice((1, 1, 2, 3, 8))}
    keys = chance.choice((KEYS[:1], KEYS[:3], KEYS, ["", "", "a", "b"]))
    options["keys"] = tuple(chance.choice(keys) for _ in range(options["count"]))
    if chance.random() < 0.3:
        options["delay"] = round(chance.uniform(0.05, 2.5), 3)
    if chance.random() < 0.1:
        options["large"] = True
    if chance.random() < 0.25:
        options["takes"] = chance.choice((0.1, 0.3, 0.8))
    if chance.random() < 0.3:
        options["plan"] = tuple(
            chance.choices(("fail", "again", "dead", "crash"), (6, 4, 2, 1), k=chance.choice((1, 2)))
        )
    return Action(actor, round(chance.uniform(0, active), 3), "send", QUEUE, options)


def _faults(chance: random.Random, choices: Sequence[Choice], lease: float) -> list[Choice]:
    """Return faults of those that change the number, and of those that bring the change to its end."""
    monitors = [f"{one.name}/scan" for one in choices if isinstance(one, Actor) and one.kind == "monitor"]
    workers = [one.name for one in choices if isinstance(one, Actor) and one.kind == "worker"]
    shared = [
        f"{name}/{task}" for name in workers for task in ("share", f"{QUEUE}@partition.1", f"{QUEUE}@partition.2")
    ]
    found: list[Choice] = []
    for _ in range(chance.choice((0, 1, 2, 4))):
        resizers = [f"{name}/calls" for name in RESIZERS]
        tasks = chance.choice(
            (resizers, resizers, monitors, monitors, ["producer-k/calls", "producer-l/calls"], shared)
        )
        what = chance.choice(_FAULTS)
        seconds = round(chance.choice((0.3, lease * 1.5)), 3) if what.startswith("paused") else 0.0
        if what == "late":
            seconds = round(chance.uniform(0.1, 3.0), 3)
        found.append(Fault(chance.choice(tasks), chance.randint(1, 20 if tasks is resizers else 60), what, seconds))
    return found
