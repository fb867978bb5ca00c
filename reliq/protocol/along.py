"""Along: what belongs to messages that a monitor takes to another partition, and is taken there before them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reliq.model.keys import QueueKeys
from reliq.ops import Op, Steps
from reliq.ops.partitions import Coming


def _nothing(home: QueueKeys, coming: Sequence[Coming]) -> list[Op[Any]]:
    return []


@dataclass(frozen=True, slots=True)
class Along:
    """What a feature keeps for messages, in the partition where they are.

    Several monitors may bring a message, and one of them may be slow: nothing is stored in the new home once the
    message has entered it (`Coming.mark`).
    """

    take: Callable[[QueueKeys, QueueKeys, Sequence[Coming]], Steps[None]]  #: copy it from one home to the other
    have_come: Callable[[QueueKeys, Sequence[Coming]], list[Op[Any]]] = _nothing  #: the messages have entered there
