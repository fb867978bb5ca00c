"""Rules about the ends of messages: what is settled, and what is taken back from vanished consumers."""

from collections import Counter
from typing import Any

from reliq.contract.values import MAX_DELIVERIES
from reliq.model.keys import owner_of
from tests.reference.rules import death_is_right
from tests.simulation.stories import DEAD, NOWHERE, PROCESSING, Message, Place, Story, Violation
from tests.simulation.world import World

MAX_FAILURES = 3  #: retries of the handlers


class Ends:
    """How messages leave processing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: Counter[str] = Counter()  #: messages that each process held before the latest step

    def next_step(self) -> None:
        """A step of the server begins."""
        self._held = Counter(owner_of(one.consumer) for one in self._world.where.values() if one.state == PROCESSING)

    def settled(self, process: Any, message: Message, story: Story, old: Place, new: Place | None) -> None:
        """A message was settled: as its handler has ended."""
        world = self._world
        queue, identity = message
        if owner_of(old.consumer) != process.owner and not process.receives:
            raise Violation(f"{process.name} settles {identity}, which {old.consumer} holds")
        nonce = world.envelope(old.element).nonce
        runs = [run for run in story.runs if run.nonce == nonce and run.consumer == old.consumer and run.outcome]
        handled = any(run.outcome == "ack" for run in runs)
        outcome = runs[-1].outcome if runs and not runs[-1].undone else ""
        went = new.state if new else NOWHERE
        if went == NOWHERE and not handled and not world.cancelled(message) and not story.replace:
            raise Violation(f"{identity} of {queue} was acked, and no run of it was successful: {outcome or 'none'}")
        if went != NOWHERE and outcome == "ack" and not world.restarted_since(runs[-1].began):
            raise Violation(f"{identity} of {queue} was handled, and goes to {went}")
        if went == DEAD and new is not None:
            self._died(message, story, new, outcome)
        elif outcome == "dead":
            raise Violation(f"{identity} of {queue} was refused by its handler, and goes to {went or 'nowhere'}")

    def _died(self, message: Message, story: Story, letter: Place, outcome: str) -> None:
        reason, failures = self._reason(letter), self._world.envelope(letter.element).failures
        if not death_is_right(
            reason,
            rejected=outcome == "dead",
            failures=failures if outcome == "fail" else 0,
            most_failures=MAX_FAILURES,
            late=story.ttl is not None
            and self._world.clock.now >= story.sent_at + story.ttl
            and (not story.rested or self._world.restarted),
        ):
            raise Violation(f"{message[1]} of {message[0]} is a dead letter ({reason}) after {outcome or 'no run'}")

    def _reason(self, letter: Place) -> str:
        extra = self._world.envelope(letter.element).extra
        return "" if extra is None else extra.reason

    def reclaimed(self, message: Message, old: Place, new: Place | None) -> None:
        """A message was taken back from its consumer, which has vanished."""
        world = self._world
        queue, identity = message
        alive = [one for one in world.processes() if one.owner == owner_of(old.consumer)]
        if alive and not world.excused(alive[0]):
            raise Violation(
                f"{identity} of {queue} is taken from {alive[0].name}, which lives: lease {world.lease(old)}"
            )
        story, before = world.stories[message], world.envelope(old.element)
        charged = new is not None and world.envelope(new.element).deliveries > before.deliveries
        started = any(run.nonce == before.nonce and run.consumer == old.consumer for run in story.runs)
        if charged and not (before.redelivered or started) and self._held[owner_of(old.consumer)] == 1:
            story.tries += 1  # it was alone: only its holder could know that it did not run
        if new is not None and new.state == DEAD:
            envelope = world.envelope(new.element)
            most = world.limits[queue].get("max_deliveries", MAX_DELIVERIES)
            if self._reason(new) != "max_deliveries" or envelope.deliveries < most:
                raise Violation(f"{identity} of {queue} dies of a reclaim with {envelope.deliveries} deliveries")
            if story.tries < most:
                raise Violation(f"{identity} was charged {envelope.deliveries} times, and tried {story.tries} times")
