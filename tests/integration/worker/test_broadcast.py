"""Broadcasts: every running instance gets every message, and its queue goes with it."""

import signal
import textwrap

import pytest

import reliq
from reliq import InvalidHandler, InvalidName, InvalidSetting
from reliq.features.topics import duty
from reliq.features.topics import ops as own
from reliq.features.topics.model import Broadcast
from reliq.model.keys import QueueKeys, instance_of, instance_queue, new_owner
from tests.support.turns import Monitor
from tests.support.workers import eventually, process, working


def instances(app):
    return [name for name in app.queues(of_broadcasts=True) if instance_of(name)]


def bound(app):
    return {binding.queue for binding in app.topics.list()}


def test_every_instance_gets_every_message(app):
    seen = []

    @app.broadcast("config.#")
    def reload(message):
        seen.append((message.queue, message.routing_key))

    with working(app), working(app):
        eventually(lambda: len(bound(app)) == 2)
        queues = bound(app)
        assert set(app.publish("config.prices", {})) == queues
        eventually(lambda: sorted(seen) == [(queue, "config.prices") for queue in sorted(queues)])
        assert app.publish("other.key", 1) == {}
    assert bound(app) == set()


@pytest.mark.parametrize("kind", ["async", "threads"])
def test_handlers_of_every_kind(app, kind):
    seen = []
    if kind == "async":

        @app.broadcast("config.#")
        async def reload(message):
            seen.append(message.json())
    else:
        app.broadcast("config.#")(lambda message: seen.append(message.json()))
    with working(app, threads=4 if kind == "threads" else 1):
        eventually(lambda: bound(app))
        app.publish("config.prices", 7)
        eventually(lambda: seen == [7])


def test_a_failing_one_is_logged_and_not_tried_again(app, caplog):
    calls = []

    @app.broadcast("config.#")
    def reload(message):
        calls.append(message.id)
        raise ValueError("broken")

    with working(app, monitor=True):
        (queue,) = eventually(lambda: bound(app))
        app.publish("config.prices", 7)
        eventually(lambda: app.queue(queue, of_broadcast=True).stats().dead == 1)
        eventually(lambda: f"dead queue={queue} " in caplog.text)  # written once Redis has answered
        assert len(calls) == 1
        assert "ValueError: broken" in caplog.text
        assert app.queue(queue, of_broadcast=True).dead.list()[0].errors[0].error_class == "ValueError"


def test_an_instance_too_far_behind_does_not_stop_the_others(app):
    slow = instance_queue("reload.1", new_owner())
    app.store.call(own.bind("bind", [f"{slow} config.#"]))
    app.subscribe("audit@all", "#")
    app.store.call(reliq.ops.command("HSET", QueueKeys(slow).config, "max_length", 2, "overflow", "drop"))
    for number in range(5):
        app.publish("config.prices", number)
    behind = app.queue(slow, of_broadcast=True).stats()
    assert (behind.ready, app.queue("audit@all").stats().ready) == (2, 5)
    assert behind.counters["rejected"] == 3


@pytest.mark.long
def test_a_killed_instance_leaves_nothing(app, url, tmp_path):
    (tmp_path / "watcher.py").write_text(
        textwrap.dedent("""
        import reliq
        app = reliq.Reliq()

        @app.broadcast("config.#")
        def reload(message):
            app.queue("seen").send(message.queue)
        """)
    )
    with process("monitor", "--url", url), process("worker", "watcher:app", "--url", url, folder=tmp_path) as worker:
        (queue,) = eventually(lambda: instances(app))
        eventually(lambda: app.publish("config.prices", 1))
        eventually(lambda: app.queue("seen").stats().ready >= 1)
        worker.send_signal(signal.SIGKILL)
        eventually(lambda: instances(app) == [] and queue not in bound(app), timeout=60)
    left = [key for key in app.store.call(reliq.ops.command("KEYS", "*")) if queue.encode() in key]
    assert left == []


def test_a_suspended_instance_comes_back(app):
    """Its queue was dropped meanwhile: it binds it anew."""
    seen = []
    app.broadcast("config.#")(lambda message: seen.append(message.json()))
    with working(app):
        (queue,) = eventually(lambda: bound(app))
        app.unsubscribe(queue, "config.#")
        app.store.call(reliq.ops.command("DEL", *QueueKeys(queue).everything))
        eventually(lambda: queue in bound(app))
        app.publish("config.prices", 7)
        eventually(lambda: seen == [7])


def test_an_instance_that_only_starts_is_not_dropped_at_once(app):
    queue = instance_queue("reload.1", new_owner())
    app.store.call(own.bind("bind", [f"{queue} config.#"]))
    monitor = Monitor(app.store)
    monitor.scan()
    assert bound(app) == {queue}


LIKE_AN_INSTANCE = instance_queue("orders", new_owner())


@pytest.mark.parametrize(
    "use",
    [
        lambda app: app.queue(LIKE_AN_INSTANCE),
        lambda app: app.subscribe(LIKE_AN_INSTANCE, "order.#"),
        lambda app: app.handler(LIKE_AN_INSTANCE),
        lambda app: app.check(LIKE_AN_INSTANCE)(print),
        lambda app: app.topics.set_alternate(LIKE_AN_INSTANCE),
    ],
)
def test_no_user_gives_a_queue_the_name_of_an_instance(app, use):
    """It would go, with all it holds, a few seconds after its consumers."""
    app.queue(LIKE_AN_INSTANCE, of_broadcast=True)  # to look at it changes nothing
    with pytest.raises(InvalidName, match="belongs to a broadcast; choose another"):
        use(app)
    assert app.queues(of_broadcasts=True) == []


def test_a_monitor_drops_no_queue_that_only_has_such_a_name(app, monkeypatch):
    """An older version, or another program, has put messages there."""
    monkeypatch.setattr(duty, "_GRACE", 0.0)
    keys = QueueKeys(LIKE_AN_INSTANCE)
    app.store.call([reliq.ops.announce(keys.queue), reliq.ops.command("LPUSH", keys.messages, b"x")])
    monitor = Monitor(app.store)
    for _ in range(4):
        monitor.scan()
    assert app.queues(of_broadcasts=True) == [keys.queue]
    app.store.call(reliq.ops.command("HSET", keys.config, "overflow", "drop"))
    eventually(lambda: (monitor.scan(), app.queues(of_broadcasts=True) == [])[1])


def test_bad_registrations_are_refused(app):
    with pytest.raises(InvalidHandler, match="not a function"):
        app.broadcast("config.#")("reload")
    with pytest.raises(InvalidName, match="whole words"):
        app.broadcast("config*")(print)
    with pytest.raises(InvalidName):
        app.broadcast(lambda message: None)  # without its parentheses
    with pytest.raises(InvalidName):
        app.handler(lambda message: None)
    with pytest.raises(InvalidSetting, match="no handlers"), working(reliq.Reliq(app.url)):
        pass


def test_two_functions_of_one_name_have_a_queue_each(app):
    for _ in range(2):
        app.broadcast("config.#")(lambda message: None)
    names = {one.name for one in app.handlers.declared(Broadcast)}
    assert len(names) == 2
    assert all(instance_of(instance_queue(name, new_owner())) for name in names)
