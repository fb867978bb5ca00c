"""Latest wins: a new message replaces the one of its dedup key that waits, in whatever state that is."""

import pytest

from reliq import ops
from reliq.errors import QueueFull
from reliq.model.element import LATEST, Extra, group_of, latest_group_of
from reliq.model.message import Message
from reliq.ops import Destination, Entry, Move, Revival, Settled
from reliq_monitor.reclaim import take_back
from tests.support.state import HOUR, KEYS, element, keyed

D = latest_group_of("d")


def latest(name, **changes):
    return element(name, extra=Extra(group=D), **changes)


def call(*names, debounce=0.0, at_most=None, sequence=0):
    entries = [
        Entry(name, latest(name), debounce, "d", 0.0, replace=True, at_most=at_most) for name in names
    ]  # fmt: skip
    return ops.enqueue(KEYS, [], entries, "producer" if sequence else "", sequence)


def send(world, *names, debounce=0.0, at_most=None):
    return world.run(call(*names, debounce=debounce, at_most=at_most))


def claim(world, consumer="w"):
    """Claim as a consumer does, and return what its list holds then."""
    world.given(leases={consumer: HOUR})
    world.run(ops.claim(KEYS, consumer, 15.0, 10))
    return world.run(ops.newest(KEYS, consumer, [D]))


def places(world):
    left_out = {"consumers", "index", "lease:w", "lease:v"}
    found = {name: value for name, value in world.state().items() if name not in left_out}
    return {name: value for name, value in found.items() if not name.startswith("burst:")}


def settle(world, name, destination, counter, delay=0.0):
    world.run(
        ops.settle(KEYS, "w", 15.0, [], [Move(latest(name), destination, counter, name, latest(name + "2"), delay)])
    )


def due_in(world, name):
    return round(float(world.redis.zscore(KEYS.delayed, latest(name))) - server_ms(world)) / 1000


def server_ms(world):
    seconds, micros = world.redis.time()
    return seconds * 1000 + micros // 1000


def make_due(world):
    """Let the time pass until the delayed messages are due."""
    for one in world.redis.zrange(KEYS.delayed, 0, -1):
        world.redis.zadd(KEYS.delayed, {one: world.now - 1000})
        world.redis.hset(KEYS.index, Message.decode("q", one).id, world.now - 1000)


# --- ready, waiting, in processing ---


def test_the_first_is_ready_and_a_newer_one_waits_behind_it(world):
    send(world, "a")
    send(world, "b")
    assert places(world) == {
        "messages": "a", "waiting": "b", "active": {D: "a"}, "counters": {"enqueued": 2, "ordered": 1},
    }  # fmt: skip


def test_a_newer_one_replaces_the_one_that_waits_behind_the_first(world):
    for name in "abcd":
        send(world, name)
    assert places(world) == {
        "messages": "a", "waiting": "d", "active": {D: "a"},
        "counters": {"enqueued": 4, "ordered": 3, "replaced": 2},
    }  # fmt: skip


def test_messages_of_one_call_replace_each_other_in_their_order(world):
    send(world, "a", "b", "c")
    assert places(world)["waiting"] == "c"


def test_a_claim_takes_the_newest_and_not_the_one_that_was_ready(world):
    send(world, "a", "b", "c")
    assert claim(world) == [latest("c")]
    assert places(world) == {
        "processing:w": "c", "active": {D: "c"},
        "counters": {"enqueued": 3, "ordered": 2, "replaced": 2, "claimed": 1},
    }  # fmt: skip


def test_newest_may_be_repeated_after_a_lost_answer(world):
    send(world, "a", "b")
    claim(world)
    before = world.state()
    assert world.run(ops.newest(KEYS, "w", [D])) == [latest("b")]
    assert world.state() == before


def test_newest_leaves_other_messages_and_other_keys_as_they_are(world):
    send(world, "a", "b")
    world.run(ops.enqueue(KEYS, [element("x")], [Entry(n, keyed(n, "d"), 0.0, None, 0.0) for n in ("k", "l")]))
    assert claim(world) == [latest("b")]
    found = places(world)
    assert (found["processing:w"], found["waiting"]) == ("b k x", "l")
    assert found["active"] == {D: "b", group_of("d"): "k"}


def test_newest_takes_nothing_for_a_consumer_that_lost_its_messages(world):
    send(world, "a", "b")
    before = world.state()
    assert world.run(ops.newest(KEYS, "w", [D])) == [b""]
    assert world.state() == before


@pytest.fixture
def running(world):
    """a is in processing of w."""
    send(world, "a")
    claim(world)
    return world


def test_while_one_is_handled_the_newest_waits_and_is_ready_after_the_ack(running):
    send(running, "b")
    send(running, "c")
    assert places(running)["waiting"] == "c"
    answer = running.run(ops.settle(KEYS, "w", 15.0, [latest("a")], limit=10))
    assert answer.elements == [latest("c")]
    assert places(running)["active"] == {D: "c"}


def test_when_none_waits_the_next_send_is_a_new_message(running):
    running.run(ops.settle(KEYS, "w", 15.0, [latest("a")]))
    assert "active" not in places(running)
    send(running, "b")
    assert places(running)["messages"] == "b"


def test_an_ack_of_the_replaced_one_finds_nothing(running):
    running.run(ops.settle(KEYS, "w", 15.0, [], [Move(latest("a"), Destination.TAIL, "released", "a", latest("a2"))]))
    send(running, "b")
    claim(running)
    assert running.run(ops.settle(KEYS, "w", 15.0, [latest("a2")])).codes == Settled.ALREADY
    assert places(running)["processing:w"] == "b"


def test_a_retry_takes_the_newest_when_it_is_due(running):
    send(running, "b")
    settle(running, "a", "delayed", "retried", 60.0)
    assert places(running)["waiting"] == "b"  # it waits for the back-off too
    send(running, "c")
    make_due(running)
    running.run(ops.promote(KEYS, 100))
    assert claim(running) == [latest("c")]
    assert set(places(running)) == {"processing:w", "active", "counters"}


def test_after_a_death_the_newest_is_ready(running):
    send(running, "b")
    settle(running, "a", "dead", "dead:rejected")
    found = places(running)
    assert (found["messages"], found["dead"], found["active"]) == ("b", "a2", {D: "b"})


def test_a_dead_letter_does_not_replace_a_newer_message(running):
    settle(running, "a", "dead", "dead:rejected")
    send(running, "b")
    assert running.run(ops.redrive(KEYS, [Revival(latest("a2"), "a", latest("a3"))])) == [0]
    found = places(running)
    assert found["messages"] == "b"
    assert "dead" not in found
    assert found["counters"]["replaced"] == 1


def test_a_dead_letter_comes_back_when_there_is_no_newer_message(running):
    settle(running, "a", "dead", "dead:rejected")
    assert running.run(ops.redrive(KEYS, [Revival(latest("a2"), "a", latest("a3"))])) == [1]
    assert places(running)["messages"] == "a3"


def test_the_message_of_a_killed_worker_comes_back_as_the_newest(running):
    send(running, "b")
    running.store.run(take_back(KEYS, "w", known_dead=True))
    assert places(running)["waiting"] == "b"
    assert claim(running, "v") == [latest("b")]
    assert places(running)["active"] == {D: "b"}


def test_purge_leaves_nothing_but_what_is_handled(running):
    send(running, "b")
    send(running, "c", debounce=60.0)
    while running.run(ops.purge(KEYS, 1)).more:
        pass
    assert places(running)["processing:w"] == "a"
    assert "waiting" not in places(running)
    send(running, "d", debounce=60.0)  # a burst of its own, although the record of the former one is still there
    assert places(running)["delayed"] == "d"
    assert places(running)["counters"].get("replaced", 0) == 1  # b, by c


@pytest.mark.parametrize(("at_once", "runs"), [(True, "c"), (False, "a")])
def test_of_dead_letters_that_are_redriven_at_once_the_one_that_died_last_runs(world, at_once, runs):
    """Where their ids have no time, nothing else tells which one was sent last."""
    for name in "abc":
        send(world, name)
        claim(world)
        world.run(
            ops.settle(KEYS, "w", 15.0, [], [Move(latest(name), Destination.DEAD, "dead_lettered", name, latest(name))])
        )
    letters = [Revival(latest(name), name, latest(name)) for name in "abc"]
    for some in [letters] if at_once else [[one] for one in letters]:
        world.run(ops.redrive(KEYS, some))
    assert claim(world) == [latest(runs)]
    assert "dead" not in places(world)
    assert places(world)["counters"]["replaced"] == 2


# --- debounce ---


def test_a_debounced_message_is_delayed_and_each_newer_one_starts_the_delay_again(world):
    send(world, "a", debounce=30.0)
    assert 29 < due_in(world, "a") <= 30.001
    send(world, "b", debounce=60.0)
    assert 59 < due_in(world, "b") <= 60.001
    assert places(world) == {"delayed": "b", "counters": {"enqueued": 2, "replaced": 1}}
    assert world.state()["index"] == {"b"}


def test_at_most_counts_from_the_first_of_the_burst(world):
    send(world, "a", debounce=50.0, at_most=60.0)
    since, _ = world.redis.get(KEYS.burst("d")).split()
    world.redis.set(KEYS.burst("d"), b"%d a" % (int(since) - 45_000), px=HOUR)  # 45 s ago
    send(world, "b", debounce=50.0, at_most=60.0)
    assert 14 < due_in(world, "b") <= 15.001
    send(world, "c", debounce=5.0, at_most=60.0)
    assert 4 < due_in(world, "c") <= 5.001


def test_the_record_of_a_burst_outlives_the_time_in_which_monitors_may_be_away(world):
    send(world, "a", debounce=30.0)
    assert HOUR + 29_000 < world.redis.pttl(KEYS.burst("d")) <= HOUR + 30_000


@pytest.mark.parametrize("debounce", [0.0, 30.0])
def test_one_that_is_due_and_not_promoted_yet_is_ready_before_the_next(world, debounce):
    """The next one would be handled, and the older one after it; or be replaced by the older one."""
    send(world, "a", debounce=30.0)
    make_due(world)
    send(world, "b", debounce=debounce)
    counters = {"enqueued": 2, "promoted": 1}
    if debounce:
        assert places(world) == {"messages": "a", "active": {D: "a"}, "delayed": "b", "counters": counters}
    else:
        ordered = {**counters, "ordered": 1}
        assert places(world) == {"messages": "a", "active": {D: "a"}, "waiting": "b", "counters": ordered}
        assert claim(world) == [latest("b")]
    world.run(ops.promote(KEYS, 100))
    assert places(world)["counters"]["promoted"] == 1


def test_one_that_is_due_while_another_is_handled_waits_for_it_and_is_replaced(running):
    send(running, "b", debounce=30.0)
    make_due(running)
    send(running, "c")
    assert places(running)["waiting"] == "c"
    assert "delayed" not in places(running)
    assert places(running)["counters"]["replaced"] == 1


def test_a_retry_of_one_that_was_debounced_is_none_that_a_debounce_delays(world):
    send(world, "a", debounce=30.0)
    make_due(world)
    world.run(ops.promote(KEYS, 100))
    claim(world)
    settle(world, "a", "delayed", "retried", 60.0)
    send(world, "b")
    assert places(world)["waiting"] == "b"
    assert places(world)["delayed"] == "a2"


def test_a_message_that_was_due_is_not_delayed_again_and_the_next_begins_a_burst(world):
    send(world, "a", debounce=30.0, at_most=30.0)
    make_due(world)  # and no monitor has promoted it yet
    send(world, "b", debounce=30.0, at_most=30.0)
    assert (places(world)["messages"], places(world)["delayed"]) == ("a", "b")
    assert 29 < due_in(world, "b") <= 30.001


def test_when_both_are_due_only_the_newest_is_handled(world):
    send(world, "a", debounce=30.0)
    make_due(world)
    send(world, "b", debounce=30.0)
    make_due(world)
    world.run(ops.promote(KEYS, 100))
    assert claim(world) == [latest("b")]
    assert set(places(world)) == {"processing:w", "active", "counters"}


def test_while_one_is_handled_the_newest_is_debounced_and_then_waits_for_its_end(running):
    send(running, "b", debounce=30.0)
    send(running, "c", debounce=30.0)
    assert places(running)["delayed"] == "c"
    make_due(running)
    running.run(ops.promote(KEYS, 100))
    assert places(running)["waiting"] == "c"
    send(running, "e", debounce=30.0)  # the run is due: the newest takes its place
    assert places(running)["waiting"] == "e"
    assert "delayed" not in places(running)


def test_without_debounce_the_newest_takes_the_place_of_a_debounced_one_at_once(world):
    send(world, "a", debounce=30.0)
    send(world, "b")
    assert places(world) == {"messages": "b", "active": {D: "b"}, "counters": {"enqueued": 2, "replaced": 1}}


def test_a_retry_is_not_taken_for_a_debounced_message(running):
    settle(running, "a", "delayed", "retried", 60.0)
    send(running, "b", debounce=30.0)
    assert places(running)["delayed"] == "b a2"
    assert places(running)["counters"].get("replaced", 0) == 0


def test_a_cancelled_message_is_gone_and_the_next_one_begins_a_burst(world):
    send(world, "a", debounce=30.0, at_most=60.0)
    world.run(ops.cancel(KEYS, "a"))
    send(world, "b", debounce=30.0, at_most=60.0)
    assert places(world) == {"delayed": "b", "counters": {"enqueued": 2, "cancelled": 1}}


def test_another_message_with_the_id_of_the_debounced_one_stays(world):
    send(world, "a", debounce=30.0)
    other = element("a3")
    world.run(ops.enqueue(KEYS, [], [Entry("a", other, 90.0, None, 0.0)]))
    send(world, "b", debounce=30.0)
    assert other in world.redis.zrange(KEYS.delayed, 0, -1)


# --- what holds of every send ---


@pytest.mark.parametrize("debounce", [0.0, 30.0])
def test_a_repeated_call_replaces_nothing_twice(world, debounce):
    send(world, "a")
    world.run(call("b", debounce=debounce, sequence=1))
    before = world.state()
    assert world.run(call("b", debounce=debounce, sequence=1)).status == "repeated"
    assert world.state() == before


@pytest.mark.parametrize("debounce", [0.0, 30.0])
def test_a_message_that_replaces_one_fits_into_a_full_queue(world, debounce):
    send(world, "a", debounce=debounce)
    world.redis.hset(KEYS.config, "max_length", 2)
    assert send(world, "b", debounce=debounce).status == "ok"
    assert send(world, "c", debounce=debounce).status == "ok"


@pytest.mark.parametrize(
    ("before", "debounce", "needed"),
    [((), 0.0, 2), ((), 30.0, 1), (("x",), 0.0, 2), (("x", "y"), 0.0, 2), (("x",), 30.0, 2)],
)
def test_messages_of_one_call_need_the_room_of_those_that_stay(world, before, debounce, needed):
    send(world, *before)
    world.redis.hset(KEYS.config, "max_length", needed)
    assert send(world, *"abcd", debounce=debounce).status == "ok"
    assert len(before) + 4 - world.state()["counters"].get("replaced", 0) == needed


def test_messages_of_one_call_that_do_not_all_replace_a_debounced_one_may_have_too_little_room(world):
    send(world, "a", debounce=30.0)
    world.redis.hset(KEYS.config, "max_length", 1)
    assert send(world, "b", "c").status == "full"  # b would be ready, and c wait behind it
    assert send(world, "b").status == "ok"


@pytest.mark.parametrize("limit", [{"max_length": 1}, {"max_bytes": 1}])
@pytest.mark.parametrize("debounce", [0.0, 30.0])
def test_a_queue_above_its_limit_takes_what_replaces_a_message_and_adds_no_byte(world, debounce, limit):
    send(world, "a", debounce=debounce)
    send(world, "b", debounce=debounce)
    world.given(messages="x y z", config=limit)
    assert send(world, "c", debounce=debounce).status == "ok"
    assert places(world)["counters"]["replaced"] == (2 if debounce else 1)


def test_a_queue_above_its_max_bytes_refuses_what_replaces_a_smaller_message(world):
    send(world, "a", "b")
    world.redis.hset(KEYS.config, "max_bytes", 1)
    larger = Entry("c", latest("c", body=b"x" * 100), 0.0, "d", 0.0, replace=True)
    assert world.run(ops.enqueue(KEYS, [], [larger])).status == "full"


def test_a_full_queue_refuses_a_message_that_replaces_none(world):
    world.given(messages="x", config={"max_length": 1})
    before = world.state()
    assert send(world, "a").status == "full"
    assert world.state() == before


def test_a_full_redis_takes_nothing_but_gives_out_the_newest(world):
    send(world, "a", "b")
    world.given(leases={"w": HOUR})
    world.run(ops.claim(KEYS, "w", 15.0, 10))
    world.fill()
    before = world.state()
    with pytest.raises(QueueFull):
        world.run(call("c", sequence=1))
    assert world.state() == before
    assert world.run(ops.newest(KEYS, "w", [D])) == [latest("b")]


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_the_body_of_a_replaced_message_is_deleted_too(world, names):
    def apart(name):
        return Entry(
            name, element(name, version=2, body=b"", extra=Extra(group=D, apart=reference(name))), 0.0, "d", 0.0,
            replace=True,
        )  # fmt: skip

    def reference(name):
        return name.encode() * 8 + (2000).to_bytes(4)

    for name in names:
        world.redis.hset(KEYS.bodies, reference(name), "large")
        world.run(ops.enqueue(KEYS, [], [apart(name)]))
    claim(world)
    assert world.redis.hkeys(KEYS.bodies) == [reference(names[-1])]


def test_a_dedup_key_and_an_ordering_key_of_one_text_are_two(world):
    assert len(D) == len(group_of("d")) == 16
    assert D.startswith(LATEST)
    assert group_of("d") != D
    assert latest_group_of("e") != D
