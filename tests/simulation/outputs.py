"""Rules about the output of messages: no chunk is lost or doubled, and none is of a run that another has followed."""

from collections import defaultdict

from reliq.model.keys import QueueKeys
from tests.simulation.stories import Message, Violation
from tests.simulation.world import World

Chunk = tuple[int, int]  #: the number of the run of its message, and that of the chunk in it


class Outputs:
    """What handlers have emitted."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._emitted: dict[Message, list[Chunk]] = defaultdict(list)  #: that were answered

    def emitted(self, message: Message, chunk: Chunk) -> None:
        """A chunk was emitted, and its handler has the answer."""
        self._emitted[message].append(chunk)

    def check(self) -> None:
        """At the end: each message that is here or was handled has its output, in one of the partitions."""
        if self._world.restarted:
            return
        for (queue, identity), answered in self._emitted.items():
            story = self._world.stories[queue, identity]
            streams = [self._chunks(partition, identity) for partition in self._world.partitions(queue)]
            for chunks in streams:
                if chunks != sorted(set(chunks)):
                    raise Violation(f"the output of {identity} is {chunks}: doubled, or of a run that was followed")
            longest: list[Chunk] = max(streams, key=len)
            missing = set(answered).difference(longest)
            handled = any(run.outcome == "ack" for run in story.runs)
            if missing and (handled or not story.gone):
                raise Violation(f"chunks of {identity} are lost: {sorted(missing)}, there is {streams}")

    def _chunks(self, partition: str, identity: str) -> list[Chunk]:
        entries = self._world.server.entries(QueueKeys(partition).output(identity))
        found = []
        for _, fields in entries:
            run, _, number = fields[3][1:].partition(b".")
            found.append((int(run), int(number)))
        return found
