"""Hidden: messages of a feature that no consumer sees, and that are found, cancelled and purged with the others."""

from collections.abc import Callable
from dataclasses import dataclass

from reliq.model.found import Place
from reliq.model.keys import QueueKeys
from reliq.ops import Op, Steps


@dataclass(frozen=True, slots=True)
class Hidden:
    """What the core asks about such messages of a queue."""

    place: Place
    element: Callable[[QueueKeys, str], Op[bytes | None]]  #: of the message with this id
    #: Cancel it; whether it was there. The text is the key of the call (`new_call`).
    withdraw: Callable[[QueueKeys, str, str], Steps[bool]]
    purge: Callable[[QueueKeys], Steps[int]]  #: remove all; how many
    #: The hash that has them all, and how a value of it becomes an element; None: `cancel_many` leaves them alone.
    listed: tuple[Callable[[QueueKeys], str], Callable[[bytes], bytes]] | None = None
