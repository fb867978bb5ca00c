"""Rules about messages on their way to the home of their key, another partition.

A monitor enqueues such a message in its home, then removes it where it waited. In between two places have it: the
earlier one is a copy from then on, of which nothing may become but that it is removed.
"""

from collections.abc import Sequence
from typing import Any

from tests.simulation.stories import Message, Place, Violation


class Journeys:
    """The copies that monitors have left behind."""

    def __init__(self) -> None:
        self._copies: dict[Message, Place] = {}

    def begins(self, process: Any, causes: Sequence[str], message: Message, old: Place, new: Place) -> bool:
        """Whether a message that was in one place, and is in two now, was brought to its home by a monitor."""
        brought = "enqueue" in causes and process.name.startswith("monitor") and old.is_away and old.queue != new.queue
        if brought:
            self._copies[message] = old
        return brought

    def without_copy(
        self, causes: Sequence[str], message: Message, before: list[Place], after: list[Place]
    ) -> tuple[list[Place], list[Place]]:
        """Return the places of a message without the copy of it that was left behind."""
        copy = self._copies.get(message)
        if copy is None or copy not in before:
            return before, after
        if copy not in after:
            del self._copies[message]
            if "send_home" not in causes:
                raise Violation(f"the copy of {message[1]} in {copy.queue} is moved by {', '.join(causes)}")
        return [one for one in before if one != copy], [one for one in after if one != copy]

    def restarts(self, placed: list[tuple[Message, Place]]) -> dict[Message, Place]:
        """Return where each message is, of all that the server has after a restart from an older state."""
        self._copies.clear()
        where: dict[Message, Place] = {}
        for message, place in sorted(placed, key=lambda one: one[1].is_away):
            if message in where and place.is_away:
                self._copies[message] = place
            else:
                where[message] = place
        return where
