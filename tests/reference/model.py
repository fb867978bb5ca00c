"""What a queue does: the specification, as a program without Redis, processes or time.

A `System` has queues, batches and schedules. Each method is one thing that happens; it changes the state as reliq must
change it, and raises `Impossible` for what must never happen. Tests do the same with reliq and with this, and compare.
What reliq may choose (which of several ready messages comes next, in which partition one lies) is told to the model,
which says whether it is allowed.

Beside it: `flows` (who waits for whom), `limits` (what a rate allows), `rules` (what holds at every moment and which
options go together), `moves` (which step of reliq makes which move between places).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reliq.contract.outcomes import REASONS
from reliq.contract.settings import SETTINGS
from tests.reference.flows import DEAD_LETTER, HANDLED, IS_BURIED, IS_SKIPPED, LOST, OPEN, REASON, Flow, Flows
from tests.reference.limits import Rates
from tests.reference.rules import Full, Impossible, sent_later

# --- places ---

#: A message is always in exactly one of these, or gone.
READY = "ready"  #: a consumer may claim it
DELAYED = "delayed"  #: not due yet
PROCESSING = "processing"  #: one consumer has it
DEAD = "dead"  #: a dead letter
PREPARED = "prepared"  #: invisible until its producer decides
PARKED = "parked"  #: waits for a signal
GONE = ""  #: not sent yet, or gone for good
IN_FLIGHT = "receivers"  #: the consumer of all that was received: each is in processing for a time of its own
#: A part of `ready`: others of its flow or of its key come first, and the step that lets the last go makes it ready.
WAITING = "waiting"


# --- outcomes ---


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a message leaves processing."""

    to: str  #: its next place
    counter: str
    fails: bool = False  #: whether it has one failure more
    forgives: bool = False  #: whether its failures and deliveries are 0 again


OUTCOMES: Mapping[str, Outcome] = {
    "ack": Outcome(GONE, "acked"),
    "repeated": Outcome(GONE, "acked"),  #: handled before, by `once`: it does not run
    "cancelled": Outcome(GONE, "cancelled"),  #: cancelled while its consumer had it
    "retry": Outcome(READY, "retried", fails=True),
    "retry later": Outcome(DELAYED, "retried", fails=True),
    "again": Outcome(READY, "requeued", forgives=True),
    "again later": Outcome(DELAYED, "requeued", forgives=True),
    "sleep": Outcome(DELAYED, "slept"), "wait": Outcome(PARKED, "parked"),
    "release": Outcome(READY, "released"),
    "release later": Outcome(DELAYED, "released"), "return": Outcome(READY, "returned"),
    **{reason: Outcome(DEAD, f"dead:{reason}", fails=reason in ("max_failures", "rejected", "invalid"))
       for reason in REASONS},
}  # fmt: skip


# --- messages ---


@dataclass(slots=True, eq=False)
class Message:
    """One message, and what becomes of it. Times are seconds."""

    id: str
    body: bytes = b""
    options: Mapping[str, Any] = field(default_factory=dict)
    batch: str = ""
    place: str = GONE
    sent_at: float = 0.0
    due: float = 0.0
    turn: int = 0  #: the order in which messages have come into the lines of their keys
    holds: bool = False  #: whether it holds its key: the others of the line wait for it
    consumer: str = ""
    failures: int = 0
    deliveries: int = 0  #: consumers that have vanished with it, as far as it is charged for them
    redelivered: bool = False
    reason: str = ""  #: why it is dead
    signals: dict[str, Any] = field(default_factory=dict)  #: that it was given, by name
    waits_for: str = ""  #: the signal, while it is parked
    output: list[Any] = field(default_factory=list)  #: what its handlers have emitted; of one that was handled it stays
    taken: int = 0  #: tokens of the rates, by this run
    told: bool = False  #: whether its consumer was told that it is cancelled: it is not put back any more

    @property
    def line(self) -> tuple[str, str] | None:
        """What decides when it may be ready: its kind and the key. Same texts of two kinds are two lines."""
        if self.options.get("replace"):
            return "latest", self.options["dedup_key"]
        for kind in ("key", "limit_key"):
            if self.options.get(kind):
                return kind, self.options[kind]
        return None

    @property
    def cost(self) -> int:
        """The tokens of the rates that a run takes."""
        return int(self.options.get("cost", 1))

    @property
    def delay(self) -> float:
        """How long it is delayed at first."""
        return self.options.get("debounce") or self.options.get("delay") or 0.0

    def is_late(self, now: float) -> bool:
        """Whether its time to live is over: it is not started any more."""
        ttl = self.options.get("ttl")
        return ttl is not None and now >= self.sent_at + ttl


# --- the queue ---


class Queue:
    """One queue. Partitions are no matter of the model: it is the same queue with any number of them."""

    def __init__(self, system: "System", name: str) -> None:
        self.name = name
        self._system = system
        self.settings: dict[str, Any] = {one.name: one.default for one in SETTINGS}
        self.messages: dict[str, Message] = {}  #: all that are in a place
        self.counters: Counter[str] = Counter()
        self.windows: dict[str, tuple[str, bytes, float]] = {}  #: dedup key: first id, its body, until when
        self.bursts: dict[str, float] = {}  #: dedup key of debounced messages: when the first one was sent
        self.results: dict[str, Any] = {}
        self.rates = Rates(self.settings)
        self.paused = False
        self.breaker_until = 0.0  #: until then the open breaker, or an operator, lets nothing be given out
        self._turns = 0

    def all(self, *places: str) -> list[Message]:
        """Return the messages in these places, in the order of their turns."""
        return sorted((one for one in self.messages.values() if one.place in places), key=lambda one: one.turn)

    def configure(self, **changes: Any) -> None:
        """Change the policy; None: back to the default."""
        defaults = {one.name: one.default for one in SETTINGS}
        self.settings |= {name: defaults[name] if value is None else value for name, value in changes.items()}

    # --- sends ---

    def send(self, *messages: Message) -> list[str]:
        """Enqueue all of a call or none; return for each message its id or, of a duplicate, that of the first one."""
        now, fresh, answers = self._system.now, list[Message](), list[str]()
        windows, conflicts = dict(self.windows), 0
        for message in messages:
            first = self._first_of(message, windows)
            answers.append(first[0] if first else message.id)
            if first is None:
                fresh.append(message)
            elif first[1] != message.body:
                conflicts += 1
        self._check_room(fresh)
        self.windows = windows
        self.counters["deduplicated"] += len(messages) - len(fresh)
        self.counters["dedup_conflicts"] += conflicts
        for message in fresh:
            self.counters["enqueued"] += 1
            message.sent_at = now
            self._count(message, sent=1)
            self._arrive(message)
        return answers

    def _first_of(self, message: Message, windows: dict[str, tuple[str, bytes, float]]) -> tuple[str, bytes] | None:
        """Return the message that this one would repeat; without one it is the first from now on."""
        key = message.options.get("dedup_key")
        if key is None or message.options.get("replace"):
            return None
        first = windows.get(key)
        if first is not None and self._system.now < first[2]:
            return first[:2]
        windows[key] = (message.id, message.body, self._system.now + message.options.get("window", 600.0))
        return None

    def _check_room(self, fresh: Sequence[Message], prepared: bool = False) -> None:
        """Raise Full if there is no room; what replaces another message needs none, and for none there always is."""
        most, added = self.settings["max_length"], 0
        lines, begun = {one.line for one in self.all(WAITING, DELAYED) if not one.holds}, set[object]()
        for one in fresh:
            added += not one.options.get("replace") or one.line not in lines
            waits = one.delay or one.line in begun or not self._is_free(one)
            lines = lines | {one.line} if waits else lines - {one.line}
            begun |= set() if waits else {one.line}
        there = len(self.all(READY, WAITING, DELAYED)) + (len(self.all(PREPARED)) if prepared else 0)
        if most is not None and added > 0 and there + added > most:
            self.counters["rejected"] += len(fresh)
            raise Full(self.name)

    def _arrive(self, message: Message) -> None:
        """Put a new message into its first place."""
        self.messages[message.id] = message
        if message.options.get("replace"):
            self._arrive_latest(message)
        elif message.delay:
            message.place, message.due = DELAYED, self._system.now + message.delay
        else:
            self._enter(message)

    def _arrive_latest(self, message: Message) -> None:
        """The latest wins: a message takes the place of the one of its dedup key that waits, or is debounced."""
        now, line = self._system.now, message.line
        older = [one for one in self.all(DELAYED) if one.line == line and not one.holds]
        for one in older:
            self._leave(one, "replaced")
        if not message.delay or any(one.line == line for one in self.all(WAITING)):
            self._enter(message)
            return
        since = self.bursts[message.options["dedup_key"]] if older else now
        self.bursts[message.options["dedup_key"]] = since
        message.place = DELAYED
        message.due = min(now + message.delay, since + message.options.get("at_most", float("inf")))

    def prepare(self, message: Message) -> None:
        """Store an invisible message; its room is taken now, because a commit is never refused."""
        self._check_room([message], prepared=True)
        self.messages[message.id] = message
        message.place, message.sent_at = PREPARED, self._system.now
        self.counters.update(["prepared", "enqueued"])

    def commit(self, identity: str) -> str:
        """Let a prepared message enter; return its id or, of a duplicate, that of the first one."""
        message = self._in(identity, PREPARED)
        self.counters["committed"] += 1
        first = self._first_of(message, self.windows)
        if first is not None:
            self.counters.update(["deduplicated", *["dedup_conflicts"] * (first[1] != message.body)])
            self._leave(message, "withdrawn")
            return first[0]
        self._arrive(message)
        return identity

    def roll_back(self, identity: str) -> None:
        self._leave(self._in(identity, PREPARED), "withdrawn")

    # --- lines: ordering keys, limit keys, and the latest of a dedup key ---

    def _slots(self, line: tuple[str, str]) -> int | None:
        """How many messages of a line may be ready or further at once; None: any number."""
        kind, key = line
        if kind != "limit_key":
            return 1
        if self.settings["key_concurrency"]:
            return int(self.settings["key_concurrency"])
        if self.settings["fair"] or self.settings["key_rate"]:
            return int(self.settings["weights"].get(key, 1))
        return None

    def _is_free(self, message: Message) -> bool:
        line = message.line
        slots = None if line is None else self._slots(line)
        return slots is None or sum(one.holds for one in self.messages.values() if one.line == line) < slots

    def _enter(self, message: Message) -> None:
        """A message is ready, or waits for others of its flow, then for those of its line."""
        self._turns += 1
        message.turn, message.consumer = self._turns, ""
        line, is_held_back = message.line, self._is_held_back(message)
        if not is_held_back and self._is_free(message):
            message.place, message.holds = READY, line is not None and self._slots(line) is not None
            return
        if line is not None and line[0] == "latest" and not is_held_back:
            for older in [one for one in self.all(WAITING) if one.line == line]:
                self._leave(older, "replaced")
        message.place = WAITING
        self.counters["ordered"] += 1

    def _return(self, message: Message, delay: float | None = None, *, next_one: bool = False) -> None:
        """A message comes back, after a delay or at once; `next_one`: it is taken next. While it is delayed it holds
        an ordering key, so that the order stays, and no slot of a limit key.
        """
        if delay is not None:
            message.place, message.consumer, message.due = DELAYED, "", self._system.now + delay
            if message.holds and message.line and message.line[0] == "limit_key":
                self._let_go(message)
        elif message.holds or next_one:
            self._turns += 1
            message.place, message.turn, message.consumer = READY, self._turns, ""
        else:
            self._enter(message)

    def _let_go(self, message: Message) -> None:
        """A message holds its key no more: the one that has waited longest is ready."""
        line, message.holds = message.line, False
        for following in [one for one in self.all(WAITING) if one.line == line and not self._is_held_back(one)]:
            if not self._is_free(following):
                break
            following.place, following.holds = READY, True

    def _leave(self, message: Message, counter: str) -> None:
        """A message is gone for good."""
        was_dead, message.place = message.place == DEAD, GONE
        del self.messages[message.id]
        self.counters[counter] += 1
        if not was_dead and counter != "withdrawn":
            self._count(message, **{"handled" if counter == "acked" else "cancelled": 1})
        if message.holds:
            self._let_go(message)
        self._became(message, HANDLED if counter == "acked" else LOST)

    def _is_held_back(self, message: Message) -> bool:
        return self._system.flows.waits(self.name, message.id)

    def _became(self, message: Message, what: str) -> None:
        """Others of its flow, which waited for a message that was handled, go on in the same step."""
        for queue, identity, end in self._system.flows.became(self.name, message.id, what):
            self._system.queue(queue).is_told(identity, end)

    def is_told(self, identity: str, end: str) -> None:
        """A message is told what those have come to that it waits for."""
        message = self.messages[identity]
        if end == IS_SKIPPED:
            self._leave(message, "cancelled")
        elif end == IS_BURIED:
            self._die(message, REASON)
        elif message.place == WAITING:  # a delayed one is not there yet
            self._enter(message)

    def _count(self, message: Message, **counts: int) -> None:
        if message.batch in self._system.batches:
            self._system.batches[message.batch].counts.update(counts)

    # --- claims and outcomes ---

    def obstacle(self, identity: str) -> str:
        """Return why a consumer may not claim this message now; empty if it may."""
        message = self.messages.get(identity)
        if message is None or message.place not in (READY, WAITING):
            return f"it is {message.place if message else 'gone'}"
        if message.place == WAITING and not self._replaces_ready(message):
            return "another message of its key comes first"
        if self.paused:
            return "the queue is paused"
        if self._system.now < self.breaker_until:
            return "the breaker is open"
        most = self.settings["concurrency"]
        if most is not None and sum(one.consumer != IN_FLIGHT for one in self.all(PROCESSING)) >= most:
            return f"{most} messages are in processing"
        has_tokens = self.rates.admit(message.line, [message.cost], self._system.now + self._system.slack)
        return "" if has_tokens else "a rate is used up"

    def _replaces_ready(self, message: Message) -> Message | None:
        """Return the ready message whose place this one takes when it is claimed, as the latest of its dedup key."""
        is_latest = message.line is not None and message.line[0] == "latest"
        return next((one for one in self.all(READY) if is_latest and one.line == message.line), None)

    def claim(self, identity: str, consumer: str) -> None:
        """A consumer has claimed a message. If that is late it dies, and is not handed out."""
        if why := self.obstacle(identity):
            raise Impossible(f"{identity} of {self.name} is claimed, and {why}")
        message = self.messages[identity]
        older = self._replaces_ready(message) if message.place == WAITING else None
        if older is not None:
            message.holds, older.holds = True, False
            self._leave(older, "replaced")
        message.place, message.consumer, message.taken = PROCESSING, consumer, message.cost
        self.rates.spend(message.line, message.cost, self._system.now)
        self.counters["claimed"] += 1
        message.deliveries += consumer == IN_FLIGHT
        is_limited = message.line is not None and message.line[0] == "limit_key"
        if message.holds and is_limited and not self.settings["key_concurrency"]:
            self._let_go(message)

    def charge(self, identity: str, actual: int) -> None:
        """A run says what it has cost so far, in place of the cost of its message and of what it said before."""
        message = self._in(identity, PROCESSING)
        self.rates.spend(message.line, actual - message.taken, self._system.now)
        message.taken = actual

    def put_off(self, identity: str) -> None:
        """A claim has found that the rate of the message's key is used up: it is delayed, and keeps its place."""
        message = self._in(identity, READY)
        if not (message.line and self.settings["key_rate"]):
            raise Impossible(f"{identity} of {self.name} is put off, and its key has no rate")
        message.place = DELAYED

    def stand_in_line(self, identity: str) -> None:
        """A claim has found that a message that was released has no slot of its limit key any more."""
        message = self._in(identity, READY)
        if message.holds or self._is_free(message):
            raise Impossible(f"{identity} of {self.name} waits, and its key is free")
        message.place = WAITING
        self.counters["ordered"] += 1

    def settle(self, identity: str, outcome: str, *, delay: float = 0.0, result: Any = None) -> None:
        """A consumer has settled a message."""
        message = self._in(identity, PROCESSING)
        how = OUTCOMES["cancelled" if message.told and OUTCOMES[outcome].to in (READY, DELAYED) else outcome]
        if outcome == "expired" and not message.is_late(self._system.now):
            raise Impossible(f"{identity} of {self.name} has expired, and its time is not over")
        self.charge(identity, 0 if outcome == "expired" else message.taken)  # it has not started
        message.failures = 0 if how.forgives else message.failures + how.fails
        message.deliveries = 0 if how.forgives else message.deliveries
        if result is not None:
            self.results[identity] = result
        if how.to == GONE:
            self._leave(message, how.counter)
        elif how.to == DEAD:
            self._die(message, outcome)
        else:
            self.counters[how.counter] += 1
            after = {DELAYED: delay, PARKED: 0.0}.get(how.to)
            self._return(message, after, next_one=outcome in ("release", "return"))
            message.place = PARKED if how.to == PARKED else message.place  # its key stays held

    def _die(self, message: Message, reason: str) -> None:
        message.place, message.reason, message.consumer, message.due = DEAD, reason, "", self._system.now
        self.counters["dead_lettered"] += 1
        self.counters[f"dead:{reason}"] += 1
        self._count(message, dead=1)
        if message.holds:
            self._let_go(message)
        self._became(message, DEAD_LETTER)

    def vanish(self, consumer: str, charged: str = "") -> None:
        """A consumer is gone: all it had is taken back. One message may be charged for that, and may die of it."""
        for message in [one for one in self.all(PROCESSING) if one.consumer == consumer]:
            message.deliveries += message.id == charged
            message.redelivered = True
            if message.id == charged and message.deliveries >= self.settings["max_deliveries"]:
                self._die(message, "max_deliveries")
            else:
                self.counters["reclaimed"] += 1
                self._return(message, next_one=True)

    def emit(self, identity: str, chunk: Any) -> None:
        self._in(identity, PROCESSING).output.append(chunk)

    def wait(self, identity: str, signal: str) -> bool:
        """A handler waits for a signal; return whether it is there, and the handler goes on."""
        message = self._in(identity, PROCESSING)
        if signal not in message.signals:
            message.waits_for = signal
            self.settle(identity, "wait")
        return signal in message.signals

    def signal(self, identity: str, name: str, value: Any) -> bool:
        """Give a signal; the first value of a name counts. Return whether it was this one."""
        message = self.messages[identity]
        if message.place in (GONE, DEAD) or name in message.signals:
            return False
        message.signals[name] = value
        self.counters["signalled"] += 1
        if message.place == PARKED and message.waits_for == name:
            self._return(message)
        return True

    def promote(self, order: Sequence[str] = ()) -> None:
        """Delayed messages that are due become ready, in the order of their times; `order`: of those of one ms."""
        places = {identity: place for place, identity in enumerate(order)}
        for message in sorted(self.all(DELAYED), key=lambda one: (one.due, places.get(one.id, 0))):
            if message.due <= self._system.now and message.place == DELAYED:
                self.counters["promoted"] += 1
                self._return(message)

    # --- operators ---

    def cancel(self, identity: str) -> str:
        """Cancel a message, wherever it is; return what became of the call."""
        message = self.messages.get(identity)
        if message is None:
            return "unknown"
        if message.place in (DEAD, PROCESSING) and message.consumer != IN_FLIGHT:
            message.told = message.place == PROCESSING
            return "told" if message.told else "done"
        self._leave(message, "withdrawn" if message.place == PREPARED else "cancelled")
        return "cancelled"

    def purge(self) -> int:
        """Remove all that is ready, delayed, parked or prepared."""
        for message in (some := self.all(WAITING) + self.all(READY, DELAYED, PARKED, PREPARED)):
            self._leave(message, "purged")
        return len(some)

    def redrive(self, *identities: str) -> None:
        """Put dead letters back, as if they were new; none where a newer message of the same dedup key is there."""
        revived: set[str] = set()
        for message in (self._in(one, DEAD) for one in identities):
            newest = self._newest(message.line)
            if newest and newest.id not in revived and not sent_later(message.id, newest.id):
                self._leave(message, "replaced")
                continue
            revived.add(message.id)
            self.counters["redriven"] += 1
            self._count(message, dead=-1)
            message.failures, message.deliveries, message.redelivered, message.reason = 0, 0, False, ""
            message.options = {**message.options, "ttl": None}
            self._became(message, OPEN)
            self._enter(message)

    def _newest(self, line: tuple[str, str] | None) -> Message | None:
        """Return the message of a dedup key that is to run last; dead, debounced and prepared ones do not count."""
        there = [one for one in self.messages.values() if one.line == line and (one.holds or one.place == WAITING)]
        return min(there, key=lambda one: one.holds) if there and line and line[0] == "latest" else None

    def discard(self, *identities: str, counter: str = "purged_dead") -> None:
        """Remove dead letters; `counter`: `trimmed` where the retention does it."""
        for one in identities:
            self._leave(self._in(one, DEAD), counter)

    def _in(self, identity: str, place: str) -> Message:
        message = self.messages.get(identity)
        if message is None or message.place != place:
            raise Impossible(f"{identity} of {self.name} is {message.place if message else 'gone'}, not {place}")
        return message


# --- batches, flows and schedules ---


@dataclass(slots=True)
class Batch:
    """Messages that are counted together; one message follows when all of them have ended."""

    id: str
    parent: str = ""
    ends: Mapping[str, tuple[str, Message]] = field(default_factory=dict)  #: "done", "dead": queue and message
    state: str = "open"
    counts: Counter[str] = field(default_factory=Counter)  #: sent, handled, dead, cancelled

    @property
    def open(self) -> int:
        """How many of its messages have not ended."""
        return self.counts["sent"] - sum(self.counts[one] for one in ("handled", "dead", "cancelled"))


class System:
    """All queues of one Redis."""

    def __init__(self) -> None:
        self.now = 0.0
        self.queues: dict[str, Queue] = {}
        self.batches: dict[str, Batch] = {}  #: those that have not ended
        self.flows = Flows()
        self.slack = 0.0  #: seconds by which `now` may be behind the clock of what the model is compared with

    def queue(self, name: str) -> Queue:
        if name not in self.queues:
            self.queues[name] = Queue(self, name)
        return self.queues[name]

    def passes(self, seconds: float) -> None:
        """Time passes. What is due by then happens when a monitor does it."""
        self.now += seconds

    def publish(self, queues: Iterable[str], message: Message) -> None:
        """Enqueue a copy into each queue, into all or into none."""
        for name in queues:
            self.queue(name).send(Message(message.id, message.body, message.options))

    def send_flow(self, flow: Flow, messages: Sequence[Message]) -> None:
        """Enqueue the messages of a flow. All wait until it is there; then those go on that wait for no others."""
        self.flows.add(flow)
        for member, message in zip(flow.members, messages, strict=True):
            queue = self.queue(member.queue)
            queue.send(message)
            has_waited = not member.after and message.place != DELAYED
            queue.counters["ordered"] += 1 + has_waited

    def tell_flows(self) -> None:
        """A monitor tells members of flows what has become of others, as far as that was not done at once."""
        for queue, identity, end in self.flows.tell():
            self.queue(queue).is_told(identity, end)

    def delete(self, queue: str) -> None:
        """Delete a queue with all it has. Its members of flows are lost; messages of batches count as cancelled."""
        for message in self.queues.pop(queue).messages.values():
            if message.place != DEAD and message.batch in self.batches:
                self.batches[message.batch].counts["cancelled"] += 1
        self.flows.lose(queue)

    def tick(self, queue: str, message: Message, missed: int = 0) -> None:
        """A schedule is due. A tick is one message, however many monitors look; `missed`: ticks without one."""
        self.queue(queue).send(message)
        self.queue(queue).counters.update({"scheduled": 1, "ticks_missed": missed})

    def end_batches(self) -> list[str]:
        """End the batches that are closed, with all messages and inner batches ended; return which."""
        ended = []
        for batch in list(self.batches.values()):
            inner = any(one.parent == batch.id for one in self.batches.values())
            if batch.state == "open" or batch.open or inner:
                continue
            parent = self.batches.get(batch.parent)
            if parent is not None:
                parent.counts.update(batch.counts)
            end = batch.ends.get("dead") if batch.counts["dead"] and "dead" in batch.ends else batch.ends.get("done")
            if end is not None and batch.state == "closed":
                self.queue(end[0]).send(end[1])
            del self.batches[batch.id]
            ended.append(batch.id)
        return ended
