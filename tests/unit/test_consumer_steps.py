"""Whatever answer is lost, and wherever: a consumer forgets nothing that it has taken, and runs nothing twice."""

import contextlib
import time
from typing import Any

import pytest

from reliq import Reliq, ops
from reliq.contract import values
from reliq.errors import OutcomeUnknown, RedisUnavailable
from reliq.model.keys import new_owner
from reliq.model.outgoing import NewMessage
from reliq.ops import Sleep, command
from reliq.protocol.consumer import ConsumerSteps
from tests.support.state import KEYS


class Fault:
    """Lets a number of requests pass; the one after them is lost, or its reply is. Then all pass again."""

    def __init__(self, store, after, reply_lost):
        self._store = store
        self._left = after
        self._reply_lost = reply_lost
        self.met = False

    def run(self, steps):
        """Drive the steps as a store does."""
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                request = steps.throw(error) if error else steps.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = error = None
            if not isinstance(request, Sleep):
                self._left -= 1
            if self._left == -1:
                self.met = True
                if self._reply_lost:
                    self._store.call(request)
                    error = OutcomeUnknown("the reply was lost")
                else:
                    error = RedisUnavailable("the request was lost")
            else:
                answer = None if isinstance(request, Sleep) else self._store.call(request)


@pytest.fixture(params=["empty lately", "empty for long"])
def empty(request, monkeypatch):
    """How long a queue has been empty, from its first empty claim on."""
    monkeypatch.setattr(values, "EMPTY_FOR", {"empty lately": 1000.0, "empty for long": -1.0}[request.param])


def drain(store, fault, handled):
    """A small worker: claims or waits, handles, settles with the next claim; after an error it goes on."""
    consumer = ConsumerSteps(KEYS, "c1", 60.0)
    acks: list[bytes] = []
    idle = 0
    while idle < 3:
        try:
            _, messages = fault.run(consumer.settle(list(acks), (), 0 if consumer.idle and not acks else 2))
            acks.clear()
            if not messages:
                messages = fault.run(consumer.wait(2, 0.01))
        except (OutcomeUnknown, RedisUnavailable):
            continue
        for message in messages:
            handled.append(message.body)
            acks.append(message.element)
        idle = 0 if messages else idle + 1
    while True:
        try:
            fault.run(consumer.leave())
            return
        except (OutcomeUnknown, RedisUnavailable):
            continue


def prepare(store):
    expired = NewMessage("expired", ttl=1).element(1)
    elements = [NewMessage(body).element(1) for body in ("a", "b", "c", "d")]
    store.call(command("FLUSHALL"))
    store.call(command("LPUSH", KEYS.messages, elements[0], expired, b"\xc1", *elements[1:]))


def requests_of(store):
    """How many requests the scenario has without any fault."""
    prepare(store)
    fault = Fault(store, 10**9, reply_lost=False)
    drain(store, fault, [])
    return 10**9 - fault._left


def test_without_a_heartbeat_each_call_renews_the_lease(store):
    """A lease over HTTP lasts for the time that its client is told."""
    prepare(store)
    consumer = ConsumerSteps(KEYS, "c1", 60.0)
    store.run(consumer.ensure_registered())
    store.call(command("SET", KEYS.lease("c1"), 1))
    store.run(consumer.claim(1))
    assert store.call(ops.lease_end(KEYS, "c1")) > 1


def test_calls_renew_the_lease_once_in_a_fifteenth_of_it(store, monkeypatch):
    """Each renewal is a write: a worker that handles many messages a second would renew as often."""
    prepare(store)
    consumer, later = ConsumerSteps(KEYS, "c1", 60.0, may_age=True), [0.0]
    real = time.monotonic, time.time
    monkeypatch.setattr(time, "monotonic", lambda: real[0]() + later[0])
    monkeypatch.setattr(time, "time", lambda: real[1]() + later[0])

    def lease_after(*steps):
        for one in steps:
            store.run(one)
        return store.call(ops.lease_end(KEYS, "c1"))

    registered = lease_after(consumer.ensure_registered())
    assert lease_after(consumer.claim(1), consumer.wait(1, 0.01), consumer.settle((), (), 1)) == registered
    later[0] = 4.1
    renewed = lease_after(consumer.claim(1))
    assert renewed > registered
    assert lease_after(consumer.claim(1)) == renewed
    assert not consumer.trust.until.passed()


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("reply_lost", [True, False], ids=["reply lost", "request lost"])
def test_a_fault_at_every_request(store, reply_lost):
    for place in range(requests_of(store)):
        prepare(store)
        handled: list[bytes] = []
        fault = Fault(store, place, reply_lost)
        drain(store, fault, handled)
        assert fault.met
        assert sorted(handled) == [b"a", b"b", b"c", b"d"], f"request {place}"
        counts = store.call(ops.stats(KEYS, ["c1"]))
        assert (counts.ready, counts.processing, counts.dead) == (0, 0, 2), f"request {place}"
        assert counts.counters["acked"] == 4


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("reply_lost", [True, False], ids=["reply lost", "request lost"])
def test_a_fault_at_every_request_when_newer_messages_wait_behind_those_that_are_ready(url, store, reply_lost):
    queue = Reliq(url).queue(KEYS.queue)

    def scenario(fault, handled):
        store.call(command("FLUSHALL"))
        for body in ("a1", "b1", "x", "a2", "a3", "y", "b2"):
            sent = body * (800 if body == "a3" else 1)
            queue.send(NewMessage(sent, dedup_key=body[0], replace=True) if body[1:] else sent)
        drain(store, fault, handled)

    clean = Fault(store, 10**9, reply_lost=False)
    scenario(clean, [])
    for place in range(10**9 - clean._left):
        handled: list[bytes] = []
        fault = Fault(store, place, reply_lost)
        scenario(fault, handled)
        assert fault.met
        assert sorted(handled) == [b"a3" * 800, b"b2", b"x", b"y"], f"request {place}"
        counts = store.call(ops.stats(KEYS, ["c1"]))
        assert (counts.ready, counts.processing, counts.dead) == (0, 0, 0), f"request {place}"
        assert counts.counters["replaced"] == 3
        assert counts.counters["acked"] == 4
        assert store.call(command("EXISTS", KEYS.bodies, KEYS.active)) == 0


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("reply_lost", [True, False], ids=["reply lost", "request lost"])
def test_a_fault_at_every_request_when_a_pause_comes_while_the_consumer_waits(store, reply_lost):
    """BLMOVE knows no pause: what it moved goes back. Should that fail, the message is still not forgotten."""

    def scenario(fault, handled):
        store.call(command("FLUSHALL"))
        consumer = ConsumerSteps(KEYS, "c1", 60.0)
        again = True
        while again:
            try:
                fault.run(consumer.claim(2))
                again = False
            except (OutcomeUnknown, RedisUnavailable):
                continue
        store.call(
            [command("HSET", KEYS.config, "paused", 1), command("LPUSH", KEYS.messages, NewMessage("x").element(1))]
        )
        for _ in range(4):
            try:
                handled += [message.body for message in fault.run(consumer.wait(2, 0.01))]
            except (OutcomeUnknown, RedisUnavailable):
                continue
        return consumer

    clean = Fault(store, 10**9, reply_lost=False)
    handled: list[bytes] = []
    scenario(clean, handled)
    assert handled == []
    for place in range(10**9 - clean._left):
        fault, handled = Fault(store, place, reply_lost), []
        consumer = scenario(fault, handled)
        handled += [message.body for message in Fault(store, 10**9, reply_lost=False).run(consumer.wait(2, 0.01))]
        counts = store.call(ops.stats(KEYS, ["c1"]))
        assert counts.ready + counts.processing == 1, f"request {place}"
        assert counts.processing == len(handled), f"request {place}: in processing, and nobody has it"
        Fault(store, 10**9, reply_lost=False).run(consumer.leave())


def test_what_an_answer_brings_after_the_lease_was_lost_is_not_handed_out(store):
    """The claim was carried out in time, but its answer was read too late: the monitor has given all to others."""
    store.call(ops.enqueue(KEYS, [NewMessage(b"x").element(0) for _ in range(3)]))
    consumer = ConsumerSteps(KEYS, "c1", 60.0)
    (held,) = store.run(consumer.claim(1))
    answer = store.start(consumer.claim(2), store.connection())
    consumer.lose()
    assert held.lost
    assert answer.result() == []
    assert (consumer.consumer, consumer.held) == ("c1.1", {})


def test_steps_may_wait_for_their_first_answer_while_others_go_on(store):
    connection = store.connection()
    answer = store.start(ops.one(ops.server_time()), connection)
    assert store.call(command("PING")) == b"PONG"
    assert answer.result() > 0
    assert store.call(command("PING"), connection) == b"PONG"


def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next_one(store):
    connection = store.connection()
    store.start(ops.one(ops.server_time()), connection)
    assert store.call(command("PING"), connection) == b"PONG"


def test_what_is_under_way_on_one_link_is_answered_in_any_order(store):
    connection = store.connection()
    store.call(command("SCRIPT", "FLUSH"))  # one of them must be sent anew, with its script
    first, second, third = (store.start(ops.one(op), connection) for op in (
        command("ECHO", "first"), ops.claim(KEYS, "nobody", 1.0, 1), command("ECHO", "third"),
    ))  # fmt: skip
    assert third.result() == b"third"
    assert store.call(command("ECHO", "fourth"), connection) == b"fourth"
    assert second.result().status == "lost"
    assert first.result() == b"first"


def test_all_that_is_under_way_ends_with_its_connection(store):
    connection = store.connection()
    identity = store.call(command("CLIENT", "ID"), connection)
    pushes = [
        store.start(ops.one(command("BLPOP", "none", 5, repeatable=False)), connection, timeout=0) for _ in range(2)
    ]
    store.call(command("CLIENT", "KILL", "ID", identity))
    for push in pushes:
        with pytest.raises(OutcomeUnknown):
            push.result()
    assert store.call(command("PING"), connection) == b"PONG"


def test_a_connection_that_ends_under_way_is_told_as_any_other(store):
    connection = store.connection()
    store.call(command("CLIENT", "SETNAME", "under-way"), connection)
    identity = store.call(command("CLIENT", "ID"), connection)
    store.call(command("CLIENT", "KILL", "ID", identity))
    assert store.start(ops.one(ops.server_time()), connection).result() > 0
    store.call(command("CLIENT", "KILL", "ID", store.call(command("CLIENT", "ID"), connection)))
    with pytest.raises(OutcomeUnknown):
        store.start(ops.one(command("LPUSH", "a", "b", repeatable=False)), connection, timeout=0).result()


def test_messages_that_are_done_out_of_order_leave_in_a_row(store):
    """As those of a pool do: one LTRIM instead of an LREM each."""
    store.call(ops.enqueue(KEYS, [NewMessage(b"x").element(0) for _ in range(6)]))
    consumer = ConsumerSteps(KEYS, "c1", 60.0)
    elements = [message.element for message in store.run(consumer.claim(6))]
    shuffled = [elements[place] for place in (2, 0, 3, 1)]
    assert consumer.in_order(shuffled) == elements[:4]
    assert consumer.in_order([elements[4], b"unknown", elements[1]]) == [elements[1], elements[4], b"unknown"]
    store.call(ops.command("CONFIG", "RESETSTAT"))
    codes, _ = store.run(consumer.settle(consumer.in_order(shuffled)))
    commands = store.call(ops.command("INFO", "commandstats"))
    assert (codes, b"cmdstat_lrem" in commands) == ("dddd", False)
    assert list(consumer.held) == elements[4:]


@pytest.mark.parametrize(("announced", "again"), [(1, False), (0, False), (None, True)])
def test_a_queue_that_a_full_server_did_not_note_is_announced_again(announced, again):
    """Monitors find queues by that."""
    steps = ConsumerSteps(KEYS, new_owner(connected=False), 60)
    registering: Any = steps.ensure_registered()
    verifying: Any = steps._verify()
    assert ops.announce(KEYS.queue).command in [op.command for op in next(registering)]
    with contextlib.suppress(StopIteration):
        registering.send([announced, 1])
    assert (ops.announce(KEYS.queue).command in [op.command for op in next(verifying)]) is again
