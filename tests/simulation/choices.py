"""A simulation is a list of choices: who takes part, what each does when, and which faults happen at which call.

Each choice stands for itself, so that any part of the list is a simulation too: a failing one is shrunk by leaving
choices out.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A setting of a queue, from the beginning."""

    queue: str
    name: str
    value: Any


@dataclass(frozen=True)
class Actor:
    """A process: a worker, a monitor, a producer or an operator."""

    name: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """Something that a producer or an operator does at a time, seconds after the beginning."""

    actor: str
    at: float
    what: str
    queue: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """A fault of one call: the `call`-th of a task, counted over all lives of its process."""

    task: str
    call: int
    what: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Slow:
    """A call that takes longer than others to reach the server."""

    task: str
    call: int
    seconds: float


@dataclass(frozen=True)
class Disaster:
    """A fault of the server at a time.

    It is restarted from an older state, its memory is full for a while, it is away for a while, or it has lost a script
    that the next transaction needs, and is away for a while after that.
    """

    at: float
    what: str
    seconds: float


Choice = Setting | Actor | Action | Fault | Slow | Disaster


@dataclass(frozen=True)
class Plan:
    """All choices of one simulation."""

    seed: int
    choices: tuple[Choice, ...]

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.choices if isinstance(one, kind)]


def line(choice: Choice) -> str:
    """Return the choice as a line for a reader."""
    match choice:
        case Setting(queue, name, value):
            return f"setting   {queue} {name}={value}"
        case Actor(name, kind, options):
            return f"actor     {name}: {kind} {_words(options)}"
        case Action(actor, at, what, queue, options):
            return f"action    {at:7.3f} {actor}: {what} {queue} {_words(options)}"
        case Fault(task, call, what, seconds):
            return f"fault     call {call} of {task}: {what}" + (f" for {seconds:.3f} s" if seconds else "")
        case Slow(task, call, seconds):
            return f"slow      call {call} of {task} takes {seconds:.3f} s"
        case Disaster(at, what, seconds):
            return f"disaster  {at:7.3f} {what} {seconds:.3f} s"


def _words(options: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())
