"""How long work tells its caller how far it has got."""

from collections.abc import Callable

Progress = Callable[[int], None]  #: called with the number of messages that are done so far


def unwatched(done: int) -> None:
    """A progress callback that does nothing."""
