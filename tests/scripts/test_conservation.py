"""Whatever is done in whatever order: no message is lost or there twice, and the lines of the keys hold."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.holdings import failure_now, released, retried
from reliq.keys import QueueKeys
from reliq.message import Message, NewMessage, group_of
from reliq.ops import Entry, Member, Move, Revival
from reliq.overview import GONE
from reliq.store import Store
from reliq_monitor.reclaim import take_back

KEYS = QueueKeys("q")
CONSUMERS = ("v", "w")
ORDER_KEYS = ("k", "l", None)


class Queue(RuleBasedStateMachine):
    """One queue, its scripts in any order; two consumers."""

    server: EmbeddedRedis
    store: Store

    def __init__(self):
        super().__init__()
        self.run(ops.command("FLUSHALL"))
        for consumer in CONSUMERS:
            self.run(ops.register(KEYS, consumer, 1000.0))
        self.number = 0
        self.sent: dict[str, list[str]] = {"k": [], "l": []}  #: by key, what must come in this order
        self.seen: dict[str, list[str]] = {"k": [], "l": []}

    def run(self, op):
        return self.store.call(op)

    # --- where everything is ---

    def elements(self, *keys):
        kinds = {KEYS.delayed: "ZRANGE", KEYS.dead: "ZRANGE", KEYS.waiting: "ZRANGE"}
        found = [one for key in keys for one in self.run(ops.command(kinds.get(key, "LRANGE"), key, 0, -1))]
        return [Message.decode("q", one[32:] if KEYS.waiting in keys else one) for one in found]

    def ready(self):
        return self.elements(KEYS.messages, KEYS.high, KEYS.low, KEYS.next_round)

    def held(self):
        return [message for consumer in CONSUMERS for message in self.elements(KEYS.processing(consumer))]

    # --- what is done ---

    @rule(
        key=st.sampled_from(ORDER_KEYS),
        priority=st.sampled_from(["high", "normal", "low"]),
        delay=st.sampled_from([0, 60]),
    )
    def send(self, key, priority, delay):
        message = NewMessage("x", id=f"m{self.number:04}", key=key, priority=priority)
        self.number += 1
        self.run(ops.enqueue(KEYS, [], [Entry(message.id, message.element(0), delay, None, 0.0)]))
        if key and not delay:
            self.sent[key].append(message.id)

    @rule(member=st.sampled_from(["ann", "bob", "k"]))
    def enter(self, member):
        message = NewMessage(member, id=f"c{self.number:04}", key=member)
        message.in_cycle = True
        self.number += 1
        self.run(ops.cycle_add(KEYS, [Member(member, group_of(member), message.id, message.element(0))]))

    @rule(member=st.sampled_from(["ann", "bob", "k"]))
    def remove(self, member):
        self.run(ops.cycle_remove(KEYS, [group_of(member)]))

    @rule(consumer=st.sampled_from(CONSUMERS), limit=st.integers(0, 5))
    def claim(self, consumer, limit):
        self.note(self.run(ops.claim(KEYS, consumer, 1000.0, limit)).elements)

    @precondition(lambda self: self.run(ops.command("LLEN", KEYS.messages)))
    @rule(consumer=st.sampled_from(CONSUMERS))
    def move_idle(self, consumer):
        """The BLMOVE of an idle consumer, and the claim behind it."""
        moved, answer = self.store.call([ops.block(KEYS, consumer, 0.01), ops.claim(KEYS, consumer, 1000.0, 0)])
        self.note([moved, *answer.elements])

    def note(self, elements):
        for message in (Message.decode("q", one) for one in elements):
            if message.id in self.sent.get(message.key, ()) and message.id not in self.seen[message.key]:
                self.seen[message.key].append(message.id)

    @precondition(lambda self: self.held())
    @rule(
        data=st.data(), limit=st.integers(0, 3),
        what=st.sampled_from(["ack", "retry", "retry now", "dead", "release", "again", "rest"]),
    )  # fmt: skip
    def settle(self, data, limit, what):
        consumer, message = data.draw(st.sampled_from([
            (consumer, message)
            for consumer in CONSUMERS for message in self.elements(KEYS.processing(consumer))
        ]))  # fmt: skip
        acks, moves = ([message.element], []) if what == "ack" else ([], [self.move(what, message)])
        answer = self.run(ops.settle(KEYS, consumer, 1000.0, acks, moves, limit))
        assert answer.codes == "d"
        self.note(answer.elements)

    def move(self, what, message):
        again = message.again()
        match what:
            case "retry" | "retry now":
                return retried(message, failure_now("w", "E", "x"), 60.0 if what == "retry" else 0.0)
            case "release":
                return released(message)
            case "dead":
                return Move(message.element, "dead", "dead:rejected", message.id, message.buried("rejected"))
        if message.in_cycle:
            return Move(message.element, "rest" if what == "rest" else "round", "requeued", message.id, again, 60.0)
        return Move(message.element, "delayed" if what == "rest" else "head", "requeued", message.id, again, 60.0)

    @rule()
    def fall_due(self):
        for one in self.run(ops.command("ZRANGE", KEYS.delayed, 0, -1)):
            self.run(ops.command("ZADD", KEYS.delayed, 1, one))
            self.run(ops.command("HSET", KEYS.index, Message.decode("q", one).id, 1))
        self.run(ops.promote(KEYS, 100))

    @rule(consumer=st.sampled_from(CONSUMERS), max_deliveries=st.sampled_from([1, 5]))
    def vanish(self, consumer, max_deliveries):
        self.run(ops.command("HSET", KEYS.config, "max_deliveries", max_deliveries))
        self.store.run(take_back(KEYS, consumer, known_dead=True))
        self.run(ops.register(KEYS, consumer, 1000.0))

    @rule(limit=st.integers(1, 4))
    def purge(self, limit):
        left = {message.id for message in self.held()}
        while self.run(ops.purge(KEYS, limit)):
            pass
        for key, names in self.sent.items():
            self.sent[key] = [one for one in names if one in self.seen[key] or one in left]

    @precondition(lambda self: self.elements(KEYS.dead))
    @rule(data=st.data())
    def redrive(self, data):
        letter = data.draw(st.sampled_from(self.elements(KEYS.dead)))
        again = letter.revived(keep_failures=False)
        self.run(ops.redrive(KEYS, [Revival(letter.element, letter.id, again, letter.key if letter.in_cycle else "")]))
        if letter.key in self.sent and letter.id in self.sent[letter.key] and letter.id not in self.seen[letter.key]:
            self.sent[letter.key].remove(letter.id)  # it died unseen: its place is at the end now

    @precondition(lambda self: self.elements(KEYS.delayed))
    @rule(data=st.data())
    def cancel(self, data):
        message = data.draw(st.sampled_from(self.elements(KEYS.delayed)))
        assert self.run(ops.cancel(KEYS, message.id))

    # --- what must hold at every moment ---

    @invariant()
    def nothing_is_lost_or_there_twice(self):
        counters = self.run(ops.stats(KEYS, CONSUMERS)).counters
        here = self.ready() + self.held() + self.elements(KEYS.waiting)
        here += self.elements(KEYS.delayed) + self.elements(KEYS.dead)
        gone = sum(counters.get(name, 0) for name in GONE)
        assert len(here) + gone == counters.get("enqueued", 0)
        assert max(Counter(message.id for message in here).values(), default=1) == 1

    @invariant()
    def who_waits_waits_for_somebody(self):
        active = self.run(ops.read_hash(KEYS.active))
        out = {message.id: message for message in self.ready() + self.held() + self.elements(KEYS.delayed)}
        for group, identity in active.items():
            assert out[identity].group == group
        for message in self.ready() + self.held():
            assert not message.key or active[message.group] == message.id
        assert {message.group for message in self.elements(KEYS.waiting)} <= set(active)

    @invariant()
    def idle_consumers_are_woken(self):
        assert self.elements(KEYS.messages) or not (self.elements(KEYS.high) + self.elements(KEYS.low))

    @invariant()
    def each_key_keeps_its_order(self):
        for key, seen in self.seen.items():
            expected = [one for one in self.sent[key] if one in seen]
            assert seen == expected

    @invariant()
    def every_member_has_a_message(self):
        here = self.ready() + self.held() + self.elements(KEYS.waiting) + self.elements(KEYS.delayed)
        cycle = self.run(ops.read_hash(KEYS.cycle))
        assert {entry.partition(" ")[0] for entry in cycle.values()} <= {message.id for message in here}
        in_rounds = {group.decode() for group in self.run(ops.command("ZRANGE", KEYS.rounds, 0, -1))}
        assert in_rounds <= set(cycle)

    @invariant()
    def the_next_round_begins_when_everybody_is_back(self):
        if self.elements(KEYS.next_round) and not self.elements(KEYS.messages):
            assert self.run(ops.command("ZCOUNT", KEYS.rounds, "-inf", self.round()))

    def round(self):
        return self.run(ops.command("HGET", KEYS.config, "round")).decode()


def test_nothing_is_lost_whatever_happens(redis_server):
    Queue.server, Queue.store = redis_server, Store(redis_server.url)
    case = Queue.TestCase()
    case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
    case.runTest()
    Queue.store.close()
