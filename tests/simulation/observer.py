"""Sees everything: what each step moved, who runs what; and says what must never happen."""

from collections.abc import Iterable
from typing import Any

from tests.reference.moves import may_move
from tests.simulation.books import Books
from tests.simulation.budgets import Budgets
from tests.simulation.calls import Calls
from tests.simulation.ends import Ends
from tests.simulation.flights import Flights, is_flying
from tests.simulation.graphs import Graphs
from tests.simulation.journeys import Journeys
from tests.simulation.outputs import Outputs
from tests.simulation.records import Records
from tests.simulation.runs import Runs, turn_in_step
from tests.simulation.stories import (
    DEAD,
    DELAYED,
    NOWHERE,
    PARKED,
    PREPARED,
    PROCESSING,
    READY,
    Message,
    Place,
    Story,
    Violation,
)
from tests.simulation.world import World

_REPLACES = {"promote", "settle"}  #: what may bring a message in the place of a ready one, beside sends


class Observer(World):
    """Compares what the server has before and after each step."""

    def __init__(self, clock: Any, server: Any) -> None:
        super().__init__(clock, server)
        self.moves: list[str] = []  #: of the latest step, for a reader
        self.calls = Calls(self)
        self.flights = Flights(self)
        self.runs = Runs(self, self.flights)
        self.books = Books(self)
        self.records = Records(self)
        self.outputs = Outputs(self)
        self.graphs = Graphs(self)
        self.budgets = Budgets(self, self.books)
        self._ends = Ends(self)
        self._journeys = Journeys()

    def after(self, process: Any, cause: Iterable[str]) -> None:
        """A request was carried out: look, and compare."""
        self.moves = []
        self.runs.next_step()
        self._ends.next_step()
        self.flights.next_step()
        self.records.next_step()
        self.graphs.next_step()
        self.budgets.charge()
        found = self.server.contents()
        if found is None:
            return
        changed = [key for key in found.keys() | self.contents.keys() if found.get(key) != self.contents.get(key)]
        self.contents = found
        before, after = self.read(changed)
        causes = list(cause)
        for message in sorted(before.keys() | after.keys(), key=lambda one: (turn_in_step(before.get(one)), one)):
            self._compare(process, causes, message, before.get(message, []), after.get(message, []))
        self.runs.check()
        self.records.check()
        self.graphs.check()
        self.budgets.check()
        self.books.check(changed)

    def _compare(
        self, process: Any, causes: list[str], message: Message, before: list[Place], after: list[Place]
    ) -> None:
        queue, identity = message
        before, after = self._journeys.without_copy(causes, message, before, after)
        now = self.where.get(message)
        if len(after) == 1 and not before and now:
            before = [*filter(None, [self._journeys.begins(process, causes, message, now, after[0])])]
        if len(after) > 1 or (after and not before and now is not None):
            raise Violation(f"{identity} is in two places of {queue}: {[one.state for one in (*before, *after)]}")
        story = self.stories.get(message) or self._tick(message, causes)
        if story is None:
            raise Violation(f"{identity} is in {queue}, and was never sent there")
        if before or after:
            self._moved(process, causes, message, story, before[0] if before else None, after[0] if after else None)

    def _moved(
        self, process: Any, causes: list[str], message: Message, story: Story, old: Place | None, new: Place | None
    ) -> None:
        if new is None:
            self.where.pop(message, None)
        else:
            self.where[message] = new
        arrow = (old.state if old else NOWHERE, new.state if new else NOWHERE)
        if old is not None and new is not None and arrow[0] == arrow[1] and old.consumer == new.consumer:
            if (old.is_away and not new.is_away) or (old.waits_for_flow and not new.waits_for_flow):
                self.runs.takes_turn(story, old, new)
                self.graphs.moved(process, causes, message, story, old, new)
                what = f"{old.queue} -> {new.queue}" if old.is_away else "goes on"
                self.moves.append(f"{message[1]}: {what}")
            return
        self.moves.append(f"{message[1]}: {arrow[0] or '-'} -> {'flight' if is_flying(new) else arrow[1] or '-'}")
        if old is not None and old.state == PROCESSING and is_flying(new) and "receive" in causes:
            self.flights.enters(message, story)
            return
        if not may_move(causes, arrow, story.replace):
            what = "is lost" if new is None else f"goes to {new.state}"
            raise Violation(f"{message[1]} {what} from {arrow[0] or 'nowhere'} by {', '.join(causes) or 'a read'}")
        self._note(process, causes, message, story, old, new)
        self.graphs.moved(process, causes, message, story, old, new)

    def _tick(self, message: Message, causes: list[str]) -> Story | None:
        """Return the story of a message that a schedule has just sent."""
        queue, identity = message
        if "fire" not in causes or (queue, identity.partition("@")[0]) not in self.schedules:
            return None
        story = self.stories[message] = Story(self.clock.now, status="answered")
        return story

    def _note(
        self, process: Any, causes: list[str], message: Message, story: Story, old: Place | None, new: Place | None
    ) -> None:
        if old is None:
            self._enters(message, story)
        elif is_flying(old):
            self.flights.leaves(message, old, new)
        elif old.state == READY and new is None:
            self.flights.leaves_ready(causes, message)
            if story.replace and not _REPLACES.isdisjoint(causes):
                self.calls.replaced(message, story)
        elif old.state == PROCESSING and {"settle", "newest"} & set(causes):
            self.budgets.left(message, story)
            self._ends.settled(process, message, story, old, new)
        elif old.state == PROCESSING and {"sleep", "park"} & set(causes):
            assert new is not None  # `may_move` knows
            self.records.rests(process, message, story, old, new)
        elif old.state == PARKED and new is not None:
            self.records.wakes(message, story, old)
        elif old.state == DEAD and new is not None:
            self.records.revives(message)
        elif old.state == PROCESSING:
            self._ends.reclaimed(message, old, new)
        elif old.state == PREPARED and new is not None and new.state != DEAD:
            self.calls.note_window(message, story)
        if new is None:
            handled = old is not None and old.state == PROCESSING and "purge_received" not in causes
            story.gone = "acked" if handled else "removed"
            self.records.ends(message, old)
            return
        if new.state == PROCESSING:
            if is_flying(new):
                self.flights.enters(message, story)
            self.runs.claimed(message, story)
            if "newest" not in causes:  # it has the place of one that was claimed
                self.books.claimed(message[0])
            if "claim_limited" in causes:
                self.budgets.claimed(message, story)
        if new.state == DELAYED:
            story.due = new.score
        if new.state == READY and (old is None or old.state in (DELAYED, DEAD, PREPARED, PARKED)):
            self._becomes_ready(message[1], story, old, new)

    def _becomes_ready(self, identity: str, story: Story, old: Place | None, new: Place) -> None:
        if story.delay and (old is None or old.state == PREPARED):
            raise Violation(f"{identity} is ready without its delay of {story.delay} s")
        if old is not None and old.state == DELAYED and self.clock.now + 0.001 < story.due:
            raise Violation(f"{identity} is ready {story.due - self.clock.now:.3f} s too early")
        self.runs.takes_turn(story, old, new)
        story.due = 0.0

    def _enters(self, message: Message, story: Story) -> None:
        queue, identity = message
        if story.gone:
            raise Violation(f"{identity} is in {queue} again, after it was {story.gone}")
        if story.status == "refused" or story.status == "duplicate":
            raise Violation(f"{identity} is in {queue}, and its send was answered as {story.status}")
        story.entered_at = self.clock.now
        if story.delay:
            story.due = story.sent_at + story.delay
        if not story.prepared:
            self.calls.note_window(message, story)
        for other in story.of_batch:
            place = self.where.get(other)
            if place is None or place.state == DEAD or self.restarted:
                continue
            if not self.records.of(other).revived_at:  # it was dead when the end was noted, and put back since
                raise Violation(f"{identity} comes at the end of its batch, and {other[1]} is in {place.state}")

    def restarts(self, saved_at: float) -> None:
        """The server has the state again that it had then."""
        self.restarted = self.disturbed = True
        self.restarted_at = self.clock.now
        self.contents = self.server.contents() or {}
        before = self.where
        self.placed.clear()
        self.layouts.clear()
        self.read(self.contents)
        everything = [one for keys in self.placed.values() for placed in keys.values() for one in placed]
        self.where = self._journeys.restarts(everything)
        self.runs.restarts(before, saved_at)
        self.calls.restarts(saved_at)
        self.records.restarts(saved_at)
        for message, story in self.stories.items():
            if message in self.where:
                place = self.where[message]
                story.gone, story.cancelled_at = "", None
                story.due = place.score if place.state == DELAYED else 0.0
            elif story.entered_at is not None and story.entered_at >= saved_at:  # the server has never seen it
                story.lost, story.entered_at, story.gone = True, None, ""
            elif story.entered_at is not None and not story.gone:
                raise Violation(f"{message[1]} was there when the state was saved, and is not in it")
