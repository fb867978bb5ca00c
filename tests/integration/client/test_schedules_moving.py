"""Schedules that several processes change at once, or one that dies: none is lost, none ticks unseen or twice."""

import contextlib
from datetime import timedelta

import pytest

import reliq
from reliq.errors import InvalidName, QueueFull
from reliq.model.keys import QueueKeys
from reliq.protocol.deletion import delete
from tests.integration.client.test_schedules import make_due
from tests.support.hooked import DEATH, hooked
from tests.support.losing_proxy import LosingProxy, scripts_of
from tests.support.turns import Monitor

KEYS = QueueKeys("q")
QUEUES = ("q", "r", "t")
STEPS = range(1, 18)  #: the requests of a move, and one more
OF_A_REMOVAL = STEPS[:7]
OF_AN_ADD = STEPS[:10]


@pytest.fixture
def other(url):
    with reliq.Reliq(url) as app:
        yield app


def ticking(client):
    """The schedules that tick, with their queues; of those on their way only the monitor's look is noted."""
    found = [(name, of) for of in QUEUES for name in client.zrange(QueueKeys(of).ticks, 0, -1)]
    on_their_way = {(name, of) for name, of in found if b'"source"' in client.hget(QueueKeys(of).schedule_states, name)}
    return sorted((name.decode(), of) for name, of in found if (name, of) not in on_their_way)


def listed(app):
    return sorted((one.name, one.queue) for one in app.schedules.list() if not one.paused)


def left(client):
    """The queues in which a schedule lies."""
    return [of for of in QUEUES if client.exists(QueueKeys(of).schedules, QueueKeys(of).schedule_states)]


def end_moves(app, client):
    """Let a monitor look, as if the time that a move takes were over."""
    for of in QUEUES:
        if b'"source"' in (client.hget(QueueKeys(of).schedule_states, "s") or b""):
            client.zadd(QueueKeys(of).ticks, {"s": 1})
    monitor = Monitor(app.store)
    for _ in range(3):
        monitor.send_ticks()


def moving(app, queue="r"):
    steps = app.schedules._steps
    return steps.put([steps.define("s", "1h", queue, "new", {})])


def run(app, steps, after, hook):
    """Run the steps with a hook; return whether they came to it."""
    came = []

    def note():
        came.append(after)
        return hook()

    app.store.run(hooked(steps, after, note))
    return bool(came)


def test_the_last_step_is_behind_the_end_of_what_it_is_for(app):
    assert not run(app, moving(app, "q"), OF_AN_ADD[-1], list)
    calls = app.schedules._steps
    for steps, of in ((moving(app), STEPS), (calls.run("s"), OF_A_REMOVAL), (calls.remove("s"), OF_A_REMOVAL)):
        assert not run(app, steps, of[-1], list)


@pytest.mark.parametrize("paused", [False, True], ids=["ticking", "paused"])
@pytest.mark.parametrize("after", STEPS)
def test_a_move_whose_process_died_is_ended_by_a_repetition(app, other, client, after, paused):
    app.schedules.add("s", "1h", "q", "old")
    make_due(client, "s", ago=timedelta(hours=3))
    Monitor(app.store).send_ticks()
    if paused:
        app.schedules.pause("s")
    before = app.schedules.get("s")
    run(app, moving(app), after, lambda: DEATH)
    assert len(other.schedules.list()) == 1
    assert len(ticking(client)) <= 1
    moved = other.schedules.add("s", "1h", "r", "new")
    assert (moved.queue, moved.paused, moved.fired, moved.missed) == ("r", paused, before.fired, before.missed)
    assert moved.next_tick == before.next_tick
    assert left(client) == ["r"]
    assert ticking(client) == listed(other) == ([] if paused else [("s", "r")])


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (lambda schedules: schedules.remove("s"), []),
        (lambda schedules: schedules.pause("s"), []),
        (lambda schedules: schedules.pause("s") or schedules.resume("s"), None),
        (lambda schedules: schedules.add("s", "1h", "t"), [("s", "t")]),
        (lambda schedules: schedules.add("s", "1h", "q"), [("s", "q")]),
    ],
    ids=["removed", "paused", "resumed", "moved on", "moved back"],
)
@pytest.mark.parametrize("after", STEPS)
def test_after_the_death_of_a_mover_every_call_finds_all_of_the_schedule(app, other, client, after, verb, expected):
    app.schedules.add("s", "1h", "q")
    run(app, moving(app), after, lambda: DEATH)
    verb(other.schedules)
    assert ticking(client) == listed(other)
    assert expected is None or ticking(client) == expected


@pytest.mark.parametrize("after", STEPS)
def test_a_monitor_ends_the_move_of_a_process_that_has_died(app, other, client, after):
    app.schedules.add("s", "1h", "q")
    run(app, moving(app), after, lambda: DEATH)
    end_moves(app, client)
    assert ticking(client) == listed(other)
    assert len(listed(other)) == 1


@pytest.mark.parametrize("deleted", ["q", "r", "t"])
@pytest.mark.parametrize("again", [None, 6], ids=["once", "and on"])
@pytest.mark.parametrize("after", STEPS)
def test_a_queue_that_is_deleted_after_the_death_of_a_mover_leaves_no_part_of_a_schedule(
    app, other, client, after, again, deleted
):
    app.schedules.add("s", "1h", "q")
    run(app, moving(app), after, lambda: DEATH)
    if again is not None:
        run(app, moving(app, "t"), again, lambda: DEATH)
    (before,) = listed(other)
    other.store.run(delete(deleted, force=True))
    assert listed(other) == [one for one in [before] if one != ("s", deleted)]
    end_moves(other, client)
    assert ticking(client) == listed(other)
    other.schedules.remove("s")
    assert ticking(client) == listed(other) == []


@pytest.mark.parametrize("after", STEPS)
def test_redis_that_is_full_during_a_move_loses_nothing(app, client, after):
    app.schedules.add("s", "1h", "q")
    app.queue("r").send("x")
    limit = client.config_get("maxmemory")["maxmemory"]
    try:
        run(app, moving(app), after, lambda: client.config_set("maxmemory", 1))
    except QueueFull:
        assert ticking(client) == [("s", "q")]
    finally:
        client.config_set("maxmemory", limit)
    assert [one.name for one in app.schedules.list()] == ["s"]
    app.schedules.add("s", "1h", "r", "new")
    assert ticking(client) == listed(app) == [("s", "r")]


def test_a_full_redis_refuses_a_move_and_changes_nothing(app, client):
    app.schedules.add("s", "1h", "q")
    app.queue("r").send("x")
    before, limit = app.schedules.get("s"), client.config_get("maxmemory")["maxmemory"]
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(QueueFull):
            app.schedules.add("s", "1h", "r", "new")
    finally:
        client.config_set("maxmemory", limit)
    assert app.schedules.get("s") == before
    assert left(client) == ["q"]


@pytest.mark.parametrize("after", STEPS)
def test_a_tick_during_a_move_is_sent_once_and_counted(app, other, client, after):
    app.schedules.add("s", "1h", "q")

    def tick():
        for queue in QUEUES:
            if ("s", queue) in ticking(client):
                make_due(client, "s", queue)
        Monitor(other.store).send_ticks()

    came = run(app, moving(app), after, tick)
    found = app.schedules.get("s")
    sent = sum(app.queue(queue).stats().ready for queue in QUEUES)
    assert found.fired + found.missed == sent <= came
    assert ticking(client) == [("s", "r")]
    assert found.last_run_at is None or found.next_tick > found.last_run_at


@pytest.mark.parametrize(
    "deed",
    [
        lambda schedules: schedules.remove("s"),
        lambda schedules: schedules.pause("s"),
        lambda schedules: schedules.add("s", "1h", "t", "third"),
        lambda schedules: schedules.add("s", "2h", "q", "third"),
        lambda schedules: schedules.add("s", "1h", "r", "third"),
        lambda schedules: schedules.remove("s") and schedules.add("s", "1h", "r", "third"),
        lambda schedules: schedules.remove("s") and schedules.add("s", "1h", "q", "third"),
    ],
    ids=["remove", "pause", "move on", "change", "move alike", "remove and add there", "remove and add here"],
)
@pytest.mark.parametrize(
    ("after", "before"), [*((step, True) for step in STEPS), *((step, False) for step in OF_AN_ADD)]
)
def test_what_others_do_during_an_add_leaves_one_schedule_that_is_listed(app, other, client, after, before, deed):
    if before:
        app.schedules.add("s", "1h", "q")

    def interfere():
        if other.schedules.list():
            deed(other.schedules)

    run(app, moving(app), after, interfere)
    assert ticking(client) == listed(other)
    assert len(left(client)) == len(other.schedules.list()) <= 1


@pytest.mark.parametrize(
    "deed",
    [
        lambda schedules: schedules.remove("s"),
        lambda schedules: schedules.add("s", "1h", "t", "third") and schedules.add("s", "1h", "q", "third"),
    ],
    ids=["remove", "there and back"],
)
@pytest.mark.parametrize("before", [None, "q", "r"])
def test_who_dies_beside_another_one_that_changes_the_schedule_leaves_no_tick_unseen(app, other, client, before, deed):
    for after in STEPS:
        for death in range(after, after + 8):
            client.flushdb()
            if before:
                app.schedules.add("s", "1h", before)
            adding = hooked(moving(app), after, lambda: deed(other.schedules))
            is_over = not run(app, adding, death, lambda: DEATH)
            end_moves(app, client)
            assert ticking(client) == listed(other), (after, death)
            if is_over:
                break


def test_a_schedule_whose_adder_has_died_ticks_once_the_index_has_it(app, other, client):
    ended = []
    for after in STEPS[:8]:
        client.flushdb()
        run(app, moving(app), after, lambda: DEATH)
        assert ticking(client) in ([], [("s", "r")])
        end_moves(app, client)
        assert ticking(client) == listed(other)
        ended.append(listed(other) == [("s", "r")])
        assert other.schedules.add("s", "1h", "r", "new").queue == "r"
        assert ticking(client) == listed(other) == [("s", "r")]
    assert ended == sorted(ended)
    assert ended[-1]


@pytest.mark.parametrize("queue", ["q", "r"])
@pytest.mark.parametrize("after", OF_A_REMOVAL)
def test_a_schedule_that_is_added_during_its_removal_is_listed_if_it_ticks(app, other, client, after, queue):
    app.schedules.add("s", "1h", "q")
    add = lambda: other.schedules._store.run(moving(other, queue))  # noqa: E731
    run(app, app.schedules._steps.remove("s"), after, add)
    assert ticking(client) == listed(other)
    other.schedules.remove("s")
    assert ticking(client) == listed(other) == left(client) == []


class Forbidden(Exception):
    pass


def only(queue):
    def check(owner):
        if owner != queue:
            raise Forbidden(owner)

    return check


@pytest.mark.parametrize("after", STEPS)
def test_of_two_who_may_not_take_from_each_other_one_is_refused_at_any_moment(app, other, client, after):
    refused = []

    def add(app, queue, after=0, hook=None):
        steps = app.schedules._steps.checked(only(queue))
        try:
            app.store.run(hooked(steps.put([steps.define("s", "1h", queue, queue, {})]), after, hook))
        except Forbidden:
            refused.append(queue)

    add(app, "r", after, lambda: add(other, "q"))
    assert refused in (["q"], ["r"], [])
    assert ticking(client) == listed(other) == [("s", "q" if refused == ["r"] else "r")]
    assert refused or after > 9  # else the first one had ended before


@pytest.mark.parametrize("verb", ["remove", "pause", "resume", "run", "get", "fate", "preview"])
def test_a_call_changes_only_the_schedule_of_a_queue_that_was_checked(app, verb):
    app.schedules.add("s", "1h", "q")
    before = app.schedules.get("s")
    with pytest.raises(Forbidden, match="q"):
        getattr(app.schedules.checked(only("r")), verb)("s")
    assert app.schedules.get("s") == before
    assert app.queue("q").stats().ready == 0
    getattr(app.schedules.checked(only("q")), verb)("s")


@pytest.mark.parametrize("after", OF_A_REMOVAL)
def test_a_removal_does_not_follow_a_schedule_to_another_queue(app, other, client, after):
    app.schedules.add("s", "1h", "q")
    steps, came = app.schedules._steps.checked(only("q")), False

    def move():
        nonlocal came
        came = True
        other.schedules._store.run(moving(other))

    try:
        app.store.run(hooked(steps.remove("s"), after, move))
    except Forbidden:
        assert came
    assert ticking(client) == listed(other)
    if came:
        assert listed(other) in ([("s", "r")], [])


@pytest.mark.parametrize("after", OF_A_REMOVAL)
def test_a_run_beside_a_removal_leaves_nothing(app, other, client, after):
    app.schedules.add("s", "1h", "q")
    with contextlib.suppress(InvalidName):
        run(app, app.schedules._steps.run("s"), after, lambda: other.schedules.remove("s"))
    other.schedules.remove("s")
    assert not client.exists(KEYS.runs)


def test_a_removal_whose_reply_is_lost_answers_as_the_first_try(app, redis_server):
    for name in ("s", "t"):
        app.schedules.add(name, "1h", "q")
    assert app.schedules.remove("t") is True  # Redis knows the scripts now
    lost: list[bytes] = []

    def is_first(data):
        if scripts_of("q")(data) and not lost:
            lost.append(data)
            return True
        return False

    with LosingProxy(redis_server.port, is_first) as proxy, reliq.Reliq(proxy.url) as far:
        proxy.armed = True
        assert far.schedules.remove("s") is True
        assert proxy.lost == 1
    assert app.schedules.list() == []


def test_a_full_redis_takes_the_end_of_a_pause_and_a_removal(app, client):
    app.schedules.add("s", "1h", "q")
    app.schedules.pause("s")
    limit = client.config_get("maxmemory")["maxmemory"]
    client.config_set("maxmemory", 1)
    try:
        app.schedules.resume("s")
        assert listed(app) == ticking(client) == [("s", "q")]
        app.schedules.pause("s")
        assert app.schedules.remove("s") is True
    finally:
        client.config_set("maxmemory", limit)
    assert left(client) == []
