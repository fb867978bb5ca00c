"""Rules about messages in flight: received, and invisible until a moment of their own.

While a message of a key is in flight, none that comes after it may be claimed; a receive that takes several of a key
takes them in one step, the first ones of its line.
"""

from collections.abc import Sequence

from tests.simulation.stories import FLYING, PROCESSING, Message, Place, Story, Violation
from tests.simulation.world import World


class Flights:
    """What is in flight, and what its receivers have asked for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._entered: set[Message] = set()  #: in the latest step
        self._deletes: set[tuple[Message, int]] = set()  #: of all deletes that were called: message and nonce
        self._returns: set[tuple[Message, int]] = set()  #: likewise, of returns before their time
        self._late: set[Message] = set()  #: those of which a delete after their time was called

    def next_step(self) -> None:
        """A step of the server begins."""
        self._entered.clear()

    def deletes(self, message: Message, nonce: int, *, late: bool) -> None:
        """A delete of a message by its receipt is called."""
        self._deletes.add((message, nonce))
        if late:
            self._late.add(message)

    def returns(self, message: Message, nonce: int) -> None:
        """A receiver asks that a message be ready again."""
        self._returns.add((message, nonce))

    def deleted(self, message: Message) -> None:
        """A delete was answered: the message is gone."""
        place = self._world.where.get(message)
        if place is not None and not self._world.restarted:
            raise Violation(f"{message[1]} was deleted by its receipt, and is in {place.state}")

    def enters(self, message: Message, story: Story) -> None:
        """A message was put in flight."""
        self._entered.add(message)
        story.tries += 1

    def entered(self, message: Message) -> bool:
        """Whether it was put in flight in this step."""
        return message in self._entered

    def leaves(self, message: Message, old: Place, new: Place | None) -> None:
        """A message left flight."""
        world, nonce = self._world, self._world.envelope(old.element).nonce
        queue, identity = message
        if new is None:
            deleted = (message, nonce) in self._deletes or (message in self._late and old.score <= world.clock.now)
            if not (deleted or world.cancelled(message)):
                raise Violation(f"{identity} of {queue} is gone, and nobody deleted it by its last receipt, or late")
        elif (message, nonce) not in self._returns and world.clock.now + 0.001 < old.score:
            raise Violation(f"{identity} is visible {old.score - world.clock.now:.3f} s too early")

    def leaves_ready(self, causes: Sequence[str], message: Message) -> None:
        """A ready message is gone: only by a delete that is allowed after its time."""
        if "delete_received" in causes and message not in self._late:
            raise Violation(f"{message[1]} of {message[0]} is ready, and was deleted by a former receipt")


def is_flying(place: Place | None) -> bool:
    return place is not None and place.state == PROCESSING and place.consumer == FLYING
