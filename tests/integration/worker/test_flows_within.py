"""Flows that a handler opens: those behind its message wait for them too."""

import threading
import time
from unittest.mock import patch

import pytest

import reliq
from reliq.features.flows import telling
from reliq.features.flows.model import Plan
from reliq.features.flows.opened import Parent
from reliq.features.flows.ops import flow_open
from reliq.features.flows.sending import Sending
from reliq.model.keys import FLOWS, QueueKeys, flow_record
from tests.support.handlers import bind, settled, working_as
from tests.support.turns import Monitor
from tests.support.workers import eventually

KEYS = QueueKeys("q")


@pytest.fixture
def ran():
    return []


def nothing_is_left(app, client, *queues):
    Monitor(app.store).tell_flows()
    for keys in map(QueueKeys, queues or ("q", "parts")):
        assert not client.exists(keys.followed, keys.waiting, keys.flows)
        assert client.hget(keys.config, "flowing") is None
    assert not client.exists(FLOWS)


def states(app, flow):
    return [one.state for one in app.flow_progress(flow.id).members]


def outer(app, **options):
    """A flow of a message whose handler opens another one, and a last message."""
    with app.flow() as flow:
        cut = flow.send("q", "cut")
        flow.send("q", "last", after=cut, **options)
    return flow


def cutting(app, kind, ran, *, dies=()):
    """Handlers: `cut` opens a flow of parts and a join; a part that is among `dies` does so once."""
    lock, died, ids = threading.Lock(), set(dies), []

    def handle(message):
        with lock:
            ran.append(message.body.decode())
        if message.body == b"cut":
            with app.flow(parent=message) as flow:
                parts = [flow.send("parts", f"part {number}") for number in range(3)]
                flow.send("parts", "join", after=parts)
            ids.append(flow.id)

    bind(app, kind, handle)

    @app.handler("parts", retry=0)
    def part(message):
        with lock:
            ran.append(message.body.decode())
        if (body := message.body.decode()) in died:
            died.remove(body)
            raise reliq.Dead("as it should")

    return ids


def test_messages_behind_a_handler_wait_for_the_flow_that_it_opens(app, client, kind, ran):
    ids = cutting(app, kind, ran)
    flow = outer(app)
    with working_as(kind, app, monitor=True):
        eventually(lambda: ran[-1:] == ["last"])
        eventually(lambda: settled(app) and not app.flows())
    assert (ran[0], sorted(ran[1:4]), ran[4:]) == ("cut", ["part 0", "part 1", "part 2"], ["join", "last"])
    assert (states(app, flow), app.flow_progress(flow.id).members[0].flows) == (["handled"] * 2, (ids[0],))
    assert app.flow_progress(ids[0]).state == "ended"
    nothing_is_left(app, client)


def test_a_flow_in_a_flow_in_a_flow(app, client, kind, ran):
    def handle(message):
        depth = int(message.body)
        ran.append(depth)
        if depth < 3:
            with app.flow(parent=message) as flow:
                flow.send("q", depth + 1)

    bind(app, kind, handle)

    @app.handler("end")
    def end(message):
        ran.append("end")

    with app.flow() as flow:
        flow.send("end", "end", after=flow.send("q", 0))
    with working_as(kind, app, monitor=True):
        eventually(lambda: ran[-1:] == ["end"])
    assert ran == [0, 1, 2, 3, "end"]
    nothing_is_left(app, client, "q", "end")


def test_a_dead_letter_in_it_holds_those_behind_until_its_redrive(app, client, kind, ran):
    cutting(app, kind, ran, dies={"join"})
    flow = outer(app)
    with working_as(kind, app, monitor=True):
        eventually(lambda: states(app, flow) == ["dead", "waiting"])
        app.queue("parts").dead.redrive()
        eventually(lambda: ran[-1:] == ["last"] and not app.flows())
    assert ran[-3:] == ["join", "join", "last"]
    assert states(app, flow) == ["handled", "handled"]
    nothing_is_left(app, client)


@pytest.mark.parametrize(("rule", "state"), [("run", "handled"), ("skip", "skipped")])
def test_a_dead_letter_in_it_is_judged_by_those_behind(app, client, kind, ran, rule, state):
    cutting(app, kind, ran, dies={"join"})
    flow = outer(app, on_failure=rule)
    with working_as(kind, app, monitor=True):
        eventually(lambda: states(app, flow) == ["dead", state])
        app.queue("parts").dead.purge(all=True)
        eventually(lambda: not app.flows())
    assert states(app, flow) == ["cancelled", state]
    assert ran[-1] == ("last" if rule == "run" else "join")
    nothing_is_left(app, client)


def test_one_that_is_cancelled_in_it_fails_those_behind(app, client, ran):
    with app.queue("q").consumer() as consumer:
        flow = outer(app)
        (cut,) = consumer.claim(1)
        with app.flow(parent=cut) as within:
            within.send("parts", "slow", delay=60)
        consumer.ack(cut)
        Monitor(app.store).tell_flows()
        assert states(app, flow) == ["open", "waiting"]
        assert app.cancel_flow(within.id)
        Monitor(app.store).tell_flows()
        assert states(app, flow) == ["cancelled", "dead"]
        assert [one.reason for one in app.queue("q").dead.list()] == ["predecessor"]
        app.queue("q").dead.purge(all=True)
    nothing_is_left(app, client)


def test_a_failure_that_is_dealt_with_inside_is_none_outside(app, client, kind, ran):
    def handle(message):
        ran.append(message.body.decode())
        if message.body == b"cut":
            with app.flow(parent=message) as flow:
                part = flow.send("parts", "part")
                flow.send("q", "clean up", after=part, on_failure="run")

    bind(app, kind, handle)

    @app.handler("parts", retry=0)
    def part(message):
        raise reliq.Dead("as it should")

    flow = outer(app)
    with working_as(kind, app, monitor=True):
        eventually(lambda: ran[-1:] == ["last"])
        eventually(lambda: states(app, flow) == ["handled", "handled"])
        app.queue("parts").dead.purge(all=True)
        eventually(lambda: not app.flows())
    assert ran == ["cut", "clean up", "last"]
    nothing_is_left(app, client)


def test_a_later_run_of_the_handler_does_not_send_it_again(app, client, kind, ran):
    tries = []

    def handle(message):
        ran.append(message.body.decode())
        if message.body == b"cut":
            with app.flow(parent=message) as flow:
                tries.append((flow.send("parts", "part").id, flow.id))
            if len(tries) < 3:
                raise reliq.Retry(delay=0)

    bind(app, kind, handle)

    @app.handler("parts")
    def part(message):
        ran.append("part")

    flow = outer(app)
    with working_as(kind, app, monitor=True):
        eventually(lambda: ran[-1:] == ["last"])
    assert (ran.count("cut"), ran.count("part"), len({*tries})) == (3, 1, 1)
    assert states(app, flow) == ["handled", "handled"]
    nothing_is_left(app, client)


def test_a_run_that_was_killed_while_it_sent_is_followed_by_one_that_sends_anew(app, client, ran):
    outer_flow = outer(app)
    with app.queue("q").consumer() as consumer:
        (cut,) = consumer.claim(1)
        parent, plan = Parent.of_handler(cut, "flow"), Plan()
        plan.id = parent.flow_id(0)
        plan.add("parts", reliq.NewMessage("x"), (), "fail")
        assert app.store.call(flow_open(plan, 0, 1, parent.text, parent.place))
        with app.flow(parent=cut) as flow:
            flow.send("parts", "x")
        assert flow.id == parent.flow_id(1)
        assert app.flow_progress(plan.id).state == "abandoned"
        consumer.ack(cut)
        assert app.queue("parts").stats().ready == 1
        Monitor(app.store).tell_flows()
        assert states(app, outer_flow) == ["open", "waiting"]
        with app.queue("parts").consumer() as parts:
            parts.ack(*parts.claim(1))
        Monitor(app.store).tell_flows()
        assert states(app, outer_flow) == ["handled", "open"]


def test_what_waits_of_a_flow_that_was_sent_in_part_is_cancelled_by_the_run_that_sends_it_anew(app, client):
    class Killed(BaseException):
        pass

    def send(flow):
        flow.send("parts", "behind", after=flow.send("parts", "first"))

    outer(app)
    with app.queue("q").consumer() as consumer:
        (cut,) = consumer.claim(1)
        with patch.object(Sending, "_note", side_effect=Killed), pytest.raises(Killed), app.flow(parent=cut) as broken:
            send(broken)
        assert app.queue("parts").stats().waiting == 2
        with app.flow(parent=cut) as flow:
            send(flow)
        consumer.ack(cut)
    stats = app.queue("parts").stats()
    assert (stats.ready, stats.waiting, stats.counters["cancelled"]) == (2, 1, 2)
    assert [app.flow_progress(one.id).state for one in (broken, flow)] == ["abandoned", "open"]


def test_a_robbed_run_sends_nothing(app, client):
    outer(app)
    with app.queue("q").consumer() as robbed:
        (cut,) = robbed.claim(1)
        client.delete(KEYS.lease(robbed.id))
        Monitor(app.store).scan()
        with pytest.raises(reliq.LeaseLost), app.flow(parent=cut) as flow:
            flow.send("parts", "x")
        assert (app.queue("parts").stats().ready, app.flow_progress(flow.id)) == (0, None)
        with app.queue("q").consumer() as next_one:
            (cut,) = next_one.claim(1)
            with app.flow(parent=cut) as flow:
                flow.send("parts", "x")
            assert app.queue("parts").stats().ready == 1


def test_one_that_is_sent_in_vain_is_not_waited_for(app, client, ran):
    app.queue("parts").configure(max_length=1)
    flow = outer(app)
    with app.queue("q").consumer() as consumer:
        (cut,) = consumer.claim(1)
        with pytest.raises(reliq.QueueFull), app.flow(parent=cut) as within:  # noqa: PT012
            for number in range(5):
                within.send("parts", number)
        consumer.ack(cut)
        Monitor(app.store).tell_flows()
        assert states(app, flow) == ["handled", "open"]


def test_one_that_was_sent_in_vain_is_sent_anew_by_the_next_run_in_its_order(app, client, ran):
    outer(app)
    parts = app.queue("parts")
    parts.configure(max_length=1)

    def send(message):
        with app.flow(parent=message) as flow:
            first = [flow.send("parts", number) for number in range(2)]
            flow.send("parts", "end", after=first)
        return flow

    with app.queue("q").consumer() as consumer, parts.consumer() as others:
        (cut,) = consumer.claim(1)
        parts.send("in the way")
        with pytest.raises(reliq.QueueFull):
            send(cut)
        others.ack(*others.claim(1))
        parts.configure(max_length=None)
        flow = send(cut)
        assert (parts.stats().ready, parts.stats().waiting) == (3, 1)
        assert states(app, flow) == ["open", "open", "waiting"]
        consumer.ack(cut)


def test_the_parent_of_several_flows_waits_for_each(app, client):
    flow = outer(app)
    with app.queue("q").consumer() as consumer, app.queue("parts").consumer() as parts:
        (cut,) = consumer.claim(1)
        for name in ("one", "two"):
            with app.flow(parent=cut, name=name) as within:
                within.send("parts", name)
        consumer.ack(cut)
        for expected in ("open", "handled"):
            assert states(app, flow)[0] in ("open", expected)
            parts.ack(*parts.claim(1))
            Monitor(app.store).tell_flows()
            assert states(app, flow)[0] == expected
    assert (app.queue("q").stats().ready, app.queue("q").stats().waiting) == (1, 0)


def test_a_message_of_no_flow_may_open_one(app, client):
    app.queue("q").send("alone")
    with app.queue("q").consumer() as consumer, app.queue("parts").consumer() as parts:
        (alone,) = consumer.claim(1)
        for _ in range(2):
            with app.flow(parent=alone) as flow:
                flow.send("parts", "x")
        consumer.ack(alone)
        parts.ack(*parts.claim(5))
        assert app.queue("parts").stats().counters["acked"] == 1
    Monitor(app.store).tell_flows()
    assert app.flow_progress(flow.id).state == "ended"
    nothing_is_left(app, client)


def test_the_flow_of_the_parent_is_cancelled_with_those_that_its_handlers_have_opened(app, client):
    flow = outer(app)
    with app.queue("q").consumer() as consumer:
        (cut,) = consumer.claim(1)
        with app.flow(parent=cut) as within:
            within.send("parts", "x", delay=60)
        consumer.ack(cut)
        assert app.cancel_flow(flow.id)
    Monitor(app.store).tell_flows()
    assert app.flow_progress(within.id).state == "cancelled"
    assert states(app, flow) == ["cancelled", "cancelled"]
    nothing_is_left(app, client)


def test_what_no_monitor_has_told_is_told_later(app, client):
    flow = outer(app)
    with app.queue("q").consumer() as consumer:
        (cut,) = consumer.claim(1)
        with app.flow(parent=cut) as within:
            within.send("parts", "x")
        consumer.ack(cut)
    client.delete(flow_record(within.id))  # as after an hour
    monitor = Monitor(app.store)
    monitor.tell_flows()
    assert states(app, flow) == ["open", "waiting"]
    app.store.run(telling.mend(flow.id))
    monitor.tell_flows()
    assert states(app, flow) == ["handled", "open"]


@pytest.mark.parametrize("behind", [0, 2 * 3600], ids=["", "by a machine whose clock is behind"])
def test_a_flow_that_is_sent_again_when_it_is_forgotten_is_waited_for_again(app, client, ran, behind, monkeypatch):
    """Its calls had no higher numbers than those of the first time, and counted as late: all ran at once, unheard."""
    time_of_day = time.time_ns
    ids = []

    @app.handler("q", retry=reliq.fixed("2h", limit=1))
    def handle(message):
        ran.append(message.body.decode())
        if message.body == b"cut":
            with app.flow(parent=message) as within:
                part = within.send("parts", "part")
                within.send("parts", "join", after=part)
            ids.append(within.id)
            if not message.failures:
                raise ValueError("tried again in two hours")

    app.handler("parts")(lambda message: ran.append(message.body.decode()))
    flow = outer(app)
    with working_as("inline", app, monitor=True):
        eventually(lambda: ids and app.flow_progress(ids[0]).state == "ended")
        eventually(lambda: app.queue("q").stats().delayed)
        client.delete(flow_record(ids[0]))  # as after an hour
        monkeypatch.setattr(time, "time_ns", lambda: time_of_day() - behind * 10**9)
        app.queue("q").delayed.run(all=True)
        eventually(lambda: settled(app) and not app.flows())
    assert ran == ["cut", "part", "join"] * 2 + ["last"]
    assert ids == ids[:1] * 2
    Monitor(app.store).tell_flows()
    assert app.flow_progress(flow.id).state == "ended"
    nothing_is_left(app, client)


def test_a_parent_that_no_handler_has_is_refused(app):
    app.queue("q").send("x")
    with app.queue("q").consumer() as consumer:
        (message,) = consumer.claim(1)
    for wrong in ("x", app, app.queue("q").find(message.id).message):
        with pytest.raises(reliq.InvalidSetting, match="give the message that the handler has got"):
            app.flow(parent=wrong)
    with pytest.raises(reliq.LeaseLost), app.flow(parent=message) as flow:
        flow.send("parts", "x")
