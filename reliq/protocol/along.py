"""Along: what belongs to messages, and is taken to another home or queue before them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reliq.model.keys import QueueKeys
from reliq.ops import Op, Steps
from reliq.ops.coming import Coming


def _nothing(home: QueueKeys, coming: Sequence[Coming]) -> list[Op[Any]]:
    return []


def _stays(keys: QueueKeys, home: QueueKeys, coming: Sequence[Coming]) -> Steps[list[Coming]]:
    yield from ()
    return []


@dataclass(frozen=True, slots=True)
class Along:
    """What a feature keeps for messages, in the home where they are.

    Several monitors may bring a message, and one of them may be slow: nothing is stored in the new home once the
    message has entered it (`Coming.mark`).
    """

    take: Callable[[QueueKeys, QueueKeys, Sequence[Coming]], Steps[None]]  #: copy it from one home to the other
    have_come: Callable[[QueueKeys, Sequence[Coming]], list[Op[Any]]] = _nothing  #: the messages have entered there
    #: Copy it to a home of another queue, which may get these dead letters; return those of which there was something.
    send_on: Callable[[QueueKeys, QueueKeys, Sequence[Coming]], Steps[list[Coming]]] = _stays
    have_gone: Callable[[QueueKeys, Sequence[Coming]], list[Op[Any]]] = _nothing  #: they have entered another home
