"""Flows: chains, groups and chords, as Celery calls them, of one queue and of several, by workers of each kind."""

import asyncio
import contextlib
import itertools
import subprocess
import sys
import threading
import time

import pytest

import reliq
from reliq import aio, ops
from reliq.contract import values
from reliq.features.flows import duty, finishing, telling
from reliq.features.flows.duty import OpenFlows
from reliq.features.flows.model import Plan
from reliq.features.flows.ops import flow_change, flow_ids, flow_open
from reliq.features.flows.sending import Sending
from reliq.features.flows.steps import cancelled_queues
from reliq.model.keys import FLOWS, QueueKeys, flow_record
from reliq.protocol.deletion import delete
from tests.support.handlers import bind, settled, working_as
from tests.support.turns import Monitor
from tests.support.workers import eventually, working

KEYS = QueueKeys("q")


@pytest.fixture
def ran(app, kind):
    """The bodies of the messages that were handled, in this order."""
    done: list[str] = []
    lock = threading.Lock()

    def handle(message):
        with lock:
            done.append(message.body.decode())
        if done == ["dies"]:
            raise reliq.Dead("as it should")
        return message.body.decode().upper()

    bind(app, kind, handle, result="1h")
    return done


def nothing_is_left(app, client, *queues: str) -> None:
    Monitor(app.store).tell_flows()
    for keys in map(QueueKeys, queues or ("q",)):
        assert not client.exists(keys.followed, keys.active, keys.waiting, keys.flows)
        assert client.hget(keys.config, "flowing") is None
    assert not client.exists(FLOWS)


def states(app, flow) -> list[str]:
    return [one.state for one in app.flow_progress(flow.id).members]


def test_a_chain(app, client, kind, ran):
    with app.flow() as flow:
        before: list = []
        for number in range(5):
            before = [flow.send("q", number, after=before)]
    assert (app.queue("q").stats().ready, app.queue("q").stats().waiting) == (5, 4)
    last = app.queue("q").find(before[0].id)
    assert (last.waiting_for, last.why) == ("", f"it waits for messages of its flow {flow.id}")
    assert states(app, flow) == ["open", *["waiting"] * 4]
    with working_as(kind, app):
        eventually(lambda: settled(app))
    assert ran == [*"01234"]
    nothing_is_left(app, client)
    assert (app.flow_progress(flow.id).state, states(app, flow)) == ("ended", ["handled"] * 5)


def test_a_chord(app, client, kind, ran):
    with app.flow() as flow:
        header = [flow.send("q", number) for number in range(20)]
        flow.send("q", "body", after=header)
    with working_as(kind, app):
        eventually(lambda: settled(app))
    assert (sorted(ran[:20]), ran[20:]) == (sorted(map(str, range(20))), ["body"])
    nothing_is_left(app, client)


def test_a_group_behind_a_chord_in_a_diamond(app, client, kind, ran):
    with app.flow() as flow:
        top = flow.send("q", "top")
        sides = [flow.send("q", side, after=[top]) for side in ("left", "right")]
        flow.send("q", "bottom", after=sides)
    with working_as(kind, app):
        eventually(lambda: settled(app))
    assert (ran[0], sorted(ran[1:3]), ran[3]) == ("top", ["left", "right"], "bottom")
    nothing_is_left(app, client)


def test_what_waits_for_a_dead_letter_goes_on_after_its_redrive(app, client, kind, ran):
    queue = app.queue("q")
    with app.flow() as flow:
        flow.send("q", "end", after=[flow.send("q", "dies")])
    with working_as(kind, app, monitor=True):
        eventually(lambda: states(app, flow) == ["dead", "waiting"])
        assert (ran, queue.stats().waiting) == (["dies"], 1)
        queue.dead.redrive()
        eventually(lambda: settled(app))
    assert ran == ["dies", "dies", "end"]
    nothing_is_left(app, client)


def test_the_results_of_those_before_are_given_in_their_order(app, client, kind):
    found = []

    def handle(message):
        if message.body == b"end":
            return message.results()
        return {"body": int(message.body)}

    if kind == "async":

        @app.handler("q", result="1h")
        async def handle_async(message):
            if message.body == b"end":
                found.append(await message.results())
                return None
            return handle(message)

    else:

        @app.handler("q", result="1h")
        def handle_sync(message):
            if message.body == b"end":
                found.append(message.results())
                return None
            return handle(message)

    @app.handler("other")
    def keeps_none(message):
        pass

    with app.flow() as flow:
        before = [flow.send("q", number) for number in range(3)]
        flow.send("q", "end", after=[before[2], flow.send("other", "x"), before[0], before[1]])
    with working_as(kind, app, monitor=True):
        eventually(lambda: found)
    assert found == [[{"body": 2}, None, {"body": 0}, {"body": 1}]]


def test_several_queues(app, client, kind, ran):
    others: list[str] = []

    @app.handler("other")
    def other(message):
        others.append(message.body.decode())

    with app.flow() as flow:
        first = flow.send("q", "first")
        away = [flow.send("other", number, after=[first]) for number in range(3)]
        flow.send("q", "last", after=[first, *away])
    assert states(app, flow) == ["open", *["waiting"] * 4]
    with working_as(kind, app, monitor=True):
        eventually(lambda: ran == ["first", "last"])
    assert sorted(others) == [*"012"]
    nothing_is_left(app, client, "q", "other")


@pytest.mark.parametrize("rule", ["skip", "run"])
def test_a_dead_letter_is_judged(app, client, kind, ran, rule):
    with app.flow() as flow:
        first = flow.send("q", "dies")
        middle = flow.send("q", "middle", after=[first], on_failure=rule)
        flow.send("q", "last", after=[middle], on_failure="run")
    with working_as(kind, app, monitor=True):
        eventually(lambda: ran[-1:] == ["last"])
        eventually(lambda: "open" not in states(app, flow))
    assert ran == (["dies", "last"] if rule == "skip" else ["dies", "middle", "last"])
    assert states(app, flow) == ["dead", "skipped" if rule == "skip" else "handled", "handled"]
    assert [one.id for one in app.flows()] == [flow.id]  # the dead letter may be redriven
    app.queue("q").dead.purge(all=True)
    nothing_is_left(app, client)


def test_a_block_that_raises_sends_nothing(app, client):
    with contextlib.suppress(ZeroDivisionError), app.flow() as flow:
        flow.send("q", "end", after=[flow.send("q", "first")])
        raise ZeroDivisionError
    assert not client.keys("*{q}*")
    with app.flow():
        pass
    assert not client.keys("*@flows*")


def test_a_killed_consumer_releases_nothing_twice(app, client):
    queue = app.queue("q")
    with app.flow() as flow:
        flow.send("q", "end", after=[flow.send("q", "a"), flow.send("q", "b")])
    with queue.consumer() as lost:
        assert len(lost.claim(5)) == 2
        client.delete(*client.keys(KEYS.lease("*")))
        Monitor(app.store).scan()
    with queue.consumer() as consumer:
        consumer.ack(*consumer.claim(5))
        (end,) = consumer.claim(5)
        assert end.body == b"end"
        consumer.ack(end)
    nothing_is_left(app, client)


def test_a_flow_is_cancelled_wherever_its_messages_are(app, client):
    with app.flow() as flow:
        first = [flow.send("q", 1), flow.send("other", 2, delay=60)]
        flow.send("other", 3, after=first)
    app.queue("q").send("stays")
    assert [one.id for one in app.flows()] == [flow.id]
    assert (app.cancel_flow(flow.id), app.cancel_flow("unknown")) == (True, False)
    Monitor(app.store).tell_flows()
    assert (states(app, flow), app.flow_progress(flow.id).state) == (["cancelled"] * 3, "cancelled")
    assert (app.cancel_flow(flow.id), app.flows()) == (False, [])
    with app.queue("q").consumer() as consumer:
        (left,) = consumer.claim(5)
        assert left.body == b"stays"
        consumer.ack(left)
    nothing_is_left(app, client, "q", "other")


def test_a_member_that_is_cancelled_fails_those_behind_it(app, client):
    with app.flow() as flow:
        middle = flow.send("q", "middle", after=[flow.send("q", "first")])
        flow.send("other", "end", after=[middle])
    assert app.queue("q").cancel(middle.id)
    Monitor(app.store).tell_flows()
    assert states(app, flow) == ["open", "cancelled", "dead"]
    (letter,) = app.queue("other").dead.list()
    assert letter.reason == "predecessor"
    app.queue("other").dead.redrive()
    assert app.queue("other").stats().ready == 1


def test_a_producer_that_died_half_way_has_run_nothing(app, client):
    plan = Plan()
    plan.add("q", reliq.NewMessage(b"first"), (), "fail")
    assert app.store.call(flow_open(plan, 0, 1))
    monitor = Monitor(app.store)
    monitor.tell_flows()
    assert [one.state for one in app.flows()] == ["sending"]
    client.hset(flow_record(plan.id), "opened", int(time.time() * 1000) - 3_600_000)
    monitor.tell_flows()
    assert [one.state for one in app.flows()] == ["abandoned"]
    assert not app.store.call(flow_open(plan, 0, 0))
    client.hset(flow_record(plan.id), "opened", int(time.time() * 1000) - 2 * 86_400_000)
    monitor.tell_flows()
    assert app.store.call(flow_ids(10)) == []


@pytest.fixture
def half(app):
    """A flow of which a part waits, and none runs: its producer is about to enqueue the first message."""
    plan = Plan()
    first = plan.add("q", reliq.NewMessage(b"first"), (), "fail")
    for queue in ("q", "other", "other"):
        plan.add(queue, reliq.NewMessage(b"later"), [first], "fail")
    sending = Sending(plan, app._queue_steps)
    with contextlib.suppress(Died):
        app.store.run(up_to(lambda op, _: op.script and op.script.name == "flow_note", sending._send()))
    assert [app.queue(name).stats().waiting for name in ("q", "other")] == [2, 2]
    return sending


class Died(Exception):
    """The process that ran steps has died."""


def up_to(there, steps):
    """Run steps up to the first call that is `there`, given the number of those before it."""
    answer, calls = None, itertools.count()
    with contextlib.suppress(StopIteration):
        while True:
            call = steps.send(answer)
            if isinstance(call, ops.Op) and there(call, next(calls)):
                raise Died
            answer = yield call


def test_a_large_flow_lets_other_tasks_have_their_turn_while_it_is_prepared(app):
    plan, pauses = Plan(), []
    for number in range(3500):
        plan.add("q" if number % 2 else "other", reliq.NewMessage(b"x"), (), "fail")

    def counted(steps):
        answer = None
        with contextlib.suppress(StopIteration):
            while True:
                call = steps.send(answer)
                pauses.extend([call] if isinstance(call, ops.Sleep) else [])
                answer = yield call

    app.store.run(counted(Sending(plan, app._queue_steps).steps()))
    assert [one.seconds for one in pauses] == [0.0, 0.0]  # after each thousand of a queue
    assert [app.queue(name).stats().ready for name in ("q", "other")] == [1750, 1750]


def stats_of(app):
    return lambda name: app.queue(name).stats()


def cancelled(app):
    return [app.queue(name).stats().counters.get("cancelled", 0) for name in ("q", "other")]


@pytest.mark.parametrize("calls", [1, 3, 5, 8])
@pytest.mark.parametrize("how", ["producer", "operator"])
def test_what_dies_while_it_gives_a_flow_up_is_followed_by_a_monitor_once(app, half, how, calls):
    flow = half._plan.id
    if how == "operator":
        app.store.call(flow_change(flow, "sending", "open"))
    steps = half._give_up() if how == "producer" else cancelled_queues(flow)
    with contextlib.suppress(Died):
        app.store.run(up_to(lambda _, before: before == calls, steps))
    monitor = Monitor(app.store)
    for _ in range(2):
        monitor.tell_flows()
        assert [app.queue(name).stats().waiting for name in ("q", "other")] == [0, 0]
        assert cancelled(app) == [2, 2]
    assert app.flow_progress(flow).state == ("abandoned" if how == "producer" else "cancelled")


@pytest.mark.parametrize("calls", [1, 2, 5, 99])
def test_a_monitor_cancels_those_that_wait_for_nobody_if_the_canceller_dies(app, calls):
    with app.flow() as flow:
        first = [flow.send("q", number) for number in range(3)]
        flow.send("q", "last", after=[*first, flow.send("other", "elsewhere", delay=60)])
    with app.queue("q").consumer() as consumer:
        (held,) = consumer.claim()
        steps = cancelled_queues(flow.id)
        with contextlib.suppress(Died):
            app.store.run(up_to(lambda _, before: before == calls, steps))
        monitor = Monitor(app.store)
        for _ in range(2):
            monitor.tell_flows()
            stats = app.queue("q").stats()
            assert (stats.ready, stats.processing, stats.counters["cancelled"]) == (0, 1, 3)
            assert app.queue("other").stats().delayed == 0
        assert app.store.call(ops.command("HLEN", KEYS.told)) == 1
        consumer.ack(held)
    assert app.flow_progress(flow.id).state == "cancelled"


def test_a_monitor_cancels_a_long_queue_in_parts(app, monkeypatch):
    monkeypatch.setattr(finishing, "_CALLS", 2)
    with app.flow() as flow:
        for _ in range(30):
            flow.send("q", "x")
    app.queue("q").send_many(range(600))
    app.store.run(cancelled_queues(flow.id))
    turns, monitor = 0, Monitor(app.store)
    while app.queue("q").stats().ready > 600:
        monitor.tell_flows()
        turns += 1
    assert turns > 5
    monitor.tell_flows()
    assert (app.flow_progress(flow.id).state, app.queue("q").stats().ready) == ("cancelled", 600)


@pytest.mark.parametrize("flows_of_a_turn", [1, 1000])
def test_a_monitor_that_others_have_forestalled_looks_for_flows_as_seldom_as_before(app, monkeypatch, flows_of_a_turn):
    monkeypatch.setattr(finishing, "_CALLS", 2)
    monkeypatch.setattr(duty, "_MOST", flows_of_a_turn)
    with app.flow() as flow:
        for _ in range(30):
            flow.send("q", "x")
    app.queue("q").send_many(range(600))
    with contextlib.suppress(Died):
        app.store.run(up_to(lambda _, before: before == 5, cancelled_queues(flow.id)))
    monitor = Monitor(app.store)
    open_flows = monitor._whole._rota.duty_of(OpenFlows)
    monitor.perform(OpenFlows)
    assert open_flows.pause == duty._SOON
    app.cancel_flow(flow.id)
    for _ in range(3):
        monitor.perform(OpenFlows)
    assert app.flow_progress(flow.id).state == "cancelled"
    assert open_flows.pause == open_flows.interval


def test_a_turn_is_short_however_many_flows_are_to_be_cancelled(app, monkeypatch):
    """The other duties wait for its end. The next turn goes on with the others."""
    monkeypatch.setattr(duty, "A_TURN", 0.0)
    for _ in range(3):
        with app.flow() as flow:
            flow.send("q", "x")
        app.store.run(cancelled_queues(flow.id))
    monitor = Monitor(app.store)
    waiting = []
    for _ in range(4):
        monitor.perform(OpenFlows)
        waiting.append(app.queue("q").stats().ready)
    assert waiting == [2, 1, 0, 0]


def test_what_a_paused_producer_sends_of_a_flow_that_was_given_up_does_not_wait_for_a_day(app, client):
    plan, monitor = Plan(), Monitor(app.store)
    plan.add("q", reliq.NewMessage(b"later"), [plan.add("q", reliq.NewMessage(b"first"), (), "fail")], "fail")

    def then_it_dies(op, _):
        if op.script and op.script.name == "flow_wait":  # it pauses before
            client.hset(flow_record(plan.id), "opened", int(time.time() * 1000) - 3_600_000)
            monitor.tell_flows()
            assert app.flow_progress(plan.id).state == "abandoned"
        return op.script and op.script.name == "flow_note"

    with contextlib.suppress(Died):
        app.store.run(up_to(then_it_dies, Sending(plan, app._queue_steps)._send()))
    assert app.queue("q").stats().waiting == 2
    assert app.store.run(telling.mend(plan.id)) == 0
    assert app.queue("q").stats().waiting == 0


def test_a_monitor_whose_clock_is_ahead_gives_no_flow_up_that_is_being_sent(app, monkeypatch):
    plan = Plan()
    plan.add("q", reliq.NewMessage(b"first"), (), "fail")
    assert app.store.call(flow_open(plan, 0, 1))
    ahead = time.time() + 3_600
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: ahead)
        Monitor(app.store).tell_flows()
    assert [one.state for one in app.flows()] == ["sending"]


def test_a_full_queue_takes_no_part_of_a_flow(app, client):
    app.queue("other").configure(max_length=3)
    with pytest.raises(reliq.QueueFull), app.flow() as flow:  # noqa: PT012
        for number in range(5):
            flow.send("q", number, after=[flow.send("other", number)])
    assert (app.flow_progress(flow.id), app.flows(), client.exists(flow_record(flow.id))) == (None, [], 0)
    assert (app.queue("q").stats().ready, app.queue("other").stats().ready) == (0, 0)
    nothing_is_left(app, client, "q", "other")


@pytest.mark.parametrize("delay", [None, 60], ids=["ready", "delayed"])
@pytest.mark.parametrize("apart", [False, True], ids=["behind each other", "behind none"])
def test_none_of_a_flow_is_sent_if_one_of_its_queues_is_full(app, client, apart, delay):
    app.queue("q").configure(max_length=3)
    with pytest.raises(reliq.QueueFull) as refused, app.flow() as flow:  # noqa: PT012
        for number in range(5):
            first = flow.send("other", number, delay=delay)
            flow.send("q", number, after=() if apart else [first])
    said = f"queue 'q' holds 0 of at most 3 messages; nothing of flow {flow.id} was sent"
    assert (type(refused.value), str(refused.value)) == (reliq.QueueFull, said)
    assert cancelled(app) == [0, 5]
    assert (app.flow_progress(flow.id), app.flows(), client.exists(flow_record(flow.id))) == (None, [], 0)
    nothing_is_left(app, client, "q", "other")
    assert [(one.ready, one.delayed) for one in map(stats_of(app), ("q", "other"))] == [(0, 0), (0, 0)]


def test_a_delayed_message_of_no_flow_stays_when_one_with_its_id_is_given_up(app):
    app.queue("other").send("plain", id="one", delay=60)
    app.queue("q").configure(max_length=1)
    with pytest.raises(reliq.QueueFull), app.flow() as flow:  # noqa: PT012
        flow.send("q", "x", after=[flow.send("other", "member", id="one")])
        flow.send("q", "y")
    assert (app.queue("other").stats().delayed, app.queue("other").stats().ready) == (1, 0)


def test_messages_that_wait_elsewhere_for_a_flow_that_was_given_up_are_cancelled(app, client):
    """One of its first messages is found to be cancelled; those behind it do not become dead letters."""
    plan, monitor = Plan(), Monitor(app.store)
    plan.add("q", reliq.NewMessage(b"later"), [plan.add("other", reliq.NewMessage(b"first"), (), "fail")], "fail")

    def then_it_dies(op, _):
        if op.script and op.script.name == "flow_wait" and app.queue("other").stats().ready == 1:  # it pauses before
            client.hset(flow_record(plan.id), "opened", int(time.time() * 1000) - 3_600_000)
            monitor.tell_flows()
        return op.script and op.script.name == "flow_change"

    with contextlib.suppress(Died):
        app.store.run(up_to(then_it_dies, Sending(plan, app._queue_steps)._send()))
    monitor.tell_flows()
    assert [(one.ready, one.dead) for one in map(stats_of(app), ("q", "other"))] == [(0, 0), (0, 0)]
    assert states(app, plan) == ["cancelled", "cancelled"]
    assert app.flow_progress(plan.id).open == 0


def test_a_flow_whose_record_redis_has_lost_says_so_and_leaves_nothing(app, client):
    plan = Plan()
    plan.add("q", reliq.NewMessage(b"later"), [plan.add("q", reliq.NewMessage(b"first"), (), "fail")], "fail")

    def lost(steps):
        answer = None
        while True:
            call = steps.send(answer)
            if isinstance(call, ops.Op) and call.script and call.script.name == "flow_note":
                client.delete(flow_record(plan.id), FLOWS)
            answer = yield call

    with pytest.raises(reliq.ReliqError, match="Redis has lost its record while it was sent"):
        app.store.run(lost(Sending(plan, app._queue_steps)._send()))
    assert app.queue("q").stats().ready == 0
    nothing_is_left(app, client)


def test_messages_of_a_flow_whose_record_and_producer_are_gone_are_cancelled_by_its_id(app, client):
    plan = Plan()
    plan.add("q", reliq.NewMessage(b"later"), [plan.add("q", reliq.NewMessage(b"first"), (), "fail")], "fail")
    with contextlib.suppress(Died):
        sending = Sending(plan, app._queue_steps)._send()
        app.store.run(up_to(lambda op, _: op.script and op.script.name == "flow_change", sending))
    client.delete(flow_record(plan.id), FLOWS)
    Monitor(app.store).tell_flows()
    assert app.queue("q").stats().waiting == 2
    assert app.queue("q").cancel_many(headers={"flow": plan.id}).cancelled == 2
    nothing_is_left(app, client)


def test_another_message_with_the_id_of_a_member_does_not_end_it(app):
    app.queue("q").send("plain", id="one")
    with app.flow() as flow:
        one = flow.send("q", "member", id="one", after=[flow.send("other", "first")])
        flow.send("q", "behind", after=[one])
    with app.queue("q").consumer() as consumer:
        (plain,) = consumer.claim()
        consumer.ack(plain)
        assert (plain.body, consumer.claim()) == (b"plain", [])
    assert states(app, flow) == ["open", "waiting", "waiting"]


def test_a_monitor_remembers_no_flow_that_has_ended(app):
    with app.flow() as flow:
        flow.send("q", "x")
    monitor = Monitor(app.store)
    open_flows = monitor._whole._rota.duty_of(OpenFlows)
    assert isinstance(open_flows, OpenFlows)
    monitor.perform(OpenFlows)
    assert [*open_flows._looked] == [flow.id]
    app.queue("q").purge()
    monitor.tell_flows()
    monitor.perform(OpenFlows)
    assert (open_flows._looked, open_flows._seen) == ({}, set())


def test_flows_that_were_given_up_are_looked_into_more_and_more_seldom(app, client):
    looks = [telling.mend_after({"state": state, "opened": "0"}, age * 1000) for state in ("open", "abandoned")
             for age in (100, 1000, 40_000)]  # fmt: skip
    assert looks == [60, 60, 60, 60, 250, 10_000]


@pytest.mark.parametrize("script", ["flow_tell", None], ids=["before any call", "half way"])
def test_a_monitor_lets_a_flow_begin_whose_producer_died_once_it_was_open(app, script):
    plan = Plan()
    first = [plan.add(queue, reliq.NewMessage(b"first"), (), "fail") for queue in ("q", "other")]
    plan.add("q", reliq.NewMessage(b"last"), first, "fail")

    def then_it_dies(op, _):
        return op.script.name == script if script and op.script else op.command[0] == "HDEL"

    with contextlib.suppress(Died):
        app.store.run(up_to(then_it_dies, Sending(plan, app._queue_steps)._send()))
    assert app.flow_progress(plan.id).state == "open"
    Monitor(app.store).tell_flows()
    assert [(one.ready, one.waiting) for one in map(stats_of(app), ("q", "other"))] == [(2, 1), (1, 0)]
    for queue in ("other", "q", "q"):
        with app.queue(queue).consumer() as consumer:
            consumer.ack(*consumer.claim())
        Monitor(app.store).tell_flows()
    assert app.flow_progress(plan.id).state == "ended"


def before(script, act, steps):
    """Run steps, and act before the first call of a script."""
    answer = None
    with contextlib.suppress(StopIteration):
        while True:
            call = steps.send(answer)
            if act is not None and isinstance(call, ops.Op) and call.script and call.script.name == script:
                act()
                act = None
            answer = yield call


#: What becomes of a message behind one that was purged, by its rule.
BEHIND_GONE = {"run": "open", "fail": "dead", "skip": "skipped"}


@pytest.mark.parametrize("rule", BEHIND_GONE)
@pytest.mark.parametrize("script", ["flow_note", "flow_change"])
def test_messages_behind_one_that_is_purged_while_their_flow_is_sent_wait_until_it_is_open(app, client, rule, script):
    plan = Plan()
    first = plan.add("other", reliq.NewMessage(b"first"), (), "fail")
    plan.add("q", reliq.NewMessage(b"last"), [first], rule)

    def purge():
        app.queue("other").purge()
        Monitor(app.store).tell_flows()
        assert app.queue("q").stats().waiting == 1

    app.store.run(before(script, purge, Sending(plan, app._queue_steps)._send()))
    for _ in range(2):  # what is told then is news itself
        Monitor(app.store).tell_flows()
    assert [one.state for one in app.flow_progress(plan.id).members] == ["cancelled", BEHIND_GONE[rule]]
    if rule == "run":
        with app.queue("q").consumer() as consumer:
            consumer.ack(*consumer.claim())
    app.queue("q").dead.purge(all=True)
    nothing_is_left(app, client, "q", "other")
    assert app.flow_progress(plan.id).state == "ended"


def test_an_ack_counts_once_if_a_monitor_lets_a_flow_begin_that_has_begun(app):
    """Its producer has let the first messages go, and died before it said so."""
    plan = Plan()
    first = [plan.add("q", reliq.NewMessage(name), (), "fail") for name in (b"a", b"b")]
    plan.add("q", reliq.NewMessage(b"last"), first, "fail")
    with contextlib.suppress(Died):
        app.store.run(up_to(lambda op, _: op.command[0] == "HDEL", Sending(plan, app._queue_steps)._send()))
    with app.queue("q").consumer() as consumer:
        a, b = consumer.claim(limit=2)
        consumer.ack(a)
        for _ in range(2):
            Monitor(app.store).tell_flows()
        assert app.queue("q").stats().waiting == 1
        consumer.ack(b)
    assert app.queue("q").stats().ready == 1


def test_a_flow_that_is_purged_as_a_whole_while_it_is_sent_has_ended(app, client):
    plan = Plan()
    plan.add("q", reliq.NewMessage(b"only"), (), "fail")

    def purge():
        app.queue("q").purge()
        Monitor(app.store).tell_flows()

    app.store.run(before("flow_change", purge, Sending(plan, app._queue_steps)._send()))
    assert app.flow_progress(plan.id).state == "ended"
    nothing_is_left(app, client)


@pytest.mark.parametrize("opened", [False, True], ids=["it arrives late", "its answer is lost"])
def test_a_flow_is_there_as_a_whole_or_not_at_all_if_nobody_knows_whether_it_is_open(app, opened):
    plan = Plan()
    first = [plan.add(queue, reliq.NewMessage(b"first"), (), "fail") for queue in ("q", "other")]
    plan.add("q", reliq.NewMessage(b"last"), first, "fail")

    def unanswered(steps):
        answer, change = None, None
        while change is None:
            call = steps.send(answer)
            if isinstance(call, ops.Op) and call.script and call.script.name == "flow_change":
                change = call
            else:
                answer = yield call
        if opened:
            yield change
        steps.throw(reliq.OutcomeUnknown("no answer"))

    with pytest.raises(reliq.OutcomeUnknown, match="no answer"):
        app.store.run(unanswered(Sending(plan, app._queue_steps)._send()))
    assert app.flow_progress(plan.id).state == ("open" if opened else "sending")
    assert [(one.ready, one.waiting) for one in map(stats_of(app), ("q", "other"))] == [(2, 2), (1, 1)]
    Monitor(app.store).tell_flows()
    waiting = [one.waiting for one in map(stats_of(app), ("q", "other"))]
    assert waiting == ([1, 0] if opened else [2, 1])


@pytest.mark.parametrize("durable", ["q", "other"])
def test_a_flow_whose_durability_is_late_is_sent_as_a_whole(app, durable, monkeypatch):
    monkeypatch.setattr(values, "DURABLE_WITHIN", 0.1)
    app.queue(durable).configure(durability="replicas=1")
    with pytest.raises(reliq.OutcomeUnknown) as late, app.flow() as flow:  # noqa: PT012
        first = flow.send("q", "first")
        last = flow.send("other", "last", after=first)
    assert str(late.value) == "enqueued, but durability replicas=1 was not reached within 0.1 s"
    assert late.value.ids == (first.id, last.id)
    assert states(app, flow) == ["open", "waiting"]
    assert [(one.ready, one.waiting) for one in map(stats_of(app), ("q", "other"))] == [(1, 0), (1, 1)]


def test_members_of_a_deleted_queue_are_lost_and_judged(app, client):
    with app.flow() as flow:
        flow.send("q", "end", after=[flow.send("other", "gone")], on_failure="run")
    app.store.run(delete("other", force=True))
    assert app.store.run(telling.mend(flow.id)) == 1
    assert app.store.run(telling.mend(flow.id)) == 0
    assert states(app, flow) == ["lost", "open"]
    assert app.queue("q").stats().ready == 1


def test_the_members_of_a_large_flow_are_looked_at_in_several_turns(app, client, monkeypatch):
    app.queue("q").configure(partitions=3)
    with app.flow() as flow:
        first = [flow.send("other", "gone"), *(flow.send("q", str(number)) for number in range(200))]
        flow.send("q", "end", after=first, on_failure="run")
    app.store.run(delete("other", force=True))
    monkeypatch.setattr(duty, "_REQUESTS", 1)
    monkeypatch.setattr(duty, "mend_after", lambda head, now: 0.0)
    monitor, turns = Monitor(app.store), 0
    while (lost := monitor.perform(duty.OpenFlows)) == 0:
        turns += 1
        monitor.look()
    assert (lost, turns > 3) == (1, True)
    assert states(app, flow)[0] == "lost"


def test_a_dead_member_that_is_put_back_is_open_again(app):
    with app.flow() as flow:
        flow.send("q", "end", after=flow.send("other", "dead"))
    with app.queue("other").consumer() as consumer:
        consumer.dead(*consumer.claim(1), "bad")
    Monitor(app.store).tell_flows()
    assert states(app, flow)[0] == "dead"
    app.queue("other").dead.redrive()
    Monitor(app.store).tell_flows()
    assert states(app, flow)[0] == "open"


def test_nothing_is_mended_that_is_there(app, client):
    with app.flow() as flow:
        dead = flow.send("other", "dead")
        flow.send("q", "end", after=[dead, flow.send("q", "first")])
    with app.queue("other").consumer() as consumer:
        consumer.dead(*consumer.claim(1), "bad")
    assert app.store.run(telling.mend(flow.id)) == 0  # not told yet
    Monitor(app.store).tell_flows()
    assert app.store.run(telling.mend(flow.id)) == 0
    assert states(app, flow) == ["dead", "waiting", "open"] or states(app, flow) == ["dead", "open", "waiting"]


def test_what_a_flow_cannot_do_is_said(app):
    with app.flow() as flow:
        other = flow.send("q", "x")
    with app.flow() as flow:
        first = flow.send("q", "first", id="one")
        for wrong in ({"on_failure": "wait"}, {"id": "one"}):
            with pytest.raises(reliq.InvalidSetting):
                flow.send("q", "x", **wrong)
        for after, why in (([other], "not of this flow"), (["one"], "not of this flow"), ([[1]], "not of this flow"),
                           ("abc", "give a list"), (5, "give a list"), (None, "give a list")):  # fmt: skip
            with pytest.raises(reliq.InvalidMessage, match=why):
                flow.send("q", "x", after=after)
        refused = {"dedup_key": "k", "window": "1h", "replace": True, "debounce": 1, "at_most": 2}
        for name, value in refused.items():
            with pytest.raises(reliq.InvalidSetting, match=f"has no {name}: flows do not take dedup_key, window"):
                flow.send("q", "x", **{name: value})
        with pytest.raises(reliq.InvalidSetting, match="has no dedup_key"):
            flow.send("q", reliq.NewMessage(b"x", dedup_key="k"))
        flow.send("q", "x", after=first, dedup_key=None, replace=False)
        with pytest.raises(TypeError, match="'nope'") as unknown:
            flow.send("q", "x", nope=1)
        assert "dedup_key" not in str(unknown.value)
        for _ in range(999):
            flow.send("q", "x", after=[first])
        with pytest.raises(reliq.InvalidSetting, match="1,000"):
            flow.send("q", "x", after=[first])


def test_what_is_sent_outside_of_the_block_is_refused(app, client):
    flow = app.flow()
    with pytest.raises(reliq.InvalidSetting, match="not open yet"):
        flow.send("q", "early")
    with flow:
        flow.send("q", "x")
        with pytest.raises(reliq.InvalidSetting, match="already open"), flow:
            pass
    with pytest.raises(reliq.InvalidSetting, match="already sent"):
        flow.send("q", "late")
    with pytest.raises(reliq.InvalidSetting, match="already sent: open a new one"), flow:
        pass
    assert (app.queue("q").stats().ready, states(app, flow)) == (1, ["open"])
    app.queue("q").configure(max_length=1)
    for error in (ZeroDivisionError, reliq.QueueFull):
        with pytest.raises(error), app.flow() as given_up:  # noqa: PT012
            given_up.send("q", "x")
            if error is ZeroDivisionError:
                raise error
        with pytest.raises(reliq.InvalidSetting, match="was given up"):
            given_up.send("q", "late")
        with pytest.raises(reliq.InvalidSetting, match="was given up"), given_up:
            pass
    assert app.queue("q").stats().ready == 1


def test_an_id_of_another_flow_is_refused(app):
    with app.flow() as flow:
        flow.send("q", "x", after=[flow.send("q", "first")], id="one")
    with pytest.raises(reliq.InvalidSetting, match="another flow"), app.flow() as second:
        second.send("q", "x", after=[second.send("q", "first")], id="one")
    assert (app.queue("q").stats().waiting, states(app, flow)) == (1, ["open", "waiting"])


def test_asyncio(client, url):
    async def main():
        app = aio.Reliq(url)
        async with app.flow() as flow:
            flow.send("q", "end", after=[flow.send("q", "first")])
        progress = await app.flow_progress(flow.id)
        assert progress
        assert [one.state for one in progress.members] == ["open", "waiting"]
        assert [one.id for one in await app.flows()] == [flow.id]
        assert await app.cancel_flow(flow.id)
        for one, why in ((app.flow(), "not open yet"), (flow, "already sent")):
            with pytest.raises(reliq.InvalidSetting, match=why):
                one.send("q", "outside")
        with pytest.raises(reliq.InvalidSetting, match="already sent"):
            async with flow:
                pass
        await app.close()

    asyncio.run(main())


def test_a_large_body_and_a_batch(app, client):
    done = []

    @app.handler("q")
    def handle(message):
        done.append(len(message.body))

    with app.batch(on_done=("q", "all")) as batch:
        message = reliq.NewMessage(b"x" * 100_000).of_batch(batch.id)
        batch.send("q", "one")
        with app.flow() as flow:
            flow.send("q", message, after=[flow.send("q", "first")])
    with working(app, monitor=True):
        eventually(lambda: len(done) == 4)
    assert (sorted(done), done[-1]) == ([3, 3, 5, 100_000], 3)
    nothing_is_left(app, client)


FORKING = """
import os, sys, reliq
app = reliq.Reliq(sys.argv[1])
child = None
try:
    with app.flow() as flow:
        first = flow.send("q", "first")
        child = os.fork()
        if not child:
            flow.send("q", "of the child", after=first)
        assert os.waitpid(child, 0)[1] == 0
        flow.send("q", "last", after=first)
except reliq.InvalidSetting as error:
    print(error, flush=True)
    os._exit(1 if child else 0)
"""
LEAVING = """
import os, sys, reliq
app = reliq.Reliq(sys.argv[1])
with app.flow() as flow:
    flow.send("q", "first")
    child = os.fork()
    if child:
        os.waitpid(child, 0)
"""


def test_a_child_that_is_forked_in_a_block_does_not_send_the_flow(app, client, url):
    subprocess.run([sys.executable, "-c", LEAVING, url], check=True, timeout=60)
    assert app.queue("q").stats().ready == 1


def test_a_forked_child_is_told_that_the_flow_is_its_parents(app, client, url):
    said = subprocess.run([sys.executable, "-c", FORKING, url], check=True, timeout=60, capture_output=True, text=True)
    assert "belongs to the process that forked this one" in said.stdout
    assert app.queue("q").stats().ready == 2


def test_a_plain_with_in_asyncio_says_what_to_write(url):
    async def main():
        async with aio.Reliq(url) as app:
            for block in (app.flow(), app.batch(), app.queue("q").consumer(), app):
                with pytest.raises(reliq.InvalidSetting, match="open it with `async with`"), block:
                    pytest.fail("it is opened")

    asyncio.run(main())
