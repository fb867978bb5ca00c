"""Flows of one queue: chains, groups and chords, as Celery calls them, by workers of each kind."""

import contextlib
import threading

import pytest

import reliq
from reliq.model.keys import QueueKeys
from tests.support.handlers import bind, settled, working_as
from tests.support.turns import Monitor
from tests.support.workers import eventually

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

    bind(app, kind, handle)
    return done


def nothing_is_left(client) -> None:
    assert not client.exists(KEYS.followed, KEYS.active, KEYS.waiting)
    assert client.hget(KEYS.config, "flowing") is None


def test_a_chain(app, client, kind, ran):
    with app.flow() as flow:
        before: list = []
        for number in range(5):
            before = [flow.send("q", number, after=before)]
    assert (app.queue("q").stats().ready, app.queue("q").stats().waiting) == (5, 4)
    with working_as(kind, app):
        eventually(lambda: settled(app))
    assert ran == [*"01234"]
    nothing_is_left(client)


def test_a_chord(app, client, kind, ran):
    with app.flow() as flow:
        header = [flow.send("q", number) for number in range(20)]
        flow.send("q", "body", after=header)
    with working_as(kind, app):
        eventually(lambda: settled(app))
    assert (sorted(ran[:20]), ran[20:]) == (sorted(map(str, range(20))), ["body"])
    nothing_is_left(client)


def test_a_group_behind_a_chord_in_a_diamond(app, client, kind, ran):
    with app.flow() as flow:
        top = flow.send("q", "top")
        sides = [flow.send("q", side, after=[top]) for side in ("left", "right")]
        flow.send("q", "bottom", after=sides)
    with working_as(kind, app):
        eventually(lambda: settled(app))
    assert (ran[0], sorted(ran[1:3]), ran[3]) == ("top", ["left", "right"], "bottom")
    nothing_is_left(client)


def test_what_waits_for_a_dead_letter_goes_on_after_its_redrive(app, client, kind, ran):
    queue = app.queue("q")
    with app.flow() as flow:
        flow.send("q", "end", after=[flow.send("q", "dies")])
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().dead)
        assert (ran, queue.stats().waiting) == (["dies"], 1)
        queue.dead.redrive()
        eventually(lambda: settled(app))
    assert ran == ["dies", "dies", "end"]
    nothing_is_left(client)


def test_a_block_that_raises_sends_nothing(app, client):
    with contextlib.suppress(ZeroDivisionError), app.flow() as flow:
        flow.send("q", "end", after=[flow.send("q", "first")])
        raise ZeroDivisionError
    assert not client.keys("*{q}*")


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
    nothing_is_left(client)


def test_what_a_flow_cannot_do_is_said(app):
    other = app.flow().send("q", "x")
    flow = app.flow()
    first = flow.send("q", "first")
    for wrong in ({"after": [other]}, {"after": [first], "key": "k"}, {"after": [first], "delay": 5}):
        with pytest.raises(reliq.InvalidSetting):
            flow.send("q", "x", **wrong)
    with pytest.raises(reliq.InvalidSetting, match="messages of one queue"):
        flow.send("other", "x", after=[first])
