"""Sees everything: what each step moved, who runs what; and says what must never happen."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reliq.model.element import BLANK, Envelope, Undecodable, decode_envelope
from reliq.model.keys import QueueKeys, owner_of
from reliq.model.settings import MAX_DELIVERIES
from reliq.observability.snapshot import GONE
from reliq.ops import schema
from tests.simulation.server import Contents

READY, PROCESSING, DELAYED, DEAD, PREPARED, NOWHERE = "ready", "processing", "delayed", "dead", "prepared", ""
MAX_FAILURES = 3  #: retries of the handlers

#: Which request may move a message from where to where: the arrows of reliq/lua/README.md.
ARROWS: dict[str, set[tuple[str, str]]] = {
    "push": {(NOWHERE, READY)},
    "enqueue": {(NOWHERE, READY), (NOWHERE, DELAYED), (READY, NOWHERE), (DELAYED, NOWHERE)},
    "publish": {(NOWHERE, READY), (NOWHERE, DELAYED)},
    "fire": {(NOWHERE, READY)},
    "prepare": {(NOWHERE, PREPARED)},
    "decide": {(PREPARED, READY), (PREPARED, DELAYED), (PREPARED, NOWHERE)},
    "ask": {(PREPARED, DEAD)},
    "claim": {(READY, PROCESSING)},
    "claim_limited": {(READY, PROCESSING), (READY, DELAYED)},
    "settle": {
        (READY, PROCESSING), (PROCESSING, NOWHERE), (PROCESSING, READY), (PROCESSING, DELAYED), (PROCESSING, DEAD),
        (READY, NOWHERE),
    },
    "newest": {(READY, PROCESSING), (PROCESSING, NOWHERE)},
    "promote": {(DELAYED, READY), (READY, NOWHERE)},
    "cancel": {(DELAYED, NOWHERE)},
    "sweep": {(DELAYED, NOWHERE), (READY, NOWHERE)},
    "purge": {(DELAYED, NOWHERE), (READY, NOWHERE)},
    "redrive": {(DEAD, READY), (DEAD, NOWHERE), (READY, NOWHERE)},
    "discard": {(DEAD, NOWHERE)},
    "reclaim_when_full": {(PROCESSING, READY), (PROCESSING, DEAD)},
    "EXEC": {(PROCESSING, READY), (PROCESSING, DEAD)},
    "BLMOVE": {(READY, PROCESSING)},
}  # fmt: skip

#: Those of messages that newer ones of their dedup_key replace.
REPLACED = {
    "enqueue": {(READY, NOWHERE), (DELAYED, NOWHERE)}, "promote": {(READY, NOWHERE), (DELAYED, NOWHERE)},
    "settle": {(READY, NOWHERE)}, "newest": {(PROCESSING, NOWHERE)}, "redrive": {(DEAD, NOWHERE), (READY, NOWHERE)},
}  # fmt: skip

Message = tuple[str, str]  #: queue and id


class Violation(AssertionError):
    """Something that must never happen. `history`: time, actor, what, and the moves of each step before it."""

    history: Sequence[tuple[float, str, str, list[str]]] = ()


@dataclass(slots=True)
class Place:
    """Where a message is: the state, and the key."""

    state: str
    consumer: str  #: of a message in processing
    element: bytes
    score: float


@dataclass(slots=True)
class Run:
    """One run of a handler."""

    process: Any
    consumer: str
    nonce: int
    began: float
    outcome: str = ""  #: empty: it has not ended
    undone: bool = False  #: the server has never seen the claim of this run: it was restarted from an older state


@dataclass(slots=True)
class Story:
    """What is known about one message from the outside."""

    sent_at: float = 0.0  #: at which its send was called
    delay: float = 0.0
    ttl: float | None = None
    key: str = ""
    dedup: tuple[str, float] | None = None  #: key and window
    replace: bool = False
    large: bool = False
    plan: tuple[str, ...] = ()
    takes: float = 0.02  #: seconds that its handler takes
    prepared: bool = False
    check: str = ""  #: what its check-back decides
    of_batch: tuple[Message, ...] = ()  #: the messages after which it comes
    status: str = "calling"  #: calling, answered, unknown, refused, duplicate
    entered_at: float | None = None
    gone: str = ""  #: how it left, empty: it has not
    lost: bool = False  #: by a restart from an older state
    due: float = 0.0
    turn: float = 0.0  #: in the order of its key
    tries: int = 0  #: first runs, marks of those that are redelivered, and charges of it while its holder held no other
    runs: list[Run] = field(default_factory=list)
    cancelled_at: float | None = None


class Observer:
    """Compares what the server has before and after each step."""

    def __init__(self, clock: Any, server: Any) -> None:
        self._clock = clock
        self._server = server
        self.where: dict[Message, Place] = {}
        self.stories: dict[Message, Story] = {}
        self.contents: Contents = {}
        self.limits: dict[str, dict[str, Any]] = defaultdict(dict)
        self.claims: dict[str, list[float]] = defaultdict(list)
        self.moves: list[str] = []  #: of the latest step, for a reader
        self.expected: set[Message] = set()  #: that reliq itself sends
        self.schedules: dict[tuple[str, str], Any] = {}
        self.cancels: set[tuple[str, str]] = set()  #: queue, and id or key, of all cancels that were called
        self.restarted = False
        self._restarted_at = 0.0
        self.disturbed = False  #: all processes are: the server was away or full
        self._placed: dict[str, list[tuple[Message, Place]]] = {}
        self._undone: set[tuple[Message, str]] = set()  #: which consumers' claims of which messages a restart undid
        self._held: Counter[str] = Counter()  #: messages that each process held before the latest step
        self._turns = 0.0  #: of the latest step
        self._entered = 0  #: messages that it has added
        self._dedup: dict[tuple[str, str], tuple[float, float, str]] = {}  #: when, until when, which message
        self._envelopes: dict[bytes, Envelope | None] = {}

    # --- what actors tell ---

    def sends(self, queue: str, identity: str, **facts: Any) -> None:
        """A send of this message is called."""
        self.stories[queue, identity] = Story(sent_at=self._clock.now, **facts)

    def answered(self, queue: str, identity: str, status: str, first: str = "") -> None:
        """A send was answered; `first`: of a duplicate, the message that took its place."""
        story = self.stories[queue, identity]
        story.status = status
        entered = story.entered_at is not None or story.lost
        if status == "answered" and not entered and self._replaced_at_once(queue, story):
            story.entered_at, story.gone, entered = self._clock.now, "replaced", True
        if status == "answered" and not entered and not self._was_lost(story):
            raise Violation(f"the send of {identity} was answered, and it is nowhere")
        if status == "refused" and entered:
            raise Violation(f"the send of {identity} was refused, and it was enqueued")
        if status == "duplicate":
            other = self.stories.get((queue, first))
            if entered:
                raise Violation(f"the send of {identity} was answered as a duplicate, and it was enqueued")
            if other is None or (other.entered_at is None and not self.restarted):
                raise Violation(f"{identity} is said to be a duplicate of {first}, which was never enqueued")
            entered_at = None if other.prepared else other.entered_at  # a prepared one's window begins with its commit
            if entered_at is not None and other.dedup and story.sent_at > entered_at + other.dedup[1] + 0.002:
                raise Violation(f"{identity} is said to be a duplicate of {first}, whose window was over")

    def _replaced_at_once(self, queue: str, story: Story) -> bool:
        """Whether a message of the same call took its place in the step in which it came."""
        others = (one for (name, _), one in self.stories.items() if name == queue and one.sent_at == story.sent_at)
        return story.replace and any(one.dedup == story.dedup and one.entered_at is not None for one in others)

    def _was_lost(self, story: Story) -> bool:
        return self.restarted_since(story.sent_at)

    def restarted_since(self, when: float) -> bool:
        """Whether the server was restarted from an older state since then."""
        return self.restarted and when <= self._restarted_at

    def starts(self, process: Any, consumer: str, message: Any) -> Run:
        """A handler begins."""
        identity = (message.queue, message.id)
        story, place = self.stories[identity], self.where.get(identity)
        run = Run(process, consumer, message._envelope.nonce, self._clock.now)
        name = f"{message.id} of {message.queue}"
        if story.gone and not self.restarted:
            raise Violation(f"{name} starts at {process.name} after it was {story.gone}")
        if story.cancelled_at is not None and not self.restarted:
            raise Violation(f"{name} starts after it was cancelled")
        holds = place is not None and place.state == PROCESSING and place.consumer == consumer
        if not holds and not self.disturbed:
            where = f"it is in {place.state} {place.consumer}" if place else "it is nowhere"
            raise Violation(f"{name} starts at {process.name}, which does not hold it: {where}")
        if self._clock.now + 0.001 < story.due:
            raise Violation(f"{name} starts {story.due - self._clock.now:.3f} s too early")
        for other in story.runs:
            if not other.outcome and other.process is not process and not self._excused(other.process):
                raise Violation(f"{name} starts at {process.name} while {other.process.name} runs it")
        run.undone = not holds and (identity, consumer) in self._undone
        if not run.undone:
            self._check_order(identity, story)
        story.runs.append(run)
        story.tries += not message.redelivered
        return run

    def _excused(self, process: Any) -> bool:
        return bool(process.disturbed or self.disturbed)

    def _check_order(self, identity: Message, story: Story) -> None:
        if not story.key or story.runs:
            return
        for other, earlier in self.stories.items():
            if other[0] != identity[0] or earlier.key != story.key or earlier is story:
                continue
            place = self.where.get(other)
            waits = place is not None and place.state in (READY, PROCESSING, DELAYED)
            if waits and earlier.turn and earlier.turn < story.turn:
                raise Violation(f"{identity[1]} starts before {other[1]}, which is earlier in the order of their key")

    def committed(self, queue: str, identity: str) -> None:
        """A commit was answered."""
        place = self.where.get((queue, identity))
        if place is not None and place.state == PREPARED and not self.restarted:
            raise Violation(f"{identity} was committed, and is still prepared")

    def cancelled(self, queue: str, identity: str) -> None:
        """A cancel was answered: it is gone and never runs."""
        story = self.stories[queue, identity]
        if (queue, identity) in self.where and not self.restarted:
            raise Violation(f"{identity} was cancelled, and is in {self.where[queue, identity].state}")
        story.cancelled_at = self._clock.now

    # --- what the server has ---

    def after(self, process: Any, cause: Iterable[str]) -> None:
        """A request was carried out: look, and compare."""
        self.moves = []
        self._turns, self._entered = self._turns + 10_000.0, 0
        found = self._server.contents()
        if found is None:
            return
        changed = [key for key in found.keys() | self.contents.keys() if found.get(key) != self.contents.get(key)]
        self.contents = found
        before: dict[Message, list[Place]] = defaultdict(list)
        after: dict[Message, list[Place]] = defaultdict(list)
        for key in changed:
            if ":lease:" in key or key.endswith(":counters"):
                continue
            for message, place in self._placed.pop(key, ()):
                before[message].append(place)
            if key in found:
                self._placed[key] = placed = self._read(key, found[key])
                for message, place in placed:
                    after[message].append(place)
        causes = list(cause)
        self._held = Counter(owner_of(one.consumer) for one in self.where.values() if one.state == PROCESSING)
        for message in sorted(before.keys() | after.keys()):
            self._compare(process, causes, message, before.get(message, []), after.get(message, []))
        self._check_books(changed)
        for queue, limits in self.limits.items():
            self._check_concurrency(queue, limits)

    def _read(self, key: str, items: list[bytes]) -> list[tuple[Message, Place]]:
        queue, _, rest = key.removeprefix("reliq:{").partition("}:")
        kind, _, tail = rest.partition(":")
        state = {"processing": PROCESSING, "delayed": DELAYED, "dead": DEAD, "half": PREPARED}.get(kind, READY)
        scored = state in (DELAYED, DEAD)
        found = []
        for place, item in enumerate(items[::2] if scored else items):
            if item == BLANK:
                continue
            element = item[32:] if kind == "waiting" else item
            score = float(items[2 * place + 1]) / 1000 if scored else 0.0
            envelope = self._envelope(element)
            consumer = tail if state == PROCESSING else ""
            found.append(((queue, envelope.id), Place(state, consumer, element, score)))
        return found

    def _envelope(self, element: bytes) -> Envelope:
        known = self._envelopes.get(element)
        if known is None:
            try:
                known = self._envelopes[element] = decode_envelope(element)
            except (Undecodable, ValueError) as error:
                raise Violation(f"{element!r} does not decode: {error}") from None
        return known

    def _compare(
        self, process: Any, causes: list[str], message: Message, before: list[Place], after: list[Place]
    ) -> None:
        queue, identity = message
        now = self.where.get(message)
        if len(after) > 1 or (after and not before and now is not None):
            raise Violation(f"{identity} is in two places of {queue}: {[one.state for one in (*before, *after)]}")
        story = self.stories.get(message) or self._tick(message, causes)
        if story is None:
            raise Violation(f"{identity} is in {queue}, and was never sent there")
        old, new = (before[0] if before else None), (after[0] if after else None)
        if new is None:
            self.where.pop(message, None)
        else:
            self.where[message] = new
        arrow = (old.state if old else NOWHERE, new.state if new else NOWHERE)
        if old is not None and new is not None and arrow[0] == arrow[1] and old.consumer == new.consumer:
            return
        self.moves.append(f"{identity}: {arrow[0] or '-'} -> {arrow[1] or '-'}")
        if not any(arrow in self._arrows(cause, story) for cause in causes):
            what = "is lost" if new is None else f"goes to {new.state}"
            raise Violation(f"{identity} {what} from {arrow[0] or 'nowhere'} by {', '.join(causes) or 'a read'}")
        self._note(process, causes, message, story, old, new)

    def _tick(self, message: Message, causes: list[str]) -> Story | None:
        """Return the story of a message that a schedule has just sent."""
        queue, identity = message
        if "fire" not in causes or (queue, identity.partition("@")[0]) not in self.schedules:
            return None
        story = self.stories[message] = Story(self._clock.now, status="answered")
        return story

    @staticmethod
    def _arrows(cause: str, story: Story) -> set[tuple[str, str]]:
        arrows = ARROWS.get(cause, set())
        return arrows if story.replace else arrows - REPLACED.get(cause, set())

    def _note(
        self, process: Any, causes: list[str], message: Message, story: Story, old: Place | None, new: Place | None
    ) -> None:
        now = self._clock.now
        if old is None:
            self._enters(message, story)
        elif old.state == PROCESSING and {"settle", "newest"} & set(causes):
            if owner_of(old.consumer) != process.owner:
                raise Violation(f"{process.name} settles {message[1]}, which {old.consumer} holds")
            self._settled(message, story, old, new)
        elif old.state == PROCESSING:
            self._reclaimed(message, old, new)
        elif old.state == PREPARED and new is not None and new.state != DEAD:
            self._check_window(message, story)
        if new is None:
            story.gone = "acked" if old is not None and old.state == PROCESSING else "removed"
            return
        if new.state == PROCESSING and "newest" not in causes:  # it has the place of one that was claimed
            self.claims[message[0]].append(now)
        if new.state == DELAYED:
            story.due = new.score
        if new.state == READY and (old is None or old.state in (DELAYED, DEAD, PREPARED)):
            if story.delay and (old is None or old.state == PREPARED):
                raise Violation(f"{message[1]} is ready without its delay of {story.delay} s")
            if old is not None and old.state == DELAYED and now + 0.001 < story.due:
                raise Violation(f"{message[1]} is ready {story.due - now:.3f} s too early")
            if old is not None and old.state == DELAYED:  # those of one step are promoted in the order of their dues
                story.turn = story.turn or self._turns
            else:
                self._entered += 1
                story.turn = self._turns + self._entered
            story.due = 0.0

    def _enters(self, message: Message, story: Story) -> None:
        queue, identity = message
        now = self._clock.now
        if story.gone:
            raise Violation(f"{identity} is in {queue} again, after it was {story.gone}")
        if story.status == "refused" or story.status == "duplicate":
            raise Violation(f"{identity} is in {queue}, and its send was answered as {story.status}")
        story.entered_at = now
        if story.delay:
            story.due = story.sent_at + story.delay
        if not story.prepared:
            self._check_window(message, story)
        for other in story.of_batch:
            place = self.where.get(other)
            if place is not None and place.state != DEAD and not self.restarted:
                raise Violation(f"{identity} comes at the end of its batch, and {other[1]} is in {place.state}")

    def _check_window(self, message: Message, story: Story) -> None:
        """A message is enqueued: none with its dedup_key was within the window."""
        (queue, identity), now = message, self._clock.now
        if story.dedup is not None and not story.replace:
            key, window = story.dedup
            before = self._dedup.get((queue, key))
            if before is not None and now < before[1] - 0.002:
                raise Violation(f"{identity} is enqueued within the window of {before[2]}, with the same dedup_key")
            self._dedup[queue, key] = (now, now + window, identity)

    def _settled(self, message: Message, story: Story, old: Place, new: Place | None) -> None:
        queue, identity = message
        nonce = self._envelope(old.element).nonce
        runs = [run for run in story.runs if run.nonce == nonce and run.consumer == old.consumer and run.outcome]
        handled = any(run.outcome == "ack" for run in runs)
        outcome = runs[-1].outcome if runs and not runs[-1].undone else ""
        went = new.state if new else NOWHERE
        reason = self._reason(new)
        told = not self.cancels.isdisjoint({(queue, identity), (queue, story.key)})
        if went == NOWHERE and not handled and not told and not story.replace:
            raise Violation(f"{identity} of {queue} was acked, and no run of it was successful: {outcome or 'none'}")
        if went != NOWHERE and outcome == "ack":
            raise Violation(f"{identity} of {queue} was handled, and goes to {went}")
        if went == DEAD:
            failures = self._envelope(new.element).failures if new else 0
            expected = {
                "rejected": outcome == "dead",
                "max_failures": outcome == "fail" and failures > MAX_FAILURES,
                "expired": story.ttl is not None and self._clock.now >= story.sent_at + story.ttl,
            }
            if not expected.get(reason, False):
                raise Violation(f"{identity} of {queue} is a dead letter ({reason}) after {outcome or 'no run'}")
        elif outcome == "dead":
            raise Violation(f"{identity} of {queue} was refused by its handler, and goes to {went or 'nowhere'}")

    def _reason(self, place: Place | None) -> str:
        if place is None or place.state != DEAD:
            return ""
        extra = self._envelope(place.element).extra
        return "" if extra is None else extra.reason

    def _reclaimed(self, message: Message, old: Place, new: Place | None) -> None:
        queue, identity = message
        lease = self.contents.get(QueueKeys(queue).lease(old.consumer))
        alive = [one for one in self.processes() if one.owner == owner_of(old.consumer)]
        if alive and not self._excused(alive[0]):
            raise Violation(f"{identity} of {queue} is taken from {alive[0].name}, which lives: lease {lease}")
        story, before = self.stories[message], self._envelope(old.element)
        charged = new is not None and self._envelope(new.element).deliveries > before.deliveries
        started = any(run.nonce == before.nonce and run.consumer == old.consumer for run in story.runs)
        if charged and not (before.redelivered or started) and self._held[owner_of(old.consumer)] == 1:
            story.tries += 1  # it was alone: only its holder could know that it did not run
        if new is not None and new.state == DEAD:
            envelope = self._envelope(new.element)
            most = self.limits[queue].get("max_deliveries", MAX_DELIVERIES)
            if self._reason(new) != "max_deliveries" or envelope.deliveries < most:
                raise Violation(f"{identity} of {queue} dies of a reclaim with {envelope.deliveries} deliveries")
            if story.tries < most:
                raise Violation(f"{identity} was charged {envelope.deliveries} times, and tried {story.tries} times")

    def processes(self) -> list[Any]:
        """Return the living processes; set by the simulation."""
        return []

    # --- books and limits ---

    def _check_books(self, changed: list[str]) -> None:
        queues = {key.removeprefix("reliq:{").partition("}:")[0] for key in changed}
        for queue in queues - {"@batches", "@several"}:
            missing = self.missing(queue)
            if missing:
                raise Violation(f"the books of {queue} do not balance: {missing} missing")

    def missing(self, queue: str) -> int:
        """Return how many messages the counters have that are nowhere."""
        raw = self.contents.get(QueueKeys(queue).counters, [])
        counters = {name.decode(): int(value) for name, value in zip(raw[::2], raw[1::2], strict=True)}
        here = sum(one[0] == queue for one in self.where)
        return counters.get(schema.Counter.ENQUEUED, 0) - sum(counters.get(name, 0) for name in GONE) - here

    def _check_concurrency(self, queue: str, limits: dict[str, Any]) -> None:
        most = limits.get("concurrency")
        if most is None:
            return
        held = sum(place.state == PROCESSING for (name, _), place in self.where.items() if name == queue)
        if held > most:
            raise Violation(f"{held} messages of {queue} are in processing, of at most {most}")

    def check_rate(self, queue: str) -> None:
        """At no time were more messages claimed than the rate allows."""
        rate = self.limits[queue].get("rate")
        if rate is None or self.restarted:
            return
        each, claims = 1.0 / int(rate.partition("/")[0]), self.claims[queue]
        burst = max(1, round(0.1 / each))
        for first, since in enumerate(claims):
            for last in range(first + burst, len(claims)):
                if last - first + 1 > burst + 1 + (claims[last] - since) / each:
                    seconds = claims[last] - since
                    raise Violation(f"{last - first + 1} messages of {queue} in {seconds:.3f} s are above {rate}")

    # --- faults of the server ---

    def restarts(self, saved_at: float) -> None:
        """The server has the state again that it had then."""
        self.restarted = self.disturbed = True
        self._restarted_at = self._clock.now
        self.contents = self._server.contents() or {}
        self._placed = {
            key: self._read(key, items)
            for key, items in self.contents.items()
            if ":lease:" not in key and not key.endswith(":counters")
        }
        held = {(message, one.consumer) for message, one in self.where.items() if one.state == PROCESSING}
        self.where = {message: place for placed in self._placed.values() for message, place in placed}
        self._undone |= {one for one in held if one[0] not in self.where or self.where[one[0]].consumer != one[1]}
        for message, story in self.stories.items():
            held_by = self.where[message].consumer if message in self.where else ""
            for run in story.runs:
                run.undone = run.undone or run.consumer != held_by
            if message in self.where:
                place = self.where[message]
                story.gone, story.cancelled_at = "", None
                story.due = place.score if place.state == DELAYED else 0.0
            elif story.entered_at is not None and story.entered_at >= saved_at:  # the server has never seen it
                story.lost, story.entered_at, story.gone = True, None, ""
            elif story.entered_at is not None and not story.gone:
                raise Violation(f"{message[1]} was there when the state was saved, and is not in it")
        self._dedup = {key: one for key, one in self._dedup.items() if one[0] < saved_at}
