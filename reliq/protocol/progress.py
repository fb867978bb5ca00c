"""Progress callbacks of operations that may take long."""

from collections.abc import Callable

Progress = Callable[[int], None]  #: called with the number of messages done so far


def unwatched(done: int) -> None:
    """A progress callback that does nothing."""
