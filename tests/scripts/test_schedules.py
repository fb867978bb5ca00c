"""fire, schedule_put, schedule_remove, ticks, fates: a tick becomes one message, however many monitors send it."""

import msgspec
import pytest

from reliq import ops
from reliq.errors import QueueFull
from reliq.features.schedules import ops as own
from reliq.features.schedules.model import Definition, Run, State
from reliq.features.schedules.ops import Fire, Firing, Owned, Removal, Written
from reliq.model.element import Extra
from tests.support.state import KEYS, element, keyed

DEFINITION = Definition("tick", "q", "1s", b"body")
BEFORE, AFTER = State("r", 1, 1), State("r", 2, 2, fired=1)
FAR = 4_000_000_000_000  #: ms


def raw(state):
    return msgspec.json.encode(state)


def text(state):
    return raw(state).decode()


def due_tick(*names, expected=BEFORE, name="tick", state=AFTER, due=1, missed=0, elements=(), bodies=()):
    """What sends the next tick of a schedule: messages by name, or elements."""
    messages = [(one, b"") for one in (*map(element, names), *elements)]
    messages += bodies
    run = Run(1, due, "id" if messages else "", len(messages), missed)
    return Fire(name, raw(expected), state, due, run, messages)


@pytest.fixture
def scheduled(world):
    world.run(own.schedule_put(KEYS, [Written("tick", b"", BEFORE, DEFINITION)]))
    return world


def definitions():
    return {"schedules": {"tick": msgspec.json.encode(DEFINITION).decode()}}


def state_of(world):
    """The state, with the times of the runs cut off."""
    found = world.state()
    if "runs" in found:
        found["runs"] = {name: run.partition(" ")[2] for name, run in found["runs"].items()}
    return found


def due_of(world, name="tick"):
    return world.redis.zscore(KEYS.ticks, name)


def test_a_schedule_is_stored_with_its_next_tick(scheduled):
    assert scheduled.state() == {**definitions(), "schedule_states": {"tick": text(BEFORE)}, "ticks": "tick"}
    assert due_of(scheduled) == 1


def test_a_schedule_that_was_changed_meanwhile_is_not_written(scheduled):
    late = Written("tick", b"", AFTER, DEFINITION)
    new = Written("other", b"", State("s"), Definition("other", "q", "2s"))
    assert scheduled.run(own.schedule_put(KEYS, [late, new])) == [0, 1]
    assert scheduled.state()["schedule_states"] == {"tick": text(BEFORE), "other": text(State("s"))}
    assert scheduled.state()["ticks"] == "tick"  # the other one has no tick


def test_a_pause_keeps_the_definition_and_takes_the_tick(scheduled):
    paused = msgspec.structs.replace(BEFORE, paused=True)
    assert scheduled.run(own.schedule_put(KEYS, [Written("tick", raw(BEFORE), paused)])) == [1]
    assert scheduled.state() == {**definitions(), "schedule_states": {"tick": text(paused)}}


def test_a_due_tick_becomes_a_message_and_the_next_one_is_set(scheduled):
    scheduled.given(messages="x")
    _, codes = scheduled.run(own.fire(KEYS, [due_tick("a")]))
    assert codes == [Firing.SENT]
    assert due_of(scheduled) == 2
    assert state_of(scheduled) == {
        **definitions(),
        "schedule_states": {"tick": text(AFTER)},
        "ticks": "tick",
        "runs": {"tick": text(Run(1, 1, "id", 1))},
        "messages": "a x",
        "counters": {"enqueued": 1, "scheduled": 1},
    }


def test_the_second_of_two_monitors_sends_nothing(scheduled):
    scheduled.run(own.fire(KEYS, [due_tick("a")]))
    before = scheduled.state()
    assert scheduled.run(own.fire(KEYS, [due_tick("a2")]))[1] == [Firing.CHANGED]
    assert scheduled.state() == before


def test_the_same_schedule_twice_in_one_call_is_sent_once(scheduled):
    assert scheduled.run(own.fire(KEYS, [due_tick("a"), due_tick("a2")]))[1] == [Firing.SENT, Firing.CHANGED]
    assert scheduled.state()["messages"] == "a"


def test_a_removed_schedule_is_not_sent(scheduled):
    scheduled.redis.hset(KEYS.runs, "tick", "1 {}")
    assert [scheduled.run(own.schedule_remove(KEYS, "tick")) for _ in range(2)] == [Removal.REMOVED, Removal.NONE]
    assert scheduled.run(own.fire(KEYS, [due_tick("a")]))[1] == [Firing.CHANGED]
    assert scheduled.state() == {}


def test_a_tick_is_not_sent_before_its_time(world):
    later = State("r", FAR, FAR)
    world.run(own.schedule_put(KEYS, [Written("tick", b"", later, DEFINITION)]))
    before = world.state()
    assert world.run(own.fire(KEYS, [due_tick("a", expected=later, due=FAR)]))[1] == [Firing.EARLY]
    assert world.state() == before


def test_the_last_tick_leaves_no_next_one(scheduled):
    scheduled.run(own.fire(KEYS, [due_tick("a", state=State("r", fired=1))]))
    assert "ticks" not in scheduled.state()
    assert scheduled.state()["messages"] == "a"


def test_ticks_that_were_missed_are_counted_and_nothing_is_sent(scheduled):
    assert scheduled.run(own.fire(KEYS, [due_tick(missed=3)]))[1] == [Firing.SENT]
    found = state_of(scheduled)
    assert found["counters"] == {"ticks_missed": 3}
    assert "messages" not in found
    assert found["runs"] == {"tick": text(Run(1, 1, missed=3))}


def test_ticks_that_are_caught_up_keep_their_order(scheduled):
    scheduled.run(own.fire(KEYS, [due_tick("a", "b", "c", missed=2)]))
    assert scheduled.state()["messages"] == "c b a"
    assert scheduled.state()["counters"] == {"enqueued": 3, "scheduled": 3, "ticks_missed": 2}


def test_keys_and_priorities_are_those_of_a_send(scheduled):
    scheduled.given(messages="x")
    waits = keyed("b", "k")
    high = element("c", extra=Extra(priority="high"))
    scheduled.run(own.fire(KEYS, [due_tick(elements=[keyed("a", "k"), waits, high])]))
    found = scheduled.state()
    assert (found["messages"], found["waiting"], found["high"]) == ("a x", "b", "c")


def test_a_large_body_is_apart(scheduled):
    reference = b"12345678\x00\x00\x07\xd0"
    apart = element("a", version=2, body=b"", extra=Extra(apart=reference))
    scheduled.run(own.fire(KEYS, [due_tick(bodies=[(apart, b"x" * 2000)])]))
    assert scheduled.redis.hgetall(KEYS.bodies) == {reference: b"x" * 2000}


def test_a_full_queue_takes_what_it_has_room_for_and_the_rest_waits_a_second(world):
    names = ["s-a", "s-b", "s-c"]
    world.run(own.schedule_put(KEYS, [Written(name, b"", BEFORE, Definition(name, "q", "1s")) for name in names]))
    world.given(messages="x", config={"max_length": 2})
    fires = [due_tick(name[-1], name=name) for name in names]
    now, codes = world.run(own.fire(KEYS, fires))
    assert codes == [Firing.SENT, Firing.FULL, Firing.FULL]
    assert world.state()["messages"] == "a x"
    assert world.state()["counters"] == {"enqueued": 1, "scheduled": 1, "rejected": 2}
    assert [due_of(world, name) for name in names] == [2, now + 1000, now + 1000]
    assert world.state()["schedule_states"] == {"s-a": text(AFTER), "s-b": text(BEFORE), "s-c": text(BEFORE)}


def test_room_is_checked_in_bytes_too(scheduled):
    scheduled.redis.hset(KEYS.config, mapping={"max_bytes": 300})
    assert scheduled.run(own.fire(KEYS, [due_tick("a")]))[1] == [Firing.SENT]
    scheduled.run(own.schedule_put(KEYS, [Written("tick", raw(AFTER), BEFORE)]))
    assert scheduled.run(own.fire(KEYS, [due_tick("b", elements=[element("c", body=b"x" * 300)])]))[1] == [Firing.FULL]
    assert scheduled.state()["messages"] == "a"


def test_ticks_without_messages_pass_a_full_queue(scheduled):
    scheduled.given(messages="x", config={"max_length": 1})
    assert scheduled.run(own.fire(KEYS, [due_tick(missed=1)]))[1] == [Firing.SENT]


def test_what_is_not_sent_needs_no_room_in_a_queue_above_its_limit(world):
    names = ["s-a", "s-b", "s-c"]
    world.run(own.schedule_put(KEYS, [Written(name, b"", BEFORE, Definition(name, "q", "1s")) for name in names]))
    world.run(own.schedule_put(KEYS, [Written("s-b", raw(BEFORE), AFTER)]))
    world.given(messages="x y z", config={"max_length": 1})
    fires = [due_tick("a", name="s-a"), due_tick("b", name="s-b"), due_tick(missed=1, name="s-c")]
    assert world.run(own.fire(KEYS, fires))[1] == [Firing.FULL, Firing.CHANGED, Firing.SENT]
    assert world.state()["counters"] == {"rejected": 1, "ticks_missed": 1}
    assert due_of(world, "s-b") == 2


def test_a_full_redis_changes_nothing(scheduled):
    scheduled.fill()
    before = scheduled.state()
    with pytest.raises(QueueFull):
        scheduled.run(own.fire(KEYS, [due_tick("a")]))
    assert scheduled.state() == before


def test_a_full_redis_accepts_a_pause(scheduled):
    scheduled.fill()
    paused = msgspec.structs.replace(BEFORE, paused=True)
    assert scheduled.run(own.schedule_put(KEYS, [Written("tick", raw(BEFORE), paused)])) == [1]


def test_a_full_redis_accepts_a_removal(scheduled):
    scheduled.fill()
    assert scheduled.run(own.schedule_remove(KEYS, "tick")) == 1
    assert scheduled.state() == {}


def test_a_full_redis_accepts_the_end_of_a_pause(scheduled):
    paused = msgspec.structs.replace(BEFORE, paused=True)
    scheduled.run(own.schedule_put(KEYS, [Written("tick", raw(BEFORE), paused)]))
    scheduled.fill()
    assert scheduled.run(own.schedule_put(KEYS, [Written("tick", raw(paused), AFTER)])) == [1]
    assert due_of(scheduled) == 2


@pytest.mark.parametrize("state", [BEFORE, State("r", paused=True)], ids=["ticking", "paused"])
def test_a_full_redis_refuses_a_new_definition(world, state):
    world.given(messages="x")
    world.fill()
    before = world.state()
    with pytest.raises(QueueFull):
        world.run(own.schedule_put(KEYS, [Written("tick", b"", state, DEFINITION)]))
    assert world.state() == before


def test_a_removal_that_is_repeated_has_the_answer_of_the_first(scheduled):
    call = KEYS.new_call()
    assert [scheduled.run(own.schedule_remove(KEYS, "tick", call)) for _ in range(2)] == [Removal.REMOVED] * 2
    assert scheduled.run(own.schedule_remove(KEYS, "tick", KEYS.new_call())) is Removal.NONE


def test_a_schedule_that_has_changed_is_not_removed(scheduled):
    before = scheduled.state()
    assert scheduled.run(own.schedule_remove(KEYS, "tick", expected=raw(AFTER))) is Removal.CHANGED
    assert scheduled.state() == before
    assert scheduled.run(own.schedule_remove(KEYS, "tick", expected=raw(BEFORE))) is Removal.REMOVED
    assert scheduled.run(own.schedule_remove(KEYS, "tick", expected=raw(BEFORE))) is Removal.NONE


def test_a_run_by_hand_is_noted_only_of_a_schedule_that_is_there(scheduled):
    run = Run(1, 1, "id", 1, by_hand=True, at=5)
    assert scheduled.run(own.schedule_ran(KEYS, "tick", run)) == 1
    assert scheduled.redis.hget(KEYS.runs, "tick").startswith(b"5 {")
    assert scheduled.run(own.schedule_ran(KEYS, "gone", run)) == 0
    assert scheduled.redis.hkeys(KEYS.runs) == [b"tick"]


def test_the_index_takes_a_queue_only_in_the_place_of_the_one_that_was_read(world):
    def note(*change):
        (answer,) = world.run(own.index_schedules([change]))
        return answer

    assert note("s", "", "q") is Owned.NOTED
    assert note("s", "", "q") is Owned.ALREADY
    assert note("s", "", "r") is Owned.OTHER
    assert note("s", "q", "r") is Owned.NOTED
    assert note("s", "q", "") is Owned.OTHER
    assert world.run(own.schedule_names()) == {"s": "r"}
    assert note("s", "r", "") is Owned.NOTED
    assert note("s", "r", "") is Owned.ALREADY
    assert world.run(own.schedule_names()) == {}


def test_ticks_that_are_due_and_those_that_will_be(world):
    due = {"s-a": -1000, "s-b": -2000, "s-c": 60_000, "s-d": 30_000, "s-e": 600_000}
    world.redis.zadd(KEYS.ticks, {name: world.now + ms for name, ms in due.items()})
    now, (seen,) = world.run(own.ticks([KEYS], 300.0, 10, 10, [0]))
    assert 0 <= now - world.now < 10_000
    assert [name for name, _ in seen.due] == ["s-b", "s-a"]
    assert seen.soon == [("s-d", world.now + 30_000), ("s-c", world.now + 60_000)]
    _, (seen,) = world.run(own.ticks([KEYS], 300.0, 1, 10, [world.now + 30_000]))
    assert ([name for name, _ in seen.due], [name for name, _ in seen.soon]) == (["s-b"], ["s-c"])


def test_the_fate_of_a_message_is_where_it_is(world):
    world.given(
        messages="a", processing={"w": "b"}, delayed={"c": 60_000}, dead={"d": 0}, leases={"w": 60_000},
    )  # fmt: skip
    world.run(ops.enqueue(KEYS, [], [ops.Entry(name, keyed(name, "k"), 0.0, None, 0.0) for name in ("e", "f")]))
    before = world.state()
    assert world.run(own.fates(KEYS, [*"abcdef", "gone"], ["w"], 10)) == [
        "ready", "processing", "delayed", "dead", "ready", "ready", "gone",
    ]  # fmt: skip
    assert world.state() == before


def test_the_fate_is_unknown_beyond_what_is_read(world):
    world.given(messages="a b c")
    assert world.run(own.fates(KEYS, ["a", "c", "gone"], [], 2)) == ["ready", "unknown", "unknown"]


def test_without_schedules_there_are_no_ticks(world):
    _, (seen,) = world.run(own.ticks([KEYS], 3.0, 10, 10, [0]))
    assert (seen.due, seen.soon) == ([], [])
    assert world.state() == {}
