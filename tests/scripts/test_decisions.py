"""Prepared messages with decisions in any order: each in one place, one final decision, a balanced audit."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from reliq import ops
from reliq.contract.counters import GONE
from reliq.features.prepared import ops as own
from reliq.features.prepared.steps import PreparedSteps, ask_overdue
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.ops import Entry
from reliq.protocol.producer import ProducerPool
from reliq.transport.store import Store

KEYS = QueueKeys("q")
CHECKS = 2


class Decisions(RuleBasedStateMachine):
    """One queue, with a check-back and producers that decide at random."""

    store: Store

    def __init__(self):
        super().__init__()
        self.run(ops.command("FLUSHALL"))
        self.steps = PreparedSteps(KEYS, ProducerPool())
        self.states: dict[str, str] = {}  #: what must be true
        self.firsts: dict[str, str] = {}  #: the message that stands for a duplicate
        self.keys: dict[str, str] = {}  #: dedup key -> the first message that was committed with it
        self.dedup: dict[str, str | None] = {}

    def run(self, op):
        return self.store.call(op)

    def some(self, *states):
        return [name for name, state in self.states.items() if state in states]

    @rule(dedup=st.sampled_from([None, "k"]), checks=st.sampled_from([0, CHECKS]))
    def prepare(self, dedup, checks):
        message = NewMessage("x", id=f"m{len(self.states):03}", dedup_key=dedup)
        entry = Entry(message.id, message.element(0), 0.0, dedup, 60.0, message.digest)
        assert self.run(own.prepare(KEYS, entry, 60.0, checks, "p", len(self.states) + 1)).status == "ok"
        self.states[message.id], self.dedup[message.id] = "prepared", dedup

    @precondition(lambda self: self.states)
    @rule(data=st.data(), decision=st.sampled_from(["committed", "rolled_back"]))
    def decide(self, data, decision):
        """By the producer, at any time, also again and against what was decided."""
        name = data.draw(st.sampled_from(sorted(self.states)))
        first = self.decided(name, decision)
        dedup = self.dedup[name]
        key = KEYS.dedup(dedup) if dedup else ""
        answer = self.run(own.decide(KEYS, name, decision, 60.0, dedup=key))
        assert (answer.decision, answer.id) == (self.states[name], first)

    def decided(self, name, decision):
        """Note the decision if it is the first one; the id that is to be answered."""
        if self.states[name] == "prepared":
            self.states[name] = decision
            dedup = self.dedup[name]
            if decision == "committed" and dedup:
                self.firsts[name] = self.keys.setdefault(dedup, name)
        return self.firsts.get(name, name)

    @precondition(lambda self: self.some("prepared"))
    @rule(data=st.data())
    def fall_overdue(self, data):
        """A monitor looks, perhaps after another one."""
        name = data.draw(st.sampled_from(self.some("prepared")))
        self.run(ops.command("ZADD", KEYS.prepared, 1, name))
        asks, most = (
            int(one or 0) for one in self.run(ops.command("HMGET", KEYS.prepared_record(name), "asks", "most"))
        )
        expected = (0, 1) if asks >= most else (1, 0)
        assert self.store.run(ask_overdue(KEYS, [name.encode()])) == expected
        assert self.store.run(ask_overdue(KEYS, [name.encode()])) == (0, 0)
        if asks >= most:
            self.states[name] = "undecided"

    @precondition(lambda self: self.run(ops.command("ZCARD", KEYS.questions)))
    @rule(answer=st.sampled_from([True, False, None]))
    def check_back(self, answer):
        """A worker takes a question; None: it cannot say, or it dies."""
        message = self.store.run(self.steps.question())
        if message is not None and answer is not None:
            self.decided(message.id, "committed" if answer else "rolled_back")
            steps = self.steps.commit(message.id) if answer else self.steps.rollback(message.id)
            self.store.run(steps)

    @rule()
    def purge_prepared(self):
        assert self.store.run(self.steps.purge()) == len(self.some("prepared"))
        for name in self.some("prepared"):
            self.states[name] = "purged"

    @invariant()
    def each_is_where_its_decision_says(self):
        ready = [Message.decode("q", one).id for one in self.run(ops.command("LRANGE", KEYS.messages, 0, -1))]
        dead = [Message.decode("q", one).id for one in self.run(ops.command("ZRANGE", KEYS.dead, 0, -1))]
        prepared = [one.decode() for one in self.run(ops.command("ZRANGE", KEYS.prepared, 0, -1))]
        entered = [name for name in self.some("committed") if self.firsts.get(name, name) == name]
        assert sorted(ready) == sorted(entered)
        assert sorted(dead) == sorted(self.some("undecided"))
        assert sorted(prepared) == sorted(self.some("prepared"))
        asked = {one.decode() for one in self.run(ops.command("ZRANGE", KEYS.questions, 0, -1))}
        assert asked <= set(prepared)

    @invariant()
    def the_books_balance(self):
        found = self.run(ops.stats(KEYS, ()))
        gone = sum(found.counters.get(name, 0) for name in GONE)
        assert found.counters.get("enqueued", 0) == gone + found.prepared + found.ready + found.dead
        assert found.counters.get("committed", 0) == len(self.some("committed"))


def test_one_decision_stands_whatever_happens(url):
    Decisions.store = Store(url)
    many = settings(max_examples=25, stateful_step_count=30, deadline=None, derandomize=True, database=None)
    run_state_machine_as_test(Decisions, settings=many)
    Decisions.store.close()
