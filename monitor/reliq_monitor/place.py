"""Place: what one loop of a monitor looks after."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reliq.model.keys import QueueKeys
from reliq.ops.topology import Node, address_of
from reliq_monitor.duties import COMMON
from reliq_monitor.server_watch import Sightings


@dataclass(frozen=True, slots=True)
class Place:
    """The work that one loop looks after: by default all of a single server, or of a cluster as a whole."""

    tag: str = "0"  #: the hash tag of the keys of the monitors that share it
    node: Node | None = None  #: the master of a cluster whose queues these are
    names: Callable[[], Sequence[str]] | None = None  #: returns the queues; None: all that Redis knows
    every_name: Callable[[], Sequence[str]] | None = None  #: returns all queues of the cluster
    common: tuple[str, ...] = COMMON  #: work that belongs to no queue
    away: Callable[[QueueKeys], bool] = lambda _: False  #: whether the node of a queue is away
    sightings: Sightings | None = None

    @property
    def has_queues(self) -> bool:
        """Whether it has queues, and not only work that belongs to none."""
        return self.node is not None or self.names is None

    @property
    def title(self) -> str:
        """What the log calls it."""
        if self.node is not None:
            return f"monitor node={address_of(self.node)}"
        return "monitor" if self.has_queues else f"monitor of {' '.join(self.common)}"


WHOLE = Place()
