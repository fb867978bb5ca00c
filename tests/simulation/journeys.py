"""Rules about messages on their way to the home of their key, another partition.

A monitor enqueues such a message in its home, then removes it where it waited. In between two places have it: the
earlier one is a copy from then on, of which nothing may become but that it is removed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.stories import AWAY, DELAYED, READY, Message, Place, Violation


class Journeys:
    """The copies that monitors have left behind."""

    def __init__(self) -> None:
        self._copies: dict[Message, Place] = {}
        self._restarted = False

    def begins(self, process: Any, causes: Sequence[str], message: Message, old: Place, new: Place) -> Place | None:
        """Return where a message in two places was before a monitor brought it to its home; None: none did.

        It was ready there. A restart may have undone that it was due.
        """
        undone = self._restarted and old.state == DELAYED
        waited = replace(old, state=READY, line=AWAY) if undone else old
        if "enqueue" not in causes or not process.name.startswith("monitor") or not waited.is_away:
            return None
        if old.queue == new.queue:
            return None
        self._copies[message] = old
        return waited

    def without_copy(
        self, causes: Sequence[str], message: Message, before: list[Place], after: list[Place]
    ) -> tuple[list[Place], list[Place]]:
        """Return the places of a message without the copy of it that was left behind."""
        copy = self._copies.get(message)
        if copy is None or copy not in before:
            return before, after
        if copy not in after:
            del self._copies[message]
            due = [one for one in after if one.is_away and one.queue == copy.queue and copy.state == DELAYED]
            if due:
                self._copies[message] = due[0]
                after = [one for one in after if one != due[0]]
            elif "send_home" not in causes:
                raise Violation(f"the copy of {message[1]} in {copy.queue} is moved by {', '.join(causes)}")
        return [one for one in before if one != copy], [one for one in after if one != copy]

    def restarts(self, placed: list[tuple[Message, Place]]) -> dict[Message, Place]:
        """Return where each message is, of all that the server has after a restart from an older state."""
        self._copies.clear()
        self._restarted = True
        where: dict[Message, Place] = {}
        for message, place in sorted(placed, key=lambda one: one[1].is_away):
            if message in where and place.is_away:
                self._copies[message] = place
            else:
                where[message] = place
        return where
