"""Nodes that do not answer while a process leaves its homes, one after another."""

from collections.abc import Callable

from reliq.errors import RedisUnavailable, ReliqError
from reliq.model.keys import QueueKeys
from reliq.ops.topology import Node


class AwayNodes:
    """Remembers which nodes are away, so that only the first home of each waits for it."""

    def __init__(self, node_of: Callable[[str], Node | None]) -> None:
        """`node_of` returns the node of a key; None without a cluster."""
        self._node_of = node_of
        self._errors: dict[Node | None, RedisUnavailable] = {}

    def check(self, keys: QueueKeys) -> None:
        """Raise the error of the node of a home, if it is away."""
        if (error := self._errors.get(self._node_of(keys.messages))) is not None:
            raise error

    def note(self, keys: QueueKeys, error: ReliqError) -> None:
        """Note what a call about a home has raised."""
        if isinstance(error, RedisUnavailable):
            self._errors[self._node_of(keys.messages)] = error
