"""What features let the core's steps do with their messages.

The core imports no feature: the lists at the end are empty until reliq.slices, which `import reliq` runs, has filled
them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reliq.model.found import Place
from reliq.model.keys import JobKeys, QueueKeys
from reliq.ops import Op, Steps
from reliq.ops.coming import Coming


@dataclass(frozen=True, slots=True)
class Act:
    """What handlers ask of a feature for their message while they run, and how the message's consumer does it."""

    asked: dict[type, str]  #: what is asked, with the method of the message that does so
    #: gets the consumer, the message and what was asked; returns the answer, in async handlers one to be awaited
    begin: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Hidden:
    """Messages of a feature that no consumer sees, and that are found, cancelled and purged with the others."""

    place: Place
    element: Callable[[QueueKeys, str], Op[bytes | None]]  #: of the message with this id
    #: Cancel it; whether it was there. The text is the key of the call (`new_call`).
    withdraw: Callable[[QueueKeys, str, str], Steps[bool]]
    purge: Callable[[QueueKeys], Steps[int]]  #: remove all; how many
    #: The hash that has them all, and how a value of it becomes an element; None: `cancel_many` leaves them alone.
    listed: tuple[Callable[[QueueKeys], str], Callable[[bytes], bytes]] | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of a feature that outlive their queue, or a home that is forgotten."""

    note: Callable[[QueueKeys], Steps[Any]]  #: note elsewhere that this queue has counts; what `kept` needs
    #: while the queue is watched: what stores the counts that stay; None if there are others than those noted
    kept: Callable[[QueueKeys, Any], Steps[Sequence[Op[Any]] | None]]


@dataclass(frozen=True, slots=True)
class Notes:
    """Names that a feature notes in a key of its own, each with a queue; they go when the queue is deleted."""

    name: str  #: as `deletion.Deleted` counts them; empty: it does not
    read: Callable[[], Op[Mapping[str, str]]]  #: the queue of each name
    forget: Callable[[str, Sequence[str]], Op[Any]]  #: of a queue, names that it had; as far as they still are its
    #: Before a deletion: ends what is under way between the queue and others, which would be left with a part of it.
    settle: Callable[[QueueKeys], Steps[None]] | None = None


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a feature sends a message when all messages of a staged job have ended."""

    #: with the queue of the message, and the name of the job: the batch that its messages are of
    open: Callable[[str, str], Steps[str]]
    #: before the job is committed: the batch, the job's home, name and run, and the queues of its messages
    close: Callable[[str, JobKeys, str, str, Collection[str]], Steps[None]]
    abandon: Callable[[str], Steps[None]]  #: the job is aborted


def _nothing(home: QueueKeys, coming: Sequence[Coming]) -> list[Op[Any]]:
    return []


def _stays(keys: QueueKeys, home: QueueKeys, coming: Sequence[Coming]) -> Steps[list[Coming]]:
    yield from ()
    return []


@dataclass(frozen=True, slots=True)
class Carried:
    """What a feature keeps for messages in their home, and takes along to another home or queue before them.

    Several monitors may bring a message, and one of them may be slow: nothing is stored in the new home once the
    message has entered it (`Coming.mark`).
    """

    take: Callable[[QueueKeys, QueueKeys, Sequence[Coming]], Steps[None]]  #: copy it from one home to the other
    have_come: Callable[[QueueKeys, Sequence[Coming]], list[Op[Any]]] = _nothing  #: the messages have entered there
    #: Copy it to a home of another queue, which may get these dead letters; return those of which there was something.
    send_on: Callable[[QueueKeys, QueueKeys, Sequence[Coming]], Steps[list[Coming]]] = _stays
    have_gone: Callable[[QueueKeys, Sequence[Coming]], list[Op[Any]]] = _nothing  #: they have entered another home


HIDDEN: list[Hidden] = []
COUNTED: list[Counted] = []
NOTES: list[Notes] = []
#: Who knows whether a message that is nowhere was handled.
HANDLED: list[Callable[[QueueKeys, str], Steps[bool]]] = []
#: Cancel the messages of a home with all of these headers, wherever they are. May be repeated.
CANCELS: list[Callable[[QueueKeys, Mapping[str, str]], Steps[None]]] = []
#: Delete what is kept for settings of a queue that were reset.
FORGETS: list[Callable[[QueueKeys, Collection[str]], Steps[None]]] = []
JOB_ENDS: list[JobEnd] = []
#: Those of some producers, silent for long, that may repeat their call nevertheless.
PRODUCERS: list[Callable[[Collection[bytes]], Steps[Collection[bytes]]]] = []
ACTS: list[Act] = []
#: The push of a message about which a handler has stored something: one that gets on is no poison.
TAGS: list[Callable[[QueueKeys, str], Op[str | None]]] = []
CARRIED: list[Carried] = []
#: What the first home keeps for messages that have not come: a new one gets it before it takes messages.
EARLY: list[Callable[[QueueKeys, QueueKeys], Steps[None]]] = []
