"""A flow together with each other feature: the chord ends in its order, and nothing is left."""

import random
import threading
import time
from typing import Any

import pytest

import reliq
from reliq import testing
from reliq.model.keys import FLOWS, QueueKeys
from tests.support.turns import Monitor
from tests.support.workers import eventually, working

KEYS = QueueKeys("q")
LARGE = "x" * 5000

#: By feature: settings of the queue, options of the messages, options of the handler.
WITH: dict[str, tuple[Any, Any, Any]] = {
    "nothing": ({}, {}, {}),
    "keys": ({}, {"key": "k"}, {}),
    "limit keys": ({"key_concurrency": 1}, {"limit_key": "k"}, {}),
    "fair keys": ({"fair": True}, {"limit_key": "k"}, {}),
    "rate of keys": ({"key_rate": "100/s"}, {"limit_key": "k"}, {}),
    "priorities": ({}, {"priority": "high"}, {}),
    "delays": ({}, {"delay": 0.05}, {}),
    "ttl": ({}, {"ttl": 60}, {}),
    "concurrency": ({"concurrency": 1}, {}, {}),
    "rate": ({"rate": "200/s"}, {}, {}),
    "limit of messages": ({"max_length": 100}, {}, {}),
    "limit of bytes": ({"max_bytes": 10_000_000}, {}, {}),
    "index": ({"track": True}, {}, {}),
    "history": ({"history": "1h"}, {}, {}),
    "once": ({}, {}, {"once": True}),
    "results": ({}, {}, {"result": "1h"}),
    "partitions": ({"partitions": 2}, {}, {}),
    "partitions and keys": ({"partitions": 2}, {"key": "k"}, {}),
}


@pytest.mark.parametrize("body", ["x", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("feature", WITH)
def test_a_chord_and_each_feature(app, client, feature, body):
    settings, options, handled_with = WITH[feature]
    queue = app.queue("q")
    if settings:
        queue.configure(**settings)
    ran, lock = [], threading.Lock()

    @app.handler("q", retry=reliq.fixed(0.01, limit=3), **handled_with)
    def handle(message: reliq.Message) -> str:
        number = int(message.headers["flow-member"])
        with lock:
            ran.append(number)
        if number == 1 and ran.count(1) == 1:
            raise ValueError("tried again")
        return message.body.decode()

    with app.flow() as flow:
        first = [flow.send("q", body, **options) for _ in range(5)]
        middle = [flow.send("q", body, after=first, **options) for _ in range(3)]
        flow.send("q", body, after=[first[0], *middle], **options)
    with working(app, monitor=True):
        eventually(lambda: app.flow_progress(flow.id).state == "ended")
    assert (sorted(set(ran[:6])), sorted(ran[6:9]), ran[9:]) == ([*range(5)], [5, 6, 7], [8])
    Monitor(app.store).tell_flows()
    for keys in (KEYS, QueueKeys("q@partition.1")):
        assert not client.exists(keys.waiting, keys.flows, keys.bodies)
        left = [one for one in client.hkeys(keys.followed) if one.startswith(b"\v")]
        assert (left, client.hget(keys.config, "flowing")) == ([], None)
    assert not client.exists(FLOWS)


@pytest.mark.parametrize("how", ["sleeps", "waits", "steps", "emits"])
def test_what_a_handler_does_holds_those_behind_it(app, how):
    ran: list[str] = []

    @app.handler("q")
    def handle(message: reliq.Message) -> None:
        if message.body == b"first":
            if how == "sleeps":
                message.sleep("a while", seconds=0.2)
            elif how == "waits":
                message.wait("go", timeout="1m")
            elif how == "steps":
                message.step("one", ran.append, "step")
            else:
                message.emit("chunk")
        ran.append(message.body.decode())

    with app.flow() as flow:
        first = flow.send("q", "first")
        flow.send("q", "last", after=[first])
    with working(app, monitor=True):
        if how == "waits":
            eventually(lambda: app.queue("q").stats().parked)
            assert app.flow_progress(flow.id).open == 2
            app.queue("q").signal(first.id, "go")
        eventually(lambda: app.flow_progress(flow.id).state == "ended")
    assert [one for one in ran if one != "step"] == ["first", "last"]


def test_one_that_expires_is_dead_and_judged(app):
    ran = []

    @app.handler("q")
    def handle(message):
        ran.append(message.body)

    with app.flow() as flow:
        flow.send("q", "last", after=[flow.send("q", "first", ttl=0.01)], on_failure="run")
    time.sleep(0.05)
    with working(app, monitor=True):
        eventually(lambda: ran)
    assert ran == [b"last"]


def test_a_member_that_is_received_and_deleted_counts_as_handled(app):
    queue = app.queue("q")
    with app.flow() as flow:
        flow.send("q", "last", after=[flow.send("q", "first")])
    (first,) = queue.receive(5, visibility=30)
    assert queue.delete_received([first.receipt]) == ["deleted"]
    (last,) = queue.receive(5, visibility=30)
    assert last.message.body == b"last"


def test_a_worker_that_dies_holds_those_behind_it(app, client):
    queue = app.queue("q")
    with app.flow() as flow:
        flow.send("q", "last", after=[flow.send("q", "first")], on_failure="run")
    queue.configure(max_deliveries=1)
    with queue.consumer() as lost:
        assert lost.claim(1)
        client.delete(*client.keys(KEYS.lease("*")))
        Monitor(app.store).scan()
    Monitor(app.store).tell_flows()
    assert [one.state for one in app.flow_progress(flow.id).members] == ["dead", "open"]


@pytest.mark.parametrize("seed", range(12))
def test_graphs_by_chance_end_as_their_rules_say(app, client, seed):
    chance = random.Random(seed)
    ran: list[int] = []

    def handle(message):
        ran.append(int(message.headers["flow-member"]))
        if message.body == b"dies":
            raise reliq.Dead("as it should")

    for name in ("a", "b"):
        app.handler(name)(handle)
    fates: list[str] = []
    after: list[list[int]] = []
    with app.flow() as flow:
        sent: list[reliq.FlowMessage] = []
        for number in range(15):
            before = chance.sample(range(number), min(number, chance.choice((0, 1, 2, 4))))
            dies, rule = chance.random() < 0.15, chance.choice(("run", "skip"))
            failed = any(fates[one] != "handled" for one in before)
            fates.append("skipped" if failed and rule == "skip" else "dead" if dies else "handled")
            after.append(before)
            to, body = chance.choice("ab"), "dies" if dies else "x"
            sent.append(flow.send(to, body, after=[sent[one] for one in before], on_failure=rule))
    with working(app, monitor=True):
        eventually(lambda: [one.state for one in app.flow_progress(flow.id).members] == fates)
    assert sorted(ran) == [number for number, fate in enumerate(fates) if fate != "skipped"]
    for number in ran:
        late = [one for one in after[number] if fates[one] != "skipped" and ran.index(one) > ran.index(number)]
        assert late == []


def test_without_a_server(app):
    ran = []
    offline = testing.fake(reliq.Reliq())

    @offline.handler("a", result="1h")
    def a(message):
        ran.append(message.body)
        if message.body == b"dies":
            raise reliq.Dead("as it should")
        return message.body.decode()

    @offline.handler("b")
    def b(message):
        ran.append(message.results())

    with offline.flow() as flow:
        flow.send("b", "x", after=[flow.send("a", "1"), flow.send("a", "dies")], on_failure="run")
    testing.work_off(offline)
    assert ran == [b"1", b"dies", ["1", None]]
    progress = offline.flow_progress(flow.id)
    assert progress
    assert [one.state for one in progress.members] == ["handled", "dead", "handled"]


@pytest.mark.parametrize("options", [{"key": "k"}, {"limit_key": "k"}], ids=str)
@pytest.mark.parametrize("track", [False, True])
def test_a_cancellation_of_a_key_finds_those_that_wait_for_their_flow(app, options, track):
    queue = app.queue("q")
    queue.configure(track=track, key_concurrency=1)
    with app.flow() as flow:
        first = flow.send("q", "first", **options)
        behind = [flow.send("q", "behind", after=first, **options) for _ in range(120)]
        other = flow.send("q", "other", after=first, key="other")
    queue.send_many([reliq.NewMessage("in line", **options) for _ in range(3)])
    assert queue.cancel_many(key="k", dry_run=True).cancelled == 124
    assert queue.cancel_many(key="k").cancelled == 124
    Monitor(app.store).tell_flows()
    states = {one.id: one.state for one in app.flow_progress(flow.id).members}
    assert states == {**{one.id: "cancelled" for one in [first, *behind]}, other.id: "dead"}
    assert (queue.stats().ready, [one.id for one in queue.dead.list()]) == (0, [other.id])
