"""One row as a story: configure, send, act, take, settle, go on until nothing is left; compared after each step."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import reliq
from reliq.errors import QueueFull
from reliq.features.flows.telling import mend
from reliq.ops.coming import REMEMBERED
from reliq.protocol.deletion import delete
from tests.combine.compare import differences
from tests.combine.entries import HOUR, OPTIONS, SETTINGS, TEXT, UNSET
from tests.combine.keys import left_behind
from tests.combine.rows import Row
from tests.combine.seen import let_pass, look
from tests.combine.senders import QUEUE, SENDERS, Plan, Sending
from tests.combine.takers import RESTS, SIGNAL, Lease, Taker
from tests.reference import flows, model
from tests.reference.rules import Full, Impossible
from tests.support.workers import eventually

_ROUNDS = 30  #: after which a queue that is not empty is stuck
_LATE = 10  #: the round by which almost every queue is empty
_TTL_MICROS = 2000
_CLOCKS = 60.0  #: seconds of its time that a story takes at most
FAILS = "fails"  #: the body of a message that is rejected
#: By deed: what the run has cost; less than a minute does not pay for the first.
CHARGES: Mapping[str, int] = {"charges more": 75_000, "charges less": 0}
#: By deed: the body of the last message of the flow.
LASTS: Mapping[str, str] = {"opens a flow": "last", "opens a flow that fails": FAILS}
_LARGE = 3000  #: bytes of a body that is apart


class Difference(AssertionError):
    """reliq and the model have come to different states."""


class Story:
    """A row, told to reliq and to the model."""

    def __init__(self, row: Row, client: Any, sending: Sending, taker: Taker) -> None:
        self.row = row
        self.told: list[str] = []  #: the steps so far, for a reader
        self._client = client
        self._to = sending
        self._taker = taker
        self._resized = row["way"] == "schedule" and row["partitions"] > 1  # ticks come in the first partition
        self._first = ""  #: the id of the message that gets the outcome of the row
        self._settled_first = False
        self._stood_in_line = False
        self._acted = False
        self._opened: dict[str, list[str]] = {}  #: by flow: the messages of those that handlers have opened
        self._has_flows = row["way"] == "flow" or row["deed"].startswith("opens")
        knows_when = row["partitions"] == 1 and row["act"] != "more partitions"  # partitions have shares of a rate
        sending.system.slack = _CLOCKS if knows_when else math.inf

    @property
    def _queue(self) -> model.Queue:
        return self._to.system.queue(QUEUE)

    @property
    def _real(self) -> reliq.Queue:
        return self._to.app.queue(QUEUE)

    def tell(self) -> None:
        self._configure()
        self._send()
        if self.row["moment"] == "before":
            self._act()
        self._go_on()
        self._end_act()
        self._go_on()
        self._finish()

    # --- steps ---

    def _step(self, text: str) -> None:
        """A step was done: note it, and compare."""
        self.told.append(text)
        if self._taker.settles_later:
            with suppress(AssertionError):
                eventually(self._agrees, timeout=5)
        if found := self._differences():
            raise Difference("\n".join(found))

    def _agrees(self) -> bool:
        try:
            return not self._differences()
        except Impossible:  # what was acked is not settled yet, and the model is ahead
            return False

    def _differences(self) -> list[str]:
        if self._has_flows:
            self._to.monitor.tell_flows()
            self._to.system.tell_flows()
        seen = look(self._client)
        self._note_put_off(seen.queues)
        self._note_handed_back(seen.queues)
        self._note_stood_in_line(seen.queues)
        return differences(self._to.system, seen, self._resized)

    def _note_put_off(self, queues: Mapping[str, Any]) -> None:
        """A claim may find that the rate of a key is used up; the model cannot know when."""
        for one in self._queue.all(model.READY) if QUEUE in queues else ():
            places = [place for place, _ in queues[QUEUE].places.get(one.id, [])]
            if places == [model.DELAYED]:
                self._queue.put_off(one.id)
            elif places == [model.WAITING] and not one.holds and not self._resized:
                self._queue.stand_in_line(one.id)

    def _note_stood_in_line(self, queues: Mapping[str, Any]) -> None:
        """In one claim, a released message may be refused, and be ready again as the next of its key is given out."""
        ordered = queues[QUEUE].counters["ordered"] if QUEUE in queues else 0
        if self.row["outcome"] in ("release", "vanish") and self.row["limit_key"] != UNSET and not self._stood_in_line:
            self._stood_in_line = ordered == self._queue.counters["ordered"] + 1
            self._queue.counters["ordered"] += self._stood_in_line

    def _note_handed_back(self, queues: Mapping[str, Any]) -> None:
        """A worker that waits may be given a message that a limit forbids, and hands it back. See WorkerStory."""

    def _configure(self) -> None:
        changes = {name: self.row[name] for name in SETTINGS if self.row[name] != UNSET}
        if self.row["partitions"] > 1:
            changes["partitions"] = self.row["partitions"]
        if changes:
            self._real.configure(**changes)
        self._queue.configure(**changes)
        self._step("configure")

    def _plan(self) -> Plan:
        options = {name: self.row[name] for name in OPTIONS if self.row[name] != UNSET}
        if self.row["outcome"] == "expired":
            options["ttl"] = 0.001
        bodies = [(one * (_LARGE if self.row["size"] == "large" else 1)).encode() for one in "abc"]
        second = {name: value for name, value in options.items() if name != "id"}
        return [(bodies[0], options), (bodies[1], second), (bodies[2], {})]

    def _send(self) -> None:
        with suppress(QueueFull, Full):
            SENDERS[self.row["way"]](self._plan(), self._to)
        if self.row["outcome"] == "expired":
            self._to.system.passes(1.0)
            sent = self._client.time()
            eventually(lambda: self._client.time() > (sent[0], sent[1] + _TTL_MICROS))
        ids = [one for one in self._queue.messages if not self._to.system.flows.waits(QUEUE, one)]
        self._first = ids[0] if ids else ""
        self._step(f"send three messages: {self.row['way']}")

    def _act(self) -> None:
        self._acted = True
        _ACTS[self.row["act"]](self)
        self._step(self.row["act"])

    # --- acts of an operator ---

    def cancel(self) -> None:
        for identity in list(self._queue.messages)[:1]:
            answer = self._real.cancel(identity).value
            assert answer == self._queue.cancel(identity), answer
        self._learn()

    def cancel_key(self) -> None:
        self._real.cancel_many(key=TEXT)
        there = self._queue.all(model.WAITING)
        there += self._queue.all(model.READY, model.DELAYED, model.PARKED, model.PROCESSING)
        for one in there:
            if TEXT in (one.options.get("key"), one.options.get("limit_key")) and one.id in self._queue.messages:
                self._queue.cancel(one.id)
        self._learn()

    def _learn(self) -> None:
        """The consumer of cancelled messages is told, unless its protocol has no word for it."""
        if not self._taker.learn():
            for one in self._queue.messages.values():
                one.told = False

    def pause(self) -> None:
        self._real.pause()
        self._queue.paused = True

    def purge(self) -> None:
        assert self._real.purge() == self._queue.purge()

    def delete(self) -> None:
        self._taker.leave()
        self._to.app.store.run(delete(QUEUE, force=True))
        self._to.system.delete(QUEUE)
        for flow in self._to.app.flows():  # a monitor looks once a minute
            self._to.app.store.run(mend(flow.id))

    def resize(self, count: int) -> None:
        self._resized = True
        self._real.configure(partitions=count)
        self._queue.configure(partitions=count)

    def open_breaker(self) -> None:
        self._real.open_breaker("1h")
        self._queue.breaker_until = self._to.system.now + HOUR

    def redrive(self) -> None:
        letters = sorted(self._queue.all(model.DEAD), key=lambda one: one.due)
        self._real.dead.redrive()
        self._queue.redrive(*(one.id for one in letters))

    def nothing(self) -> None:
        pass

    def _end_act(self) -> None:
        """What was stopped goes on."""
        if self._queue.paused:
            self._real.resume()
            self._queue.paused = False
        if self._to.system.now < self._queue.breaker_until:
            self._real.close_breaker()
            self._queue.breaker_until = 0.0
        if self.row["act"] == "redrive":
            self.redrive()
        self._step("go on")

    # --- taking ---

    def _go_on(self) -> None:
        """Take and settle until nothing comes; let time pass, and the monitor work, until nothing waits."""
        for turn in range(_ROUNDS):
            if turn == _LATE and (self.row["partitions"] > 1 or self.row["act"] == "more partitions"):
                until = time.monotonic() + 3  # the HTTP service trusts a layout for 2 s
                while time.monotonic() < until and not self._take():
                    pass
            while self._take():
                pass
            before = len(self._queue.messages)
            self._pass()
            stopped = self._queue.paused or self._to.system.now < self._queue.breaker_until
            there = self._queue.all(model.READY, model.WAITING, model.DELAYED, model.PROCESSING)
            waits = [one for one in there if not self._to.system.flows.stands_still(QUEUE, one.id)]
            if not waits or (stopped and before == len(self._queue.messages)):
                return
        raise Difference(f"stuck: {[(one.id, one.place) for one in waits]}")

    def _take(self) -> bool:
        taken = self._taker.take()
        self._die_late(taken)  # a face may claim again in their place
        for identity in taken:
            self._note_claim(identity, self._taker.name)
        held = [one for one in taken if one in self._queue.messages]
        self._step(f"take {held}")
        if self._first in held and self.row["deed"] != UNSET:
            self._do()
        if held and self.row["moment"] == "held" and not self._acted:
            self._act()
        for identity in held:
            self._settle(identity)
        return bool(taken)

    def _do(self) -> None:
        """The first message is held: charge it, or open a flow for it."""
        deed = self.row["deed"]
        if deed in CHARGES:
            self._taker.charge(self._first, CHARGES[deed])
            self._queue.charge(self._first, CHARGES[deed])
        else:
            self._note_opened(*self._taker.open_flow(self._first, LASTS[deed]))
        self._step(deed)

    def _note_opened(self, flow: str, ids: list[str]) -> None:
        """The handler of the first message has opened a flow, perhaps in an earlier run."""
        if flow in self._opened:
            assert self._opened[flow] == ids
            return
        self._opened[flow] = ids
        members = [flows.Member(QUEUE, ids[0]), flows.Member(QUEUE, ids[1], (0,))]
        opened = flows.Flow(members, flow, (QUEUE, self._first))
        self._to.system.send_flow(opened, [model.Message(one) for one in ids])
        if self.row["partitions"] > 1:  # who does not know them offers messages first to a home that refuses them
            counters = self._queue.counters
            counters["ordered"] = max(counters["ordered"], look(self._client).queues[QUEUE].counters["ordered"])

    def _fails(self, identity: str) -> bool:
        """Whether a message is the last one of a flow that fails."""
        return self.row["deed"] in LASTS and LASTS[self.row["deed"]] == FAILS and self._is_last(identity)

    def _is_last(self, identity: str) -> bool:
        return any(identity == ids[-1] for ids in self._opened.values())

    def _note_claim(self, identity: str, consumer: str) -> None:
        try:
            self._queue.claim(identity, consumer)
        except Impossible as why:
            raise Difference(str(why)) from None

    def _die_late(self, taken: list[str]) -> None:
        """Messages that are late, cancelled, or were received often enough, end as they are claimed."""
        there = look(self._client).queues.get(QUEUE)
        places = {one: [place for place, _ in found] for one, found in there.places.items()} if there else {}
        while ending := [one for one in self._queue.all(model.READY, model.WAITING) if self._ends(one, places, taken)]:
            reason = self._reason(ending[0])
            self._note_claim(ending[0].id, "w")
            self._queue.settle(ending[0].id, reason)

    def _ends(self, message: model.Message, places: Mapping[str, list[str]], taken: list[str]) -> bool:
        reason = self._reason(message)
        ended = places.get(message.id, []) == ([] if reason == "cancelled" else [model.DEAD])
        return bool(reason and ended and message.id not in taken) and not self._queue.obstacle(message.id)

    def _reason(self, message: model.Message) -> str:
        """Why a claim finds that a message has ended; empty if it may live."""
        if message.is_late(self._to.system.now):
            return "expired"
        if message.told and message.redelivered:  # its consumer has died
            return "cancelled"
        is_worn = self._taker.name == model.IN_FLIGHT and self.row["outcome"] == "max_deliveries"
        return "max_deliveries" if is_worn and message.deliveries else ""

    def _settle(self, identity: str) -> None:
        message = self._queue.messages.get(identity)
        if message is None or message.place != model.PROCESSING:  # an act was faster
            return
        outcome = self.row["outcome"] if identity == self._first and not self._settled_first else "ack"
        self._settled_first |= identity == self._first
        if outcome == "expired":
            outcome = "ack"
        if self._fails(identity):
            outcome = "rejected"
        if outcome == "vanish":
            self._vanish()
            return
        self._taker.settle(identity, outcome)
        if isinstance(self._taker, Lease) and outcome not in RESTS:
            is_deleted = message.told and model.OUTCOMES[outcome].to in (model.READY, model.DELAYED)
            assert self._taker.code == ("cancelled" if is_deleted else "done"), (outcome, self._taker.code)
        is_received = self._taker.name == model.IN_FLIGHT and outcome != "ack"
        self._note_end(identity, "return" if is_received else outcome)
        self._step(f"{outcome} {identity}")

    def _vanish(self) -> None:
        held = [one.id for one in self._queue.all(model.PROCESSING)]
        self._taker.vanish()
        for name in list(self._client.scan_iter("*:lease:*")):
            self._client.set(name, 1)
        self._to.monitor.scan()
        self._to.monitor.scan()
        places = look(self._client).queues[QUEUE].places
        charged = [one for one in held for _, real in places.get(one, []) if real.deliveries]
        self._queue.vanish("w", charged[0] if charged else "")
        self._step(f"vanish with {held}")

    def _pass(self) -> None:
        """Time passes, and a monitor does all its duties."""
        self._signal()
        self._taker.leave()  # it would wait for the end of a limit as it was told
        seconds = 2 * HOUR
        let_pass(self._client, seconds)
        self._to.system.passes(seconds)
        self._to.monitor.look()
        self._to.monitor.tend_partitions()
        there = look(self._client).queues.get(QUEUE)
        self._to.monitor.promote()
        self._queue.promote([*there.places] if there else [])
        self._step("two hours later")

    def _signal(self) -> None:
        """Give the signal that messages wait for."""
        for one in self._queue.all(model.PARKED):
            assert self._real.signal(one.id, SIGNAL)
            self._queue.signal(one.id, SIGNAL, None)
            self._step(f"signal {one.id}")

    def _note_end(self, identity: str, outcome: str) -> None:
        """A message was settled; a wait needs the name of its signal."""
        if outcome == "wait":
            self._queue.wait(identity, SIGNAL)
        else:
            self._queue.settle(identity, outcome, delay=60.0)

    # --- the end ---

    def _finish(self) -> None:
        while letters := [one.id for one in self._queue.all(model.DEAD)]:
            self._real.dead.purge(all=True)
            self._queue.discard(*letters)
            self._step("purge the dead letters")
            if self._has_flows:  # of which others were behind a dead letter
                self._go_on()
        self._taker.leave()
        for _ in range(3):
            self._to.monitor.scan()
            self._to.monitor.end_batches()
        self._to.system.end_batches()
        self._to.system.end_batches()
        self._step("end the batches")
        let_pass(self._client, REMEMBERED)
        self._to.monitor.end_waits()
        self._to.app.queue("ends").purge()
        self._to.system.queue("ends").purge()
        self._to.monitor.look()
        self._to.monitor.tidy()
        self._step("tidy")
        limited = any(self.row[name] != UNSET for name in ("key_rate", "fair", "key_concurrency"))
        open_flows = {one.id for one in self._to.system.flows.open}
        if found := list(left_behind(look(self._client), set(self._to.system.batches), open_flows, limited)):
            raise Difference("\n".join(found))


_ACTS: Mapping[str, Callable[[Story], None]] = {
    "nothing": Story.nothing, "cancel": Story.cancel, "cancel of a key": Story.cancel_key, "pause": Story.pause,
    "purge": Story.purge, "delete": Story.delete, "more partitions": lambda story: story.resize(6),
    "fewer partitions": lambda story: story.resize(1 if story.row["partitions"] == 1 else 2),
    "open the breaker": Story.open_breaker, "redrive": Story.redrive,
}  # fmt: skip
