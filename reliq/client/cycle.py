"""A queue's cycle: members that are visited again and again."""

from reliq.protocol.cycle import CycleSteps
from reliq.transport.store import Store


class Cycle:
    """The members of a queue that are visited in turn, `queue.cycle`.

        accounts.cycle.add("ann", "bob")

        @app.handler("accounts")
        def poll(message):
            look_at(message.key)
            return reliq.Again(delay=5)

    A member leaves when it is removed, when its handler returns anything else (acked), or dies.
    """

    def __init__(self, store: Store, steps: CycleSteps) -> None:
        self._store = store
        self._steps = steps

    def add(self, *members: str) -> int:
        """Have them visited from now on; those who are in the cycle stay where they are. How many were new.

        Raises InvalidMessage, QueueFull, RedisUnavailable. May be repeated when the outcome is unknown.
        """
        return self._store.run(self._steps.add(members))

    def remove(self, *members: str) -> int:
        """No visit to them starts any more; how many were in the cycle."""
        return self._store.run(self._steps.remove(members))

    def members(self) -> list[str]:
        """Who is in the cycle, sorted."""
        return self._store.run(self._steps.members())
