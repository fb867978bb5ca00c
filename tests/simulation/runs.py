"""Rules about the runs of handlers: who may start which message when, in which order."""

from collections.abc import Sequence
from typing import Any

from tests.simulation.flights import Flights, is_flying
from tests.simulation.stories import DEAD, DELAYED, PARKED, PROCESSING, READY, Message, Place, Run, Story, Violation
from tests.simulation.world import World


class Runs:
    """What runs where."""

    def __init__(self, world: World, flights: Flights) -> None:
        self._world = world
        self._flights = flights
        self._undone: set[tuple[Message, str]] = set()  #: which consumers' claims of which messages a restart undid
        self._turns = 0.0  #: of the latest step
        self._entered = 0  #: messages that it has added
        self._redriven = -1.0  #: when the latest of them had died, if it had: those of one ms are added in any order
        self._claimed: list[tuple[Message, Story]] = []  #: those with a key that it has brought into processing

    def starts(self, process: Any, consumer: str, message: Any) -> Run:
        """A handler begins."""
        world = self._world
        identity = (message.queue, message.id)
        story, place = world.stories[identity], world.where.get(identity)
        run = Run(process, consumer, message._envelope.nonce, world.clock.now)
        name = f"{message.id} of {message.queue}"
        if story.gone and not world.restarted:
            raise Violation(f"{name} starts at {process.name} after it was {story.gone}")
        if story.cancelled_at is not None and not world.restarted:
            raise Violation(f"{name} starts after it was cancelled")
        holds = place is not None and place.state == PROCESSING and place.consumer == consumer
        if not holds and not world.disturbed:
            where = f"it is in {place.state} {place.consumer}" if place else "it is nowhere"
            raise Violation(f"{name} starts at {process.name}, which does not hold it: {where}")
        run.undone = not holds and (identity, consumer) in self._undone
        if not run.undone and world.clock.now + 0.001 < story.due:
            raise Violation(f"{name} starts {story.due - world.clock.now:.3f} s too early")
        for other in story.runs:
            if not other.outcome and other.process is not process and not world.excused(other.process):
                raise Violation(f"{name} starts at {process.name} while {other.process.name} runs it")
        if not run.undone:
            self._check_order(identity, story)
        if message.redelivered:
            run.trial = 1 if message.deliveries else message.together or len(world.stories)
            self._check_trials(run, name)
        story.runs.append(run)
        story.tries += not message.redelivered
        return run

    def _check_trials(self, run: Run, name: str) -> None:
        """No more redelivered messages run in a process at a time than each of them may have beside it."""
        runs = (one for story in self._world.stories.values() for one in story.runs)
        beside = [one.trial for one in runs if one.trial and one.process is run.process and not one.outcome]
        if len(beside) + 1 > min([run.trial, *beside]):
            raise Violation(f"{name} starts at {run.process.name} beside {len(beside)} others that were redelivered")

    # --- order by key ---

    def _check_order(self, identity: Message, story: Story) -> None:
        """No earlier message of its key waits."""
        if not story.key or story.runs:
            return
        for other, earlier in self._others(identity, story):
            place = self._world.where.get(other)
            if place is None or place.waits_for_flow:  # again, perhaps, after a restart
                continue
            waits = place.state in (READY, PROCESSING, DELAYED, PARKED) and not place.is_away
            if waits and not _has_come_back(earlier) and _is_before(earlier, story):
                raise Violation(f"{identity[1]} starts before {other[1]}, which is earlier in the order of their key")

    def claimed(self, identity: Message, story: Story) -> None:
        """A message came into processing."""
        if story.key:
            self._claimed.append((identity, story))

    def check(self) -> None:
        """At the end of a step: no other messages of the keys of those that it claimed are in processing."""
        for identity, story in self._claimed:
            for other, earlier in self._others(identity, story):
                place = self._world.where.get(other)
                flies = is_flying(place) and self._flights.entered(identity)
                if flies and (self._flights.entered(other) or not _is_before(earlier, story)):
                    continue  # one receive takes several of a key, or one that is visible again before those in flight
                if place is not None and place.state == PROCESSING:
                    raise Violation(f"{identity[1]} and {other[1]}, of the same key, are in processing at once")

    def _others(self, identity: Message, story: Story) -> list[tuple[Message, Story]]:
        """Return the other messages of the key, in all partitions of the queue."""
        stories = self._world.stories.items()
        return [
            (other, one)
            for other, one in stories
            if other[0] == identity[0] and one.key == story.key and one is not story
        ]

    def next_step(self) -> None:
        """A step of the server begins."""
        self._turns, self._entered = self._turns + 10_000.0, 0
        self._claimed.clear()

    def takes_turn(self, story: Story, old: Place | None, new: Place) -> None:
        """A message is among the ready ones, or in another line. While it waits for its flow it has no turn."""
        if new.waits_for_flow:
            story.turn = story.turn_until = 0.0
            return
        # Those of one step are promoted in the order of their dues; of several flows any goes on first.
        if old is not None and (old.state in (DELAYED, PARKED) or old.waits_for_flow):
            story.turned_at = story.turned_at if story.turn else self._world.clock.now
            story.turn = story.turn or self._turns
            until = story.turn
        else:
            self._entered += old is None or old.state != DEAD or old.score != self._redriven
            self._redriven = old.score if old is not None and old.state == DEAD else -1.0
            until = self._turns + self._entered
            if new.is_away and story.key and old is not None and old.state == PROCESSING:
                raise Violation(f"a message with the key {story.key!r} comes back behind the others of its key")
            if old is None or not old.is_away:
                story.turn, story.turned_at, story.strayed = until, self._world.clock.now, None
        story.turn_until = 0.0 if new.is_away else until
        if new.is_away:
            story.strayed = (new.queue, new.line)

    def restarts(self, before: dict[Message, Place], saved_at: float) -> None:
        """The server has the state again that it had then; `before`: where messages were when it went."""
        where = self._world.where
        held = {(message, one.consumer) for message, one in before.items() if one.state == PROCESSING}
        self._undone |= {one for one in held if one[0] not in where or where[one[0]].consumer != one[1]}
        for message, story in self._world.stories.items():
            place = where.get(message)
            held_by, state = (place.consumer, place.state) if place else ("", "")
            is_new = state == DELAYED and story.turned_at >= saved_at
            waits = place is not None and place.waits_for_flow
            if is_new or waits or (state == PARKED and story.freed):  # its turn begins when it is ready again
                story.turn = story.turn_until = 0.0
            for run in story.runs:
                run.undone = run.undone or run.consumer != held_by


def turn_in_step(places: Sequence[Place] | None) -> tuple[float, str]:
    """The order of the messages that one step adds: dead letters as they died, those of flows as they were sent."""
    if not places:
        return 0.0, ""
    (one, *_) = places
    return one.score if one.state == DEAD else 0.0, one.line if one.waits_for_flow else ""


def _has_come_back(one: Story) -> bool:
    """Whether a message was handled, and a restart from an older state has brought it back: it has had its turn."""
    return any(run.outcome == "ack" and run.undone for run in one.runs)


def _is_before(one: Story, other: Story) -> bool:
    """Whether one message is certainly earlier than another one in the order of their key."""
    if one.strayed and other.strayed and one.strayed[0] == other.strayed[0]:  # they were taken home in their order
        return one.strayed < other.strayed
    return 0.0 < one.turn_until < other.turn
