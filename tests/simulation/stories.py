"""What the observer knows about each message: where it is, and what has become of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

READY, PROCESSING, DELAYED, DEAD, PREPARED, PARKED = "ready", "processing", "delayed", "dead", "prepared", "parked"
NOWHERE = ""
AWAY = "~"  #: begins the turn of a message that waits to be taken to its home
FLYING = "in flight"  #: in the place of a consumer

Message = tuple[str, str]  #: queue, as its users know it, and id


class Violation(AssertionError):
    """Something that must never happen. `history`: time, actor, what, and the moves of each step before it."""

    history: Sequence[tuple[float, str, str, list[str]]] = ()


@dataclass(slots=True)
class Place:
    """Where a message is: the state, and the key."""

    state: str
    consumer: str  #: of a message in processing; FLYING if it was received
    element: bytes
    score: float
    queue: str  #: of the partition
    line: str = ""  #: of one that waits for its key: its turn; of a parked one: its signal

    @property
    def is_away(self) -> bool:
        """Whether it waits to be taken to the home of its key, another partition."""
        return self.line.startswith(AWAY)

    @property
    def waits_for_flow(self) -> bool:
        """Whether it waits for other messages of its flow."""
        return self.line.startswith("\v")


@dataclass(slots=True)
class Run:
    """One run of a handler."""

    process: Any
    consumer: str
    nonce: int
    began: float
    outcome: str = ""  #: empty: it has not ended
    overdue: bool = False  #: its time limit was over
    trial: int = 0  #: of a redelivered message: how many may run at the same time, itself included; else 0
    undone: bool = False  #: the server has never seen the claim of this run: it was restarted from an older state


@dataclass(slots=True)
class Story:
    """What is known about one message from the outside."""

    sent_at: float = 0.0  #: at which its send was called
    delay: float = 0.0
    ttl: float | None = None
    key: str = ""
    limit_key: str = ""
    dedup: tuple[str, float] | None = None  #: key and window
    replace: bool = False
    large: bool = False
    cost: int = 1
    charges: tuple[int, ...] = ()  #: what each of its runs says that it has cost, one after another
    plan: tuple[str, ...] = ()
    takes: float = 0.02  #: seconds that its handler takes
    script: tuple[tuple[str, str, float], ...] = ()  #: of a durable handler: what it does, its name, a number
    rested: bool = False  #: whether it has slept or waited
    freed: bool = False  #: whether others of its key go on while it rests
    prepared: bool = False
    check: str = ""  #: what its check-back decides
    of_batch: tuple[Message, ...] = ()  #: the messages after which it comes
    status: str = "calling"  #: calling, answered, unknown, refused, duplicate
    entered_at: float | None = None
    gone: str = ""  #: how it left, empty: it has not
    lost: bool = False  #: by a restart from an older state
    due: float = 0.0
    turn: float = 0.0  #: in the order of its key, the earliest
    turned_at: float = 0.0  #: when it got its turn
    turn_until: float = 0.0  #: the latest; 0 while it waits to be taken to the home of its key
    strayed: tuple[str, str] | None = None  #: partition and turn with which it has waited for that
    tries: int = 0  #: first runs, marks of those that are redelivered, and charges of it while its holder held no other
    runs: list[Run] = field(default_factory=list)
    cancelled_at: float | None = None
