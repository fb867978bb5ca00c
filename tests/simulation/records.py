"""Rules about durable handlers: what their steps, sleeps and waits may rely on; what givers of signals are told.

A step whose result was stored never runs again, and each run gets that result. A sleep lasts as long as was asked. A
message gets one value of a signal, in each run the same one: the one whose call was answered as taken.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from reliq.model.element import NO_EXTRA, Envelope
from reliq.model.keys import owner_of
from tests.simulation.stories import PARKED, PROCESSING, READY, Message, Place, Story, Violation
from tests.simulation.world import World

_EARLY = 0.002  #: seconds: clocks count ms


@dataclass
class Record:
    """What is known about the record of one message. Each entry has when it was made."""

    began: dict[str, list[float]] = field(default_factory=dict)  #: each call of the function of a step
    stored: dict[str, tuple[str, float]] = field(default_factory=dict)  #: results that a handler was given
    failed: dict[str, float] = field(default_factory=dict)  #: steps that have failed for good
    naps: dict[str, tuple[float, float]] = field(default_factory=dict)  #: until when it sleeps at least
    offered: dict[str, list[str]] = field(default_factory=dict)  #: values of a signal whose call has begun
    taken: dict[str, tuple[str, float]] = field(default_factory=dict)  #: of which the answer was that it is taken
    had: dict[str, tuple[str, float]] = field(default_factory=dict)  #: of which the answer was that it had one before
    got: dict[str, tuple[str | None, float]] = field(default_factory=dict)  #: what a wait has returned; None: timed out
    parked: dict[str, float] = field(default_factory=dict)  #: until when it waits for a signal at most
    revived_at: float = 0.0  #: when its message was redriven
    ended: tuple[str, float] | None = None  #: the partition that it has left, and when, if it has had signals


class Records:
    """The records of all messages."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._of: dict[Message, Record] = {}
        self._let_go: list[tuple[Message, Story, str]] = []  #: that rest since the latest step, with their partition
        self._too_late: set[tuple[Message, str]] = set()  #: signals that were given to messages that had ended

    def of(self, message: Message) -> Record:
        return self._of.setdefault(message, Record())

    # --- handlers ---

    def begins(self, message: Message, step: str, tries: float, number: int) -> int:
        """A run, by its number, calls the function of a step, at most so often; return how often that was."""
        record, now = self.of(message), self._world.clock.now
        runs = self._world.stories[message].runs
        # It may have been paused between its look at the record and the call, and robbed meanwhile.
        is_late = number < len(runs) and self._world.excused(runs[number - 1].process)
        if step in record.stored and not is_late:
            raise Violation(f"step {step} of {message[1]} runs again after its result was given to a handler")
        if step in record.failed and not is_late:
            raise Violation(f"step {step} of {message[1]} runs again after it has failed for good")
        calls = record.began.setdefault(step, [])
        calls.append(now)
        if len(calls) > tries and not self._world.restarted:
            raise Violation(f"step {step} of {message[1]}, which may begin {tries} times, begins {len(calls)} times")
        return len(calls)

    def returned(self, message: Message, step: str, value: str, number: int) -> None:
        """A step has returned a value to the handler of a run, given by its number."""
        if self._world.restarted_since(self._world.stories[message].runs[number - 1].began):
            return  # it may have been stored before the restart, which undid that
        record = self.of(message)
        before = record.stored.setdefault(step, (value, self._world.clock.now))[0]
        if value != before:
            raise Violation(f"step {step} of {message[1]} returns {value!r}, and has returned {before!r}")
        if not value.startswith(f"{step} ") or int(value.rpartition(" ")[2]) > len(record.began[step]):
            raise Violation(f"step {step} of {message[1]} returns {value!r}, of no call of its function")

    def failed(self, message: Message, step: str, *, once: bool) -> None:
        """A step has failed for good; one that runs `once` at most perhaps as a run was broken off before it."""
        record = self.of(message)
        if step in record.stored:
            raise Violation(f"step {step} of {message[1]} has failed after its result was given to a handler")
        runs = [run for run in self._world.stories[message].runs[:-1] if run.began >= record.revived_at]
        broken_off = once and any(not run.outcome for run in runs)
        if step not in record.began and not broken_off and not self._world.restarted:
            raise Violation(f"step {step} of {message[1]} has failed, and did not run since the redrive")
        record.failed.setdefault(step, self._world.clock.now)

    def slept(self, message: Message, name: str) -> None:
        """A handler has passed a sleep."""
        record, now = self.of(message), self._world.clock.now
        if name not in record.naps and not self._world.restarted:
            raise Violation(f"{message[1]} passes the sleep {name}, and was never delayed for it")
        if now + _EARLY < record.naps.get(name, (0.0, 0.0))[0]:
            raise Violation(f"{message[1]} passes the sleep {name} {record.naps[name][0] - now:.3f} s too early")

    def waits(self, message: Message, signal: str, timeout: float | None) -> None:
        """A handler asks for a signal."""
        record = self.of(message)
        record.parked.setdefault(signal, float("inf") if timeout is None else self._world.clock.now + timeout)

    def got(self, message: Message, signal: str, value: str | None) -> None:
        """A wait has returned a value, or None: its time was over."""
        record, now = self.of(message), self._world.clock.now
        before = record.got.setdefault(signal, (value, now))[0]
        if value != before:
            raise Violation(f"{message[1]} gets {value!r} as signal {signal}, and has got {before!r}")
        if value is None:
            if now + _EARLY < record.parked[signal]:
                raise Violation(f"{message[1]} waits {record.parked[signal] - now:.3f} s too short for {signal}")
        elif value not in record.offered.get(signal, ()):
            raise Violation(f"{message[1]} gets {value!r} as signal {signal}, which nobody gave")
        self._check_taken(message, signal)

    def _check_taken(self, message: Message, signal: str) -> None:
        record = self.of(message)
        if signal in record.taken and signal in record.got and record.taken[signal][0] != record.got[signal][0]:
            raise Violation(
                f"{message[1]} gets {record.got[signal][0]!r} as signal {signal}, and {record.taken[signal][0]!r} was "
                "answered as taken"
            )

    # --- signals ---

    def offers(self, message: Message, signal: str, value: str) -> None:
        """A signal is being given."""
        record = self._kept(message)
        record.offered.setdefault(signal, []).append(value)
        if record.ended is not None and not self._world.restarted:
            self._too_late.add((message, value))

    def answered(self, message: Message, signal: str, value: str, *, taken: bool) -> None:
        """A signal was answered: it is the first one, or there was one before."""
        record = self._kept(message)
        if not taken:
            if record.offered[signal] == [value] and not self._world.restarted:
                raise Violation(f"{message[1]} is said to have had signal {signal} before, which nobody gave")
            record.had.setdefault(signal, ("", self._world.clock.now))
            self._check_not_deaf(message)
            return
        if (message, value) in self._too_late:
            raise Violation(f"{message[1]} has ended after a signal, and takes signal {signal}")
        before = record.taken.setdefault(signal, (value, self._world.clock.now))[0]
        if before != value:
            raise Violation(f"{message[1]} has taken {value!r} as signal {signal}, and {before!r} before")
        self._check_taken(message, signal)
        self._check_not_deaf(message)

    def refused(self, message: Message, signal: str, value: str, why: str) -> None:
        """A signal was refused."""
        world, record = self._world, self.of(message)
        if signal in record.got and record.got[signal][0] == value and not world.restarted:
            raise Violation(f"{message[1]} has got {value!r} as signal {signal}, whose giver is told {why!r}")
        if why == "ended" and message in world.where and not world.restarted:
            raise Violation(f"{message[1]} is said to have ended, and is in {world.where[message].state}")
        if why == "late" and record.parked.get(signal, float("inf")) > world.clock.now + _EARLY:
            raise Violation(f"{message[1]} is said to have waited too long for {signal}")

    def _check_not_deaf(self, message: Message) -> None:
        """No message waits for a signal that it was given."""
        place, record = self._world.where.get(message), self.of(message)
        if place is not None and place.state == PARKED and place.line in record.taken.keys() | record.had.keys():
            raise Violation(f"{message[1]} is parked for {place.line}, which it was given")

    # --- moves ---

    def rests(self, process: Any, message: Message, story: Story, old: Place, new: Place) -> None:
        """A message left its consumer to come back later."""
        world, identity = self._world, message[1]
        before, after = world.envelope(old.element), world.envelope(new.element)
        if owner_of(old.consumer) != process.owner:
            raise Violation(f"{process.name} lets {identity} rest, which {old.consumer} holds")
        runs = [run for run in story.runs if run.nonce == before.nonce and run.consumer == old.consumer]
        run = runs[-1] if runs else None
        # A call that comes late may do again what a restart has undone.
        if run is None or (run.outcome and not run.overdue and not world.restarted_since(run.began)):
            raise Violation(f"{identity} rests, and its handler does not run: {run and run.outcome}")
        if (after.failures, after.deliveries) != (before.failures, 0) and not (
            (after.failures, after.deliveries) == (before.failures, before.deliveries)
        ):
            raise Violation(
                f"{identity} rests, and is charged: {after.failures} failures, {after.deliveries} deliveries"
            )
        run.outcome, story.rested = "rests", True
        asked = self._rest_asked_for(message, story, before, after)
        story.freed = asked is not None and asked[0].endswith("free") and not story.limit_key
        if story.freed:
            story.turn, story.turn_until, story.strayed = 0.0, 0.0, None
            self._let_go.append((message, story, old.queue))
        if new.state == PARKED:
            self._check_not_deaf(message)
        elif asked is not None and asked[0].startswith("sleep"):
            self.of(message).naps.setdefault(asked[1], (world.clock.now + asked[2], world.clock.now))

    def _rest_asked_for(
        self, message: Message, story: Story, before: Envelope, after: Envelope
    ) -> tuple[str, str, float] | None:
        """Return the act for which a message rests; None if a step has failed and is tried again later."""
        if (after.extra or NO_EXTRA).errors != (before.extra or NO_EXTRA).errors:
            return None
        rests = [one for one in story.script if not one[0].startswith("step")]
        return next((one for one in rests if not self._passed(message, one)), None)

    def next_step(self) -> None:
        """A step of the server begins."""
        self._let_go.clear()

    def check(self) -> None:
        """At the end of a step: a key that a message has let go has passed to the next one that waits for it."""
        where, stories = self._world.where.items(), self._world.stories
        for message, story, partition in self._let_go:
            others = [one for other, one in where if one.queue == partition and stories[other].key == story.key != ""]
            waits = any(one.state == READY and one.line and not (one.is_away or one.waits_for_flow) for one in others)
            if waits and not any(one.state == PROCESSING or (one.state == READY and not one.line) for one in others):
                raise Violation(f"{message[1]} has let its key go, and those that wait for it still wait")

    def _passed(self, message: Message, act: tuple[str, str, float]) -> bool:
        """Whether an act lets its message rest no more."""
        record, (what, name, _) = self.of(message), act
        if what == "emit":
            return True
        over: dict[str, Iterable[str]] = {"step": record.stored, "wait": record.got, "sleep": record.naps}
        return name in over[what.split(" ")[0]]

    def wakes(self, message: Message, story: Story, old: Place) -> None:
        """A parked message is ready again."""
        record, now = self.of(message), self._world.clock.now
        if not record.offered.get(old.line) and now + _EARLY < old.score:
            raise Violation(f"{message[1]} is ready, and nobody gave it {old.line}")

    def ends(self, message: Message, old: Place | None) -> None:
        """A message has left the queue: it takes no signals any more, if it has had some."""
        record = self.of(message)
        record.ended = (old.queue, self._world.clock.now) if old is not None and record.taken else None

    def _kept(self, message: Message) -> Record:
        """Return a record, without what went with the partition that the message has left."""
        record = self.of(message)
        if record.ended is not None and self._world.given_up[record.ended[0]] >= record.ended[1]:
            record.ended = None
            record.taken.clear()
        return record

    def revives(self, message: Message) -> None:
        """A dead letter was put back: steps that have failed run again."""
        record = self.of(message)
        for step in record.failed:
            record.began.pop(step, None)
        record.failed.clear()
        record.revived_at = self._world.clock.now

    # --- the end ---

    def restarts(self, saved_at: float) -> None:
        """The server has the state again that it had then."""
        for record in self._of.values():
            every: list[dict[str, Any]] = [record.stored, record.taken, record.had, record.got, record.naps]
            for known in every:
                for name in [name for name, one in known.items() if one[1] >= saved_at]:
                    del known[name]
            record.failed = {name: at for name, at in record.failed.items() if at < saved_at}

    def check_rest(
        self, partition: str, fields: dict[bytes, bytes], config: dict[bytes, bytes], early: list[bytes]
    ) -> None:
        """No record is left behind in a partition, but those of its dead letters and of signals that came early."""
        heads = {
            name: value
            for name, value in fields.items()
            if name.startswith(b"\n") and name.count(b"\n") == 1 and name != b"\n"
        }
        there = {identity for _, identity in self._world.there(partition)}
        expected = {one.lstrip(b"\n") for one in early}
        for name, value in fields.items():
            if not name.startswith(b"\n") or name.startswith(b"\n\n") or name == b"\n":
                continue
            identity = name.split(b"\n")[1].decode()
            head = heads.get(b"\n" + identity.encode())
            if head is None:
                raise Violation(f"{name!r} is left in {partition}, without its head")
            if head != b"ended" and identity not in there and identity.encode() not in expected:
                raise Violation(f"the record of {identity} is left in {partition}: {name!r} {value!r}")
        counted = int(config.get(b"recorded", 0))
        if counted != len(heads):
            raise Violation(f"{counted} records are counted in {partition}, and {len(heads)} are there")
        if left := [one for one in early if not one.startswith(b"\n")]:
            raise Violation(f"waits of {left} are left in {partition}")

    def waiting(self) -> list[tuple[Message, str]]:
        """Return the messages that wait for a signal for ever, each with that."""
        where = self._world.where.items()
        return [(one, place.line) for one, place in where if place.state == PARKED and place.score == float("inf")]
