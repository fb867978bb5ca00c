"""Whatever is done in whatever order: no message is lost or there twice, and the lines of the keys hold.

Two queues of one database; ids are sent twice; another program's keys appear in their places and vanish again.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.errors import RedisUnsuitable
from reliq.features.cycle import ops as cycle_ops
from reliq.features.cycle.ops import Member
from reliq.features.schedules import ops as schedule_ops
from reliq.features.schedules.model import Definition, State
from reliq.features.schedules.upcoming import prepared
from reliq.features.topics import ops as topic_ops
from reliq.features.tracking import ops as track_ops
from reliq.features.tracking.ops import Criterion
from reliq.model.breaker import Breaker
from reliq.model.element import BLANK, group_of, limit_group_of
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.ops import Destination, Entry, Move, Revival
from reliq.protocol.outcomes import failure_now, passed_over, released, retried
from reliq.transport.store import Store
from reliq_monitor.reclaim import take_back
from tests.reference.rules import batch_is_possible, crowded, in_order, missing

QUEUES = (QueueKeys("q"), QueueKeys("r"))
CONSUMERS = ("v", "w")
ORDER_KEYS = ("k", "l")
DEDUP_KEYS = ("d", "d", "e")  # mostly one, so that messages meet
MEMBERS = ("ann", "bob", "k")
LIMIT_KEYS = ("s", "k")  #: "k" is an ordering key, too
LIMITS: tuple[dict[str, str | int], ...] = (
    {}, {"fair": 1}, {"fair": 1, "weight_digests": f"{limit_group_of('s')}=2"}, {"key_concurrency": 1},
    {"key_concurrency": 2}, {"key_rate": "1/h"}, {"rate": "1/h", "burst": 9}, {"concurrency": 3},
    {"fair": 1, "key_rate": "1/h", "concurrency": 4},
)  # fmt: skip
BATCH = "abcdefABCDEF"
ASIDE = "aside:"  #: prefix of a key moved aside for another program's key

queues = st.sampled_from(QUEUES)
consumers = st.sampled_from(CONSUMERS)


def claim_limited(keys, consumer, limit):
    return ops.claim_limited(keys, consumer, 1000.0, limit, 2**40, reports=False)


class Queues(RuleBasedStateMachine):
    """Two queues, their scripts in any order; two consumers of each. What is sent has a body of its own."""

    server: EmbeddedRedis
    store: Store

    def __init__(self):
        super().__init__()
        self.foreign: set[str] = set()
        self.run(ops.command("FLUSHALL"))
        for keys in QUEUES:
            for consumer in CONSUMERS:
                self.run(ops.register(keys, consumer, 1000.0))
        self.number = 0
        self.again: list[tuple[str, str]] = []  #: id and key of messages sent without a delay: they may be sent twice
        self.sent: dict[tuple[str, str], list[Any]] = {
            (keys.queue, key): [] for keys in QUEUES for key in ORDER_KEYS
        }  #: bodies, in order
        self.seen: dict[tuple[str, str], list[Any]] = {line: [] for line in self.sent}
        self.latest: dict[tuple[str, str], Any] = {}  #: by queue and dedup key: the body that was sent last
        self.given_out: set[Any] = set()  #: bodies
        self.before_index: set[str] = set()  #: ids of messages that the index need not have

    def run(self, op):
        return self.store.call(op)

    def attempt(self, op):
        """Run one script. None: it has met another program's key, and then it has changed nothing."""
        before = self.everything() if self.foreign else None
        try:
            return self.run(op)
        except RedisUnsuitable:
            assert self.foreign
            assert self.everything() == before
            return None

    def everything(self):
        names = sorted(self.run(ops.command("KEYS", "*")))
        values = self.run([ops.command("DUMP", name) for name in names if b":lease:" not in name])
        return names, values

    # --- where everything is ---

    def where(self, key):
        return ASIDE + key if key in self.foreign else key

    def elements(self, keys, *names):
        found = []
        for name in names:
            command = "ZRANGE" if name in (keys.delayed, keys.dead, keys.waiting) else "LRANGE"
            for one in self.run(ops.command(command, self.where(name), 0, -1)):
                if one == BLANK:
                    continue
                found.append(Message.decode(keys.queue, one[32:] if name == keys.waiting else one))
        return found

    def ready(self, keys):
        return self.elements(keys, keys.messages, keys.high, keys.low, keys.next_round)

    def held(self, keys):
        return [message for consumer in CONSUMERS for message in self.elements(keys, keys.processing(consumer))]

    def some(self, data, found):
        """Draw a queue and one of the messages that `found` returns for it; None if no queue has any.

        By their bodies: places sort by ms and nonces, which are others when the same choices are repeated.
        """
        every = [(keys, message) for keys in QUEUES for message in sorted(found(keys), key=lambda one: one.body)]
        return data.draw(st.sampled_from(every)) if every else (None, None)

    # --- what another program does ---

    @rule(data=st.data(), keys=queues)
    def another_program_takes_a_key(self, data, keys):
        places = {*keys.places, keys.delayed, keys.dead, keys.index} - {keys.history}  # a stream, as this is
        key = data.draw(st.sampled_from(sorted(places - self.foreign)))
        if len(self.foreign) < 3:
            if self.run(ops.command("EXISTS", key)):
                self.run(ops.command("RENAME", key, ASIDE + key))
            self.run(ops.command("XADD", key, "*", "another", "program"))
            self.foreign.add(key)

    @precondition(lambda self: self.foreign)
    @rule()
    def its_keys_vanish(self):
        for key in self.foreign:
            self.run(ops.command("DEL", key))
            if self.run(ops.command("EXISTS", ASIDE + key)):
                self.run(ops.command("RENAME", ASIDE + key, key))
        self.foreign.clear()

    # --- what is done ---

    def new(self, key, priority="normal", identity=None):
        self.number += 1
        message = NewMessage(f"b{self.number:04}", id=identity or f"m{self.number:04}", key=key, priority=priority)
        return self.of_batch(message)

    def of_batch(self, message):
        """Every third message is of a batch."""
        return message.of_batch(BATCH) if self.number % 3 == 0 else message

    @rule(
        keys=queues,
        key=st.sampled_from([*ORDER_KEYS, None]),
        priority=st.sampled_from(["high", "normal", "low"]),
        delay=st.sampled_from([0, 60]),
    )
    def send(self, keys, key, priority, delay):
        self.enqueue(keys, self.new(key, priority), delay)

    @rule(keys=queues, key=st.sampled_from(LIMIT_KEYS), delay=st.sampled_from([0, 60]))
    def send_with_limit_key(self, keys, key, delay):
        self.number += 1
        message = self.of_batch(NewMessage(f"b{self.number:04}", id=f"m{self.number:04}", limit_key=key))
        self.attempt(ops.enqueue(keys, [], [Entry(message.id, message.element(0), delay, None, 0.0)]))

    @rule(keys=queues, limits=st.sampled_from(LIMITS))
    def limit(self, keys, limits):
        if keys.config in self.foreign:
            return
        every = {name for one in LIMITS for name in one}
        for change in ops.configure(keys, {**limits, "limited": 1}, sorted(every - set(limits))):
            self.attempt(change)

    @initialize(tracks=st.booleans())
    def begin_with_an_index(self, tracks):
        if tracks:
            self.before_index = {one.id for one in self.live(QUEUES[0])}
            self.run(ops.command("HSET", QUEUES[0].config, "track", 1, "history", 3600))

    @initialize(limits=st.sampled_from(LIMITS), key=st.sampled_from(LIMIT_KEYS), messages=st.integers(0, 4))
    def begin_with_limits(self, limits, key, messages):
        for keys in QUEUES[:1] if limits else ():
            self.limit(keys, limits)
            for _ in range(messages):
                self.send_with_limit_key(keys, key, 0)
            self.claim(keys, CONSUMERS[0], 2)

    @rule(keys=queues, group=st.sampled_from([*map(limit_group_of, LIMIT_KEYS), *map(group_of, ORDER_KEYS), None]))
    def hold(self, keys, group):
        self.attempt(ops.hold_key(keys, group, 60.0) if group else ops.hold(keys, 60.0))

    @rule(keys=queues, what=st.sampled_from(["open", "close", "failed", "passed"]))
    def move_breaker(self, keys, what):
        if what in ("open", "close"):
            self.attempt(ops.switch_breaker(keys, 60.0 if what == "open" else 0))
        else:
            self.attempt(ops.breaker(keys, Breaker(minimum=1), 0, 1, what))

    @rule(keys=queues)
    def hold_no_longer(self, keys):
        self.run(ops.command("DEL", keys.flow, keys.buckets))

    @precondition(lambda self: self.again)
    @rule(data=st.data(), keys=queues)
    def send_an_id_twice(self, data, keys):
        identity, key = data.draw(st.sampled_from(self.again))
        self.enqueue(keys, self.new(key, identity=identity), 0)

    def enqueue(self, keys, message, delay):
        entry = Entry(message.id, message.element(0), delay, None, 0.0)
        if self.attempt(ops.enqueue(keys, [], [entry])) and message.key and not delay:
            self.sent[keys.queue, message.key].append(message.body)
            self.again.append((message.id, message.key))

    @rule(
        dedup_key=st.sampled_from(DEDUP_KEYS),
        debounces=st.lists(st.sampled_from([None, None, 60]), min_size=1, max_size=4),
    )
    def send_latest(self, dedup_key, debounces):
        keys = QUEUES[0]
        for debounce in debounces:
            self.number += 1
            body, identity = f"b{self.number:04}", f"m{self.number:04}"
            message = NewMessage(body, id=identity, dedup_key=dedup_key, replace=True, debounce=debounce)
            message = self.of_batch(message)
            entry = Entry(identity, message.element(0), message.debounce, dedup_key, 0.0, replace=True, at_most=90.0)
            if self.attempt(ops.enqueue(keys, [], [entry])):
                self.latest[keys.queue, dedup_key] = message.body

    @rule(data=st.data())
    def take_newest(self, data):
        keys, message = self.some(data, lambda keys: [one for one in self.held(keys) if one.is_latest])
        if message is None:
            return
        self.newest(keys, self.holder_of(keys, message), [message])

    def newest(self, keys, consumer, messages):
        groups = [message.group for message in messages if message.is_latest]
        if groups and (found := self.attempt(ops.newest(keys, consumer, groups))):
            self.note(keys, found)

    @rule(key=st.sampled_from([*ORDER_KEYS, None]))
    def publish(self, key):
        message = self.new(key)
        if self.attempt(topic_ops.publish(QUEUES, message.id, message.element(0), 0.0, "", 0)) and key:
            for keys in QUEUES:
                self.sent[keys.queue, key].append(message.body)

    @rule(
        keys=queues, name=st.sampled_from(["s", "t"]), key=st.sampled_from([*ORDER_KEYS, None]),
        catch_up=st.sampled_from(["latest", "all", "none"]), behind=st.integers(0, 3),
    )  # fmt: skip
    def tick(self, keys, name, key, catch_up, behind):
        """A schedule is due, and two monitors send its tick: as many messages as one of them says, none twice."""
        if {keys.schedules, keys.schedule_states, keys.ticks, keys.runs} & self.foreign:
            return
        self.number += 1
        now = self.run(ops.server_time())
        definition = Definition(name, keys.queue, "60s", f"b{self.number:04}".encode(), key=key, catch_up=catch_up)
        (raw,) = self.run(ops.command("HMGET", keys.schedule_states, name))
        state = State.at(definition, now - 60_000 * behind)
        self.run(schedule_ops.schedule_put(keys, [schedule_ops.Written(name, raw or b"", state, definition)]))
        stored = schedule_ops.Stored(definition, state, msgspec.json.encode(state))
        tick = prepared(keys, stored, now)
        assert tick is not None
        # Each message has a body of its own, by which the invariants tell it from the others.
        fires = [replace(tick.fire, messages=self.messages_of(name, key, len(tick.fire.messages))) for _ in range(2)]
        outcomes = [self.attempt(schedule_ops.fire(keys, [fire])) for fire in fires]
        for fire, outcome in zip(fires, outcomes, strict=True):
            if outcome is not None and outcome[1] == [schedule_ops.Firing.SENT] and key:
                bodies = [Message.decode(keys.queue, element).body for element, _ in fire.messages]
                self.sent[keys.queue, key] += bodies
        sent = [outcome[1] for outcome in outcomes if outcome is not None]
        assert sent in ([], [[schedule_ops.Firing.SENT], [schedule_ops.Firing.CHANGED]])

    def messages_of(self, name, key, count):
        made = [self.new(key, identity=f"{name}@{self.number}").of_batch("") for _ in range(count)]
        return [(message.element(0), b"") for message in made]

    @rule(keys=queues, member=st.sampled_from(MEMBERS))
    def enter(self, keys, member):
        message = self.new(member).of_batch("")
        message.in_cycle = True
        entrant = Member(member, group_of(member), message.id, message.element(0))
        self.attempt(cycle_ops.cycle_add(keys, [entrant], "producer", self.number))

    @rule(keys=queues, member=st.sampled_from(MEMBERS))
    def remove(self, keys, member):
        self.attempt(cycle_ops.cycle_remove(keys, [group_of(member)]))

    @rule(keys=queues, consumer=consumers, limit=st.integers(0, 5))
    def claim(self, keys, consumer, limit):
        answer = self.attempt(ops.claim(keys, consumer, 1000.0, limit))
        if answer and answer.status == "limited":
            answer = self.attempt(claim_limited(keys, consumer, limit))
            if answer and answer.status == "uncounted":
                self.attempt(ops.tally(keys, CONSUMERS, consumer, begins=True, ends=True))
                answer = self.attempt(claim_limited(keys, consumer, limit))
        if answer:
            self.note(keys, answer.elements)
            self.newest(keys, consumer, [Message.decode(keys.queue, one) for one in answer.elements])

    @rule(keys=queues, consumer=consumers)
    def move_idle(self, keys, consumer):
        """The BLMOVE of an idle consumer, and the claim behind it."""
        if keys.messages in self.foreign or not self.run(ops.command("LLEN", keys.messages)):
            return
        if self.run(ops.command("HEXISTS", self.where(keys.config), "concurrency")):
            return  # who knows of it does not; what others move so is counted with their next claim
        element = self.run(ops.block(keys, consumer, 0.01))
        if element == BLANK:
            self.attempt(ops.settle(keys, consumer, 1000.0, (), [passed_over(element)]))
        else:
            self.note(keys, [element])
        self.claim(keys, consumer, 0)

    def note(self, keys, elements):
        for message in (Message.decode(keys.queue, one) for one in elements):
            self.given_out.add(message.body)
            line = keys.queue, message.key
            if message.body in self.sent.get(line, ()) and message.body not in self.seen[line]:
                self.seen[line].append(message.body)

    @rule(
        data=st.data(), limit=st.integers(0, 3),
        what=st.sampled_from(["ack", "retry", "retry now", "dead", "release", "again", "rest"]),
    )  # fmt: skip
    def settle(self, data, limit, what):
        keys, message = self.some(data, self.held)
        if message is None:
            return
        consumer = self.holder_of(keys, message)
        acks, moves = ([message.element], []) if what == "ack" else ([], [self.move(what, message)])
        if answer := self.attempt(ops.settle(keys, consumer, 1000.0, acks, moves, limit)):
            assert answer.codes == "d"
            self.note(keys, answer.elements)

    def holder_of(self, keys, message):
        (consumer,) = [
            one
            for one in CONSUMERS
            if message.element in self.run(ops.command("LRANGE", keys.processing(one), 0, -1))
        ]  # fmt: skip
        return consumer

    def move(self, what, message):
        again = message.again()
        match what:
            case "retry" | "retry now":
                return retried(message, failure_now("w", "E", "x"), 60.0 if what == "retry" else 0.0)
            case "release":
                return released(message)
            case "dead":
                return Move(message.element, Destination.DEAD, "dead:rejected", message.id, message.buried("rejected"))
        if message.in_cycle:
            return Move(
                message.element,
                Destination.REST if what == "rest" else Destination.ROUND,
                "requeued",
                message.id,
                again,
                60.0,
            )
        return Move(
            message.element,
            Destination.DELAYED if what == "rest" else Destination.HEAD,
            "requeued",
            message.id,
            again,
            60.0,
        )

    @rule(keys=queues)
    def fall_due(self, keys):
        if {keys.delayed, keys.index} & self.foreign:
            return
        delayed = self.run(ops.command("ZRANGE", keys.delayed, 0, -1))
        for due, one in enumerate(sorted(delayed, key=lambda one: Message.decode("q", one).body), 1):
            self.run(ops.command("ZADD", keys.delayed, due, one))
            self.run(ops.command("HSET", keys.index, Message.decode("q", one).id, due))
        self.attempt(ops.promote(keys, 100))

    @rule(keys=queues, consumer=consumers, max_deliveries=st.sampled_from([1, 5]))
    def vanish(self, keys, consumer, max_deliveries):
        if keys.config not in self.foreign:
            self.run(ops.command("HSET", keys.config, "max_deliveries", max_deliveries))
        try:
            self.store.run(take_back(keys, consumer, known_dead=True))
        except RedisUnsuitable:
            assert self.foreign
        self.run(ops.register(keys, consumer, 1000.0))

    @rule(keys=queues, limit=st.integers(1, 4))
    def purge(self, keys, limit):
        left = {message.body for message in self.held(keys)}
        while (purged := self.attempt(ops.purge(keys, limit))) and purged.more:
            pass
        for key in ORDER_KEYS if purged is not None else ():
            line = keys.queue, key
            self.sent[line] = [one for one in self.sent[line] if one in self.seen[line] or one in left]
        if purged is not None:
            self.latest = {line: body for line, body in self.latest.items() if line[0] != keys.queue}

    @rule(data=st.data())
    def redrive(self, data):
        keys, letter = self.some(data, lambda keys: self.elements(keys, keys.dead))
        if letter is None:
            return
        member = letter.key if letter.in_cycle else ""
        again = letter.revived(keep_failures=False)
        line = keys.queue, letter.key
        if (
            self.attempt(ops.redrive(keys, [Revival(letter.element, letter.id, again, member)]))
            and letter.body in self.sent.get(line, ())
            and letter.body not in self.seen[line]
        ):
            self.sent[line].remove(letter.body)  # it died unseen: its place is at the end now

    @rule(data=st.data())
    def cancel(self, data):
        keys, message = self.some(data, lambda keys: self.elements(keys, keys.delayed))
        if message is None:
            return
        known = Counter(one.id for one in self.elements(keys, keys.delayed, keys.dead))
        cancelled = self.attempt(ops.cancel(keys, message.id))
        assert cancelled is not False or self.again_has(message.id) or known[message.id] > 1
        if cancelled:
            self.latest = {line: body for line, body in self.latest.items() if body != message.body}

    @rule(data=st.data())
    def cancel_anywhere(self, data):
        keys, message = self.some(data, lambda keys: self.ready(keys) + self.elements(keys, keys.waiting, keys.delayed))
        if message is None:
            return
        places = (keys.delayed, keys.waiting, keys.high, keys.low, keys.next_round, keys.messages)
        before = {one.body for one in self.live(keys)}
        matches: list[track_ops.Match] = []
        for place in places:
            start = b"" if place == keys.waiting else 0
            swept = self.attempt(track_ops.sweep(keys, place, start, Criterion.with_id(message.id), 1))
            matches = swept.matches if swept else []
            if matches or swept is None:
                break
        gone = before - {one.body for one in self.live(keys)}
        assert len(gone) == len(matches)
        for line, bodies in self.sent.items():
            if line[0] == keys.queue:
                self.sent[line] = [one for one in bodies if one not in gone or one in self.seen[line]]
        self.latest = {line: body for line, body in self.latest.items() if body not in gone}

    def live(self, keys):
        """Every message that is not a dead letter."""
        return self.ready(keys) + self.held(keys) + self.elements(keys, keys.waiting, keys.delayed)

    def again_has(self, identity):
        """Whether the index may know another message of this id."""
        return any(identity == one for one, _ in self.again)

    # --- what must hold at every moment ---

    @invariant()
    def nothing_is_lost_or_there_twice(self):
        for keys in QUEUES:
            counters = {name: int(count) for name, count in self.run(ops.read_hash(self.where(keys.counters))).items()}
            here = self.ready(keys) + self.held(keys) + self.elements(keys, keys.waiting, keys.delayed, keys.dead)
            assert missing(counters, len(here)) == 0
            assert crowded(message.body.decode() for message in here) == []

    @invariant()
    def the_consumers_of_a_limited_queue_are_counted_as_their_lists_are(self):
        """Where all were counted since `concurrency` was set; else each that is known is known by its list."""
        for keys in QUEUES:
            found = self.run(ops.read_hash(self.where(keys.holders)))
            known = {name: int(count) for name, count in found.items() if name != "!"}
            lists = {one: self.run(ops.command("LLEN", self.where(keys.processing(one)))) for one in CONSUMERS}
            holding = {one: length for one, length in lists.items() if length}
            total = known.pop("#", 0)
            assert total == sum(known.values())
            if self.run(ops.command("HGET", self.where(keys.holders), "!")) == b"1":
                assert known == holding

    @invariant()
    def a_batch_counts_its_messages(self):
        for keys in QUEUES:
            counts = self.run(ops.command("HGET", self.where(keys.followed), f" {BATCH}"))
            still_open, sent, dead, cancelled = map(int, counts.split()) if counts else (0, 0, 0, 0)
            assert still_open == sum(one.extra is not None and one.extra.batch == BATCH for one in self.live(keys))
            letters = sum(one.extra is not None and one.extra.batch == BATCH for one in self.elements(keys, keys.dead))
            assert dead >= letters  # a dead letter that a newer message replaces is dead for its batch
            assert batch_is_possible(still_open, sent, dead, cancelled)

    @invariant()
    def the_index_has_every_message(self):
        keys = QUEUES[0]
        if self.run(ops.command("HEXISTS", self.where(keys.config), "track")):
            indexed = {name.decode() for name in self.run(ops.command("HKEYS", self.where(keys.followed)))}
            live = {one.id for one in self.live(keys)}
            assert indexed - {f" {BATCH}"} <= live
            assert {one for one in live - self.before_index if not self.again_has(one)} <= indexed

    @invariant()
    def who_waits_waits_for_somebody(self):
        for keys in QUEUES:
            active = {
                group: identity
                for group, identity in self.run(ops.read_hash(self.where(keys.active))).items()
                if " " not in group and "#" not in group
            }
            out = self.ready(keys) + self.held(keys)
            holders = {(message.group, message.id) for message in out + self.elements(keys, keys.delayed)}
            assert set(active.items()) <= holders
            assert {(message.group, message.id) for message in out if message.key or message.is_latest} <= set(
                active.items()
            )
            assert {one.group for one in self.elements(keys, keys.waiting) if one.key or one.is_latest} <= set(active)

    @invariant()
    def slots_are_those_of_messages(self):
        """Each slot belongs to a message that is ready, in processing or rests; others wait for a slot."""
        for keys in QUEUES:
            active = self.run(ops.read_hash(self.where(keys.active)))
            slots = {tuple(field.split(" ")) for field in active if " " in field}
            out = self.ready(keys) + self.held(keys) + self.elements(keys, keys.delayed)
            assert slots <= {(message.group, message.id) for message in out}
            counted = {field[1:]: int(count) for field, count in active.items() if field.startswith("#")}
            assert counted == Counter(group for group, _ in slots)
            assert {one.group for one in self.elements(keys, keys.waiting) if not (one.key or one.is_latest)} <= set(
                counted
            )

    @invariant()
    def one_message_of_a_key_at_a_time(self):
        for keys in QUEUES:
            out = self.ready(keys) + self.held(keys)
            assert crowded(message.group for message in out if message.key or message.is_latest) == []

    @invariant()
    def the_latest_of_a_dedup_key_is_there_or_was_given_out(self):
        for keys in QUEUES:
            here = self.ready(keys) + self.held(keys) + self.elements(keys, keys.waiting, keys.delayed, keys.dead)
            known = self.given_out | {message.body for message in here}
            assert {body for (queue, _), body in self.latest.items() if queue == keys.queue} <= known

    @invariant()
    def one_message_of_a_dedup_key_waits_behind_another(self):
        for keys in QUEUES:
            assert crowded(one.group for one in self.elements(keys, keys.waiting) if one.is_latest) == []

    @invariant()
    def idle_consumers_are_woken(self):
        for keys in QUEUES:
            wakes = self.run(ops.command("EXISTS", self.where(keys.messages)))  # also by a blank
            assert wakes or not self.elements(keys, keys.high, keys.low)

    @invariant()
    def each_key_keeps_its_order(self):
        for line, seen in self.seen.items():
            assert in_order(seen, self.sent[line])

    @invariant()
    def every_member_has_a_message(self):
        for keys in QUEUES:
            here = self.ready(keys) + self.held(keys) + self.elements(keys, keys.waiting, keys.delayed)
            cycle = self.run(ops.read_hash(self.where(keys.cycle)))
            assert {entry.partition(" ")[0] for entry in cycle.values()} <= {message.id for message in here}
            rounds = self.run(ops.command("ZRANGE", self.where(keys.rounds), 0, -1))
            assert {group.decode() for group in rounds} <= set(cycle)

    @invariant()
    def the_next_round_begins_when_everybody_is_back(self):
        for keys in QUEUES:
            ready = self.run(ops.command("EXISTS", self.where(keys.messages)))  # also with a blank
            if self.elements(keys, keys.next_round) and not ready:
                current = self.run(ops.command("HGET", self.where(keys.config), "round"))
                assert self.run(ops.command("ZCOUNT", self.where(keys.rounds), "-inf", current))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("examples", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_nothing_is_lost_whatever_happens(redis_server, examples):
    Queues.server, Queues.store = redis_server, Store(redis_server.url)
    many = settings(max_examples=examples, stateful_step_count=40, deadline=None, derandomize=True)
    run_state_machine_as_test(Queues, settings=many)
    Queues.store.close()
