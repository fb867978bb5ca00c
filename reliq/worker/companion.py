"""Companion: what a worker process does for a feature, beside its loops."""

from collections.abc import Sequence

from reliq.model.handlers import Handler, Handlers
from reliq.transport.store import Store


class Companion:
    """The part of a feature in a worker process. A failure of Redis must not leave its methods."""

    on_bench = False  #: whether it begins on the bench of `reliq.testing`, too, where no process keeps it
    own: Sequence[Handler] = ()  #: what this process handles besides: queues of its own

    def __init__(self, store: Store, handlers: Handlers, owner: str) -> None:
        """`handlers`: of the application, with what the feature has let it declare. `owner`: the process."""

    def start(self) -> None:
        """Begin: Redis has answered, and the loops begin next."""

    def keep(self) -> None:
        """Do what is done again about every two seconds."""

    def stop(self) -> None:
        """End: the process shuts down."""
