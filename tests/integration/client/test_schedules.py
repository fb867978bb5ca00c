"""Schedules as users define them; every test runs for the sync and for the asyncio face."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from reliq import InvalidMessage, InvalidName, InvalidSetting, QueueFull
from reliq.features.schedules import ops as schedule_ops
from reliq.features.schedules.model import Definition, State
from reliq.features.schedules.recurrence import milliseconds_of
from reliq.features.schedules.steps import ScheduleSteps
from reliq.model.keys import SCHEDULES, QueueKeys
from reliq.ops import server_time
from tests.support.turns import Monitor

KEYS = QueueKeys("q")


@pytest.fixture
def app(face):
    return face()


@pytest.fixture
def monitor(store):
    return Monitor(store)


def make_due(client, name, queue="q", ago=timedelta(0)):
    """Make the latest tick before then the next one of a schedule; it is due. Return it, in ms."""
    keys = QueueKeys(queue)
    stored = schedule_ops.read_stored(client.hget(keys.schedules, name), client.hget(keys.schedule_states, name))
    assert stored is not None
    _, (tick,) = stored.definition.recurrence.between(0, milliseconds_of(datetime.now(UTC) - ago), 1)
    state = State.at(stored.definition, tick, stored.state)
    client.hset(keys.schedule_states, name, msgspec.json.encode(state))
    client.zadd(keys.ticks, {name: state.due})
    return tick


def test_a_schedule_is_added_listed_and_removed(app):
    added = app.schedules.add("report", "0 7 * * *", "q", {"kind": "daily"}, tz="Europe/Berlin")
    assert (added.name, added.queue, added.when, added.body) == ("report", "q", "0 7 * * *", b'{"kind":"daily"}')
    assert added.next_tick.hour == 7
    assert added.next_tick > datetime.now(UTC)
    assert str(added.next_tick.tzinfo) == "Europe/Berlin"
    app.schedules.add("poll", "30s", "polls")
    assert [one.name for one in app.schedules.list()] == ["poll", "report"]
    assert [one.name for one in app.schedules.list("q")] == ["report"]
    assert app.schedules.get("report") == added
    assert app.schedules.remove("report") is True
    assert app.schedules.remove("report") is False
    assert [one.name for one in app.schedules.list()] == ["poll"]


@pytest.mark.parametrize("step", ["_change", "_put"])
def test_a_schedule_that_redis_has_lost_while_it_was_added_is_added_again(app, client, monkeypatch, step):
    done = getattr(ScheduleSteps, step)

    def restored(*arguments):
        monkeypatch.setattr(ScheduleSteps, step, done)
        answer = yield from done(*arguments)
        client.flushall()  # as a restart from an older state
        return answer

    monkeypatch.setattr(ScheduleSteps, step, restored)
    assert app.schedules.add("s", "1m", "q", "body").body == b"body"
    assert [one.name for one in app.schedules.list()] == ["s"]


def test_a_tick_is_a_message_with_the_tick_as_its_id(app, monitor, client):
    app.schedules.add("s", "1m", "q", {"a": 1}, headers={"h": "v"}, priority="high")
    tick = make_due(client, "s")
    assert monitor.send_ticks() == 1
    assert monitor.send_ticks() == 0
    with app.queue("q").consumer() as consumer:
        (message,) = consumer.claim()
        assert message.id == f"s@{datetime.fromtimestamp(tick / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
        assert (message.json(), message.headers, message.priority) == ({"a": 1}, {"h": "v"}, "high")
        consumer.ack(message)
    found = app.schedules.get("s")
    assert (found.fired, found.missed, found.last_id) == (1, 0, message.id)
    assert found.last_tick.timestamp() == tick / 1000
    assert 0 <= found.lateness < 120
    assert app.queue("q").stats().counters["scheduled"] == 1


def test_the_same_definition_again_keeps_the_next_tick_even_if_it_is_overdue(app, monitor, client):
    app.schedules.add("s", "1m", "q", "x")
    make_due(client, "s")
    app.schedules.add("s", "60s", "q", "x")
    assert monitor.send_ticks() == 1


def test_a_new_body_keeps_the_next_tick_and_a_new_time_replaces_it(app, monitor, client):
    app.schedules.add("s", "1m", "q", "old")
    make_due(client, "s")
    app.schedules.add("s", "1m", "q", "new")
    assert monitor.send_ticks() == 1
    with app.queue("q").consumer() as consumer:
        (message,) = consumer.claim()
        assert message.body == b"new"
        consumer.ack(message)
    make_due(client, "s")
    changed = app.schedules.add("s", "2h", "q", "new")
    assert monitor.send_ticks() == 0
    assert changed.next_tick > datetime.now(UTC)
    assert changed.fired == 1


def test_a_schedule_moves_to_another_queue(app, monitor, client):
    app.schedules.add("s", "1m", "q")
    app.schedules.add("s", "1m", "r")
    assert [(one.name, one.queue) for one in app.schedules.list()] == [("s", "r")]
    assert not client.exists(KEYS.schedules, KEYS.schedule_states, KEYS.ticks)
    make_due(client, "s", "r")
    assert monitor.send_ticks() == 1
    assert app.queue("r").stats().ready == 1


def test_a_schedule_that_moves_to_another_queue_keeps_its_pause(app, monitor, client):
    for name in ("s", "t"):
        app.schedules.add(name, "1m", "q")
    app.schedules.pause("s")
    for name in ("s", "t"):
        app.schedules.add(name, "2m", "r")
    assert [(one.name, one.queue, one.paused) for one in app.schedules.list()] == [("s", "r", True), ("t", "r", False)]
    app.schedules.resume("s")
    assert app.schedules.get("s").next_tick > datetime.now(UTC)


def test_a_schedule_that_moves_to_another_queue_keeps_its_counts(app, monitor, client):
    app.schedules.add("s", "1m", "q")
    make_due(client, "s", ago=timedelta(minutes=4))
    assert monitor.send_ticks() == 1
    before = app.schedules.get("s")
    assert (before.fired, before.missed) == (1, 4)
    moved = app.schedules.add("s", "2m", "r")
    assert (moved.queue, moved.fired, moved.missed) == ("r", 1, 4)


def test_a_schedule_of_before_with_a_jitter_that_is_refused_now_goes_on(app, monitor, client, store):
    store.run(app.schedules._steps.put([Definition("s", "q", "*/5 * * * *", jitter=3_600_000)]))
    make_due(client, "s", ago=timedelta(hours=2))
    assert monitor.send_ticks() == 1
    app.schedules.pause("s")
    app.schedules.resume("s")
    assert app.schedules.get("s").next_tick > datetime.now(UTC)
    with pytest.raises(InvalidSetting, match="jitter is '1h'"):
        app.schedules.add("s", "*/5 * * * *", "q", jitter="1h")


def test_a_pause_sends_nothing_and_is_not_caught_up(app, monitor, client):
    app.schedules.add("s", "1m", "q", catch_up="all")
    make_due(client, "s")
    app.schedules.pause("s")
    app.schedules.pause("s")
    assert app.schedules.get("s").paused is True
    assert app.schedules.preview("s") == []
    assert monitor.send_ticks() == 0
    app.schedules.add("s", "1m", "q", "another body")
    assert app.schedules.get("s").paused is True
    app.schedules.resume("s")
    app.schedules.resume("s")
    assert monitor.send_ticks() == 0
    assert app.schedules.get("s").next_tick > datetime.now(UTC)


@pytest.mark.parametrize(
    "change",
    [
        lambda schedules: schedules.pause("s"),
        lambda schedules: schedules.add("s", "2h", "q", catch_up="all"),
        lambda schedules: schedules.add("s", "1m", "r", catch_up="all"),
    ],
    ids=["paused", "another time", "another queue"],
)
def test_overdue_ticks_that_are_not_sent_any_more_are_missed(app, monitor, client, change):
    app.schedules.add("s", "1m", "q", catch_up="all")
    make_due(client, "s", ago=timedelta(minutes=4))
    change(app.schedules)
    assert app.schedules.get("s").missed == 5
    if app.schedules.get("s").paused:
        app.schedules.resume("s")
    assert monitor.send_ticks() == 0
    assert app.schedules.get("s").missed == 5


def test_run_sends_one_beside_the_ticks(app, client):
    before = app.schedules.add("s", "0 0 1 1 *", "q", "x", key="k")
    identity = app.schedules.run("s")
    assert identity.startswith("s@20")
    assert app.queue("q").stats().ready == 1
    found = app.schedules.get("s")
    assert (found.last_id, found.next_tick, found.fired) == (identity, before.next_tick, 0)
    app.queue("q").configure(max_length=1)
    with pytest.raises(QueueFull):
        app.schedules.run("s")


def test_two_runs_within_one_millisecond_are_two_messages(app, monkeypatch):
    """A handler with `once=True` runs for both of them."""
    app.schedules.add("n" * 100, "1h", "q")
    monkeypatch.setattr(
        "reliq.ops.server_time", lambda: msgspec.structs.replace(server_time(), read=lambda _: 1_795_860_000_123)
    )
    assert len({app.schedules.run("n" * 100) for _ in range(20)}) == 20


def test_the_fate_of_the_latest_run(app):
    app.schedules.add("s", "0 0 1 1 *", "q", "x")
    assert app.schedules.fate("s") == ""
    app.schedules.run("s")
    assert app.schedules.fate("s") == "ready"
    with app.queue("q").consumer() as consumer:
        (message,) = consumer.claim()
        assert app.schedules.fate("s") == "processing"
        consumer.retry(message, delay=60)
        assert app.schedules.fate("s") == "delayed"
    app.schedules.run("s")
    with app.queue("q").consumer() as consumer:
        for message in consumer.claim(limit=2):
            consumer.dead(message, "no")
        assert app.schedules.fate("s") == "dead"
        app.schedules.run("s")
        (message,) = consumer.claim()
        consumer.ack(message)
        assert app.schedules.fate("s") == "gone"


def test_a_message_in_flight_is_being_processed(app):
    app.schedules.add("s", "0 0 1 1 *", "q", "x")
    app.schedules.run("s")
    (received,) = app.queue("q").receive(1, visibility="60s")
    assert app.schedules.fate("s") == "processing"
    app.queue("q").delete_received([received.receipt])
    assert app.schedules.fate("s") == "gone"


def test_the_fate_is_known_wherever_the_message_is_in_a_queue_with_partitions(app, monitor):
    app.queue("q").configure(partitions=4)
    for number in range(8):
        app.schedules.add(f"s{number}", "0 0 1 1 *", "q", "x", key=f"k{number}")
        app.schedules.run(f"s{number}")
    assert {app.schedules.fate(f"s{number}") for number in range(8)} == {"ready"}
    with app.queue("q").consumer() as consumer:
        while messages := consumer.claim(limit=8):
            assert {app.schedules.fate(message.id.partition("@")[0]) for message in messages} == {"processing"}
            for message in messages:
                consumer.dead(message, "no")
    assert {app.schedules.fate(f"s{number}") for number in range(8)} == {"dead"}
    assert app.queue("q").dead.purge(all=True) == 8
    assert {app.schedules.fate(f"s{number}") for number in range(8)} == {"gone"}


def test_preview_shows_the_next_ticks_in_the_time_zone(app):
    app.schedules.add("s", "30 2 * * *", "q", tz="Europe/Berlin", start="2030-03-30T00:00")
    found = app.schedules.preview("s", 3)
    assert [f"{one:%m-%d %H:%M %z}" for one in found] == ["03-30 02:30 +0100", "03-31 03:00 +0200", "04-01 02:30 +0200"]
    assert len(app.schedules.preview("s")) == 10
    for count in (0, -1, 10**6, "x"):
        with pytest.raises(InvalidSetting, match="count"):
            app.schedules.preview("s", count)


def test_after_its_end_a_schedule_is_still_there_and_sends_nothing(app, monitor):
    ended = app.schedules.add("s", "1m", "q", end="2020-01-01")
    assert ended.ended
    assert ended.next_tick is None
    assert app.schedules.preview("s") == []
    assert monitor.send_ticks() == 0


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("s", "0 0 31 2 *", "q"), {}, InvalidSetting),
        (("s", "30s", "q"), {"tz": "Mars/Olympus"}, InvalidSetting),
        (("s", "30 parsecs", "q"), {}, InvalidSetting),
        (("a b", "30s", "q"), {}, InvalidName),
        (("s", "30s", "a}b"), {}, InvalidName),
        (("s", "30s", "q"), {"start": "2027-01-02", "end": "2027-01-01"}, InvalidSetting),
        (("s", "30s", "q", object()), {}, InvalidMessage),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(app, client, arguments, options, error):
    app.schedules.add("s", "1h", "q", "first")
    before = {key: client.dump(key) for key in client.keys("reliq:*") if b"clock" not in key}
    with pytest.raises(error):
        app.schedules.add(*arguments, **options)
    assert {key: client.dump(key) for key in before} == before
    assert {key for key in client.keys("reliq:*") if b"clock" not in key} == set(before)


@pytest.mark.parametrize("verb", ["get", "pause", "resume", "run", "preview", "fate"])
def test_a_schedule_that_is_not_there_is_named(app, verb):
    with pytest.raises(InvalidName, match="no schedule 'nothing'"):
        getattr(app.schedules, verb)("nothing")
    with pytest.raises(InvalidName, match="schedule name ''"):
        getattr(app.schedules, verb)("")


@pytest.mark.parametrize("key", [KEYS.schedules, KEYS.schedule_states])
def test_an_unreadable_schedule_is_named_and_can_be_removed(app, client, key):
    for name in ("s", "t"):
        app.schedules.add(name, "1h", "q")
    client.hset(key, "s", "no JSON")
    assert [one.name for one in app.schedules.list()] == ["t"]
    (why,) = app.schedules.unreadable().values()
    assert "schedule 's' in Redis cannot be read" in why
    for call in (app.schedules.get, app.schedules.pause, app.schedules.run):
        with pytest.raises(InvalidSetting, match="schedule 's' in Redis cannot be read"):
            call("s")
    assert app.schedules.remove("s") is True
    assert app.schedules.unreadable() == {}


def test_the_index_is_only_a_hint(app, client):
    client.hset(SCHEDULES, "ghost", "q")
    assert app.schedules.list() == []
    with pytest.raises(InvalidName, match="ghost"):
        app.schedules.pause("ghost")
    app.schedules.add("ghost", "1h", "r")
    assert [one.queue for one in app.schedules.list()] == ["r"]


def test_a_queue_without_schedules_has_no_keys_of_them(app, client):
    app.queue("q").send("x")
    assert not client.exists(KEYS.schedules, KEYS.schedule_states, KEYS.ticks, KEYS.runs)
