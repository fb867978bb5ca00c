"""Rules about what callers are told: sends, duplicates, commits, cancels."""

from typing import Any

from tests.simulation.stories import PREPARED, Message, Story, Violation
from tests.simulation.world import World

_CHANGES = 2  #: of the number of partitions, after which a dedup_key may be forgotten


class Calls:
    """What was called, and what was answered."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dedup: dict[tuple[str, str], tuple[float, float, str]] = {}  #: when, until when, which message

    def sends(self, queue: str, identity: str, **facts: Any) -> None:
        """A send of this message is called."""
        self._world.stories[queue, identity] = Story(sent_at=self._world.clock.now, **facts)

    def replaced(self, message: Message, story: Story) -> None:
        """A ready message has gone, and no caller wanted it: a newer one of its dedup key has taken its place."""
        if story.dedup is None or self._world.restarted or self._world.resized[message[0]]:
            return
        others = [one for (queue, _), one in self._world.stories.items() if queue == message[0] and one is not story]
        same = [one for one in others if one.replace and one.dedup is not None and one.dedup[0] == story.dedup[0]]
        if any(one.sent_at >= story.sent_at for one in same):
            return
        raise Violation(f"{message[1]}, the latest of its dedup key, is replaced by an earlier one")

    def answered(self, queue: str, identity: str, status: str, first: str = "") -> None:
        """A send was answered; `first`: of a duplicate, the message that took its place."""
        world = self._world
        story = world.stories[queue, identity]
        story.status = status
        entered = story.entered_at is not None or story.lost
        if status == "answered" and not entered and self._replaced_at_once(queue, story):
            story.entered_at, story.gone, entered = world.clock.now, "replaced", True
        if status == "answered" and not entered and self._was_duplicate(queue, story):
            story.status = "duplicate"
            return
        if status == "answered" and not entered and not world.restarted_since(story.sent_at):
            raise Violation(f"the send of {identity} was answered, and it is nowhere")
        if status == "refused" and entered:
            raise Violation(f"the send of {identity} was refused, and it was enqueued")
        if status == "duplicate":
            other = world.stories.get((queue, first))
            if entered and self._had_its_window(story, other):
                return
            if entered:
                raise Violation(f"the send of {identity} was answered as a duplicate, and it was enqueued")
            if other is not None and other.sent_at == story.sent_at and self._was_duplicate(queue, other):
                return
            if other is None or (other.entered_at is None and not world.restarted):
                raise Violation(f"{identity} is said to be a duplicate of {first}, which was never enqueued")
            entered_at = None if other.prepared else other.entered_at  # a prepared one's window begins with its commit
            if entered_at is not None and other.dedup and story.sent_at > entered_at + other.dedup[1] + 0.002:
                raise Violation(f"{identity} is said to be a duplicate of {first}, whose window was over")

    def _had_its_window(self, story: Story, other: Story | None) -> bool:
        """Whether another message with its key was enqueued after its window, before its send was repeated."""
        if story.dedup is None or story.entered_at is None or other is None or other.entered_at is None:
            return False
        return other.entered_at >= story.entered_at + story.dedup[1]

    def _was_duplicate(self, queue: str, story: Story) -> bool:
        """Whether the first try of a send may have found a duplicate, whose window was over when it was repeated."""
        _, until, _ = self._dedup.get((queue, story.dedup[0] if story.dedup else ""), (0.0, 0.0, ""))
        return bool(story.dedup) and story.sent_at <= until <= self._world.clock.now

    def _replaced_at_once(self, queue: str, story: Story) -> bool:
        """Whether a message of the same call took its place in the step in which it came."""
        stories = self._world.stories.items()
        others = (one for (name, _), one in stories if name == queue and one.sent_at == story.sent_at)
        return story.replace and any(one.dedup == story.dedup and one.entered_at is not None for one in others)

    def committed(self, queue: str, identity: str) -> None:
        """A commit was answered."""
        place = self._world.where.get((queue, identity))
        if place is not None and place.state == PREPARED and not self._world.restarted:
            raise Violation(f"{identity} was committed, and is still prepared")

    def cancelled(self, queue: str, identity: str) -> None:
        """A cancel was answered: it is gone and never runs."""
        world = self._world
        story, place = world.stories[queue, identity], world.where.get((queue, identity))
        if place is not None and not world.restarted:
            raise Violation(f"{identity} was cancelled, and is in {place.state}")
        if story.gone == "acked" and not world.restarted:
            raise Violation(f"{identity} was cancelled, and had been handled before")
        story.cancelled_at = world.clock.now

    def note_window(self, message: Message, story: Story) -> None:
        """A message is enqueued: none with its dedup_key was within the window."""
        (queue, identity), now = message, self._world.clock.now
        if story.dedup is None or story.replace:
            return
        key, window = story.dedup
        since, until, before = self._dedup.get((queue, key), (0.0, 0.0, ""))
        changes = sum(since <= one for one in self._world.resized[queue])
        if now < until - 0.002 and changes < _CHANGES:
            raise Violation(f"{identity} is enqueued within the window of {before}, with the same dedup_key")
        self._dedup[queue, key] = (now, now + window, identity)

    def restarts(self, saved_at: float) -> None:
        """The server has the state again that it had then."""
        self._dedup = {key: one for key, one in self._dedup.items() if one[0] < saved_at}
