"""Records of messages, sleeps, parked messages and signals, by whole states."""

import itertools

import pytest

from reliq import ops
from reliq.features.steps import ops as own
from reliq.features.steps.model import Entry, Kind
from reliq.features.steps.ops import Parting
from reliq.features.steps.parked import WAITING
from reliq.model.message import Message
from reliq.ops import Destination, Move
from reliq.ops.held import Hold
from tests.support.state import KEYS, World, element, hold
from tests.support.timeouts import end_timeouts, read_timeouts

ENTRY = Entry("s", 1, "charge", b"j5").encoded()


def fields(world: World) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = world.redis.hgetall(KEYS.followed)
    counted = world.redis.hget(KEYS.config, "recorded")
    heads = [field for field in found if field.count(b"\n") == 1 and len(field) > 1]
    assert int(counted or 0) == len(heads), "config counts the records"
    return found


def places(world: World) -> dict[str, object]:
    """Where the messages are, without the records."""
    return {name: there for name, there in world.state().items() if name not in {"followed", "config", "waits"}}


def parked(world: World) -> dict[str, str]:
    found = {}
    for identity, record in world.redis.hgetall(KEYS.parked).items():
        one = own.Parked.read("q", record)
        assert one.id == identity.decode()
        found[one.id] = one.signal
    return found


def test_an_entry_is_stored_under_the_next_number_or_replaces_one(held: World):
    assert held.run(own.record(hold("a"), 1, b"b1 charge\n0 ")) == "ok"
    assert held.run(own.record(hold("a"), 1, b"s1 charge\nj6")) == "ok"
    assert held.run(own.record(hold("a"), 2, b"s2 pack\nj7")) == "ok"
    assert held.run(own.record(hold("a"), 4, b"s4 far\nj7")) == "behind"
    assert held.run(own.sleep(hold("a"), 4, b"z4 far\n", 60.0, Parting(element("a2")), "slept")) == "behind"
    recorded = held.run(own.recorded(KEYS, "a"))
    assert [(one.name, one.value) for one in recorded.entries] == [("charge", b"j6"), ("pack", b"j7")]
    assert len(fields(held)) == 3
    assert held.run(own.recorded_tag(KEYS, "a")) == hold("a").message.tag


@pytest.mark.parametrize("ended", ["s", "f", "z"])
def test_no_late_call_replaces_the_entry_of_a_step_that_has_ended(held: World, ended: Kind):
    """Its caller repeated it, and has stored more since."""
    entry, begun = Entry(ended, 1, "charge", b"j5").encoded(), b"b1 charge\n0 "
    assert held.run(own.record(hold("a"), 1, begun)) == "ok"
    assert [held.run(own.record(hold("a"), 1, entry)) for _ in range(2)] == ["ok", "ok"]
    assert held.run(own.record(hold("a"), 1, begun)) == "other"
    assert [one.encoded() for one in held.run(own.recorded(KEYS, "a")).entries] == [entry]


def test_only_the_holder_of_a_message_stores_something(held: World):
    assert held.run(own.record(hold("z"), 1, ENTRY)) == "lost"
    held.redis.delete(KEYS.lease("w"))
    assert held.run(own.record(hold("a"), 1, ENTRY)) == "lost"
    assert held.run(own.sleep(hold("a"), 1, ENTRY, 60.0, Parting(element("a2")), "slept")) == "lost"
    assert held.run(own.park(hold("a"), "go", None, Parting(element("a2")))) == ("lost", None)
    assert fields(held) == {}
    assert places(held) == {"processing:w": "b a", "consumers": {"w"}}


def test_a_sleep_stores_its_entry_and_delays_the_message_and_so_does_a_repeated_one(held: World):
    call = own.sleep(hold("a"), 1, Entry("z", 1, "night").encoded(), 60.0, Parting(element("a2")), "slept")
    assert [held.run(call), held.run(call)] == ["ok", "ok"]
    state = places(held)
    assert state["processing:w"] == "b"
    assert state["counters"] == {"slept": 1}
    assert held.redis.zcard(KEYS.delayed) == 1
    (entry,) = held.run(own.recorded(KEYS, "a")).entries
    assert (entry.kind, entry.name) == ("z", "night")
    assert int(entry.value) > held.now


def test_a_message_is_parked_once_and_its_signal_makes_it_ready(held: World):
    call = own.park(hold("a"), "go", 60.0, Parting(element("a2")))
    assert [held.run(call), held.run(call)] == [("ok", None), ("ok", None)]
    assert parked(held) == {"a": "go"}
    assert read_timeouts(held.redis, KEYS.waits)["a"] > held.now
    assert held.run(own.signal(KEYS, "a", "other", b"j1", None)) == "kept"
    assert held.run(own.signal(KEYS, "a", "go", b"j2", None)) == "given"
    assert held.run(own.signal(KEYS, "a", "go", b"j3", None)) == "before"
    assert parked(held) == {}
    assert not held.redis.exists(KEYS.waits)
    assert places(held)["messages"] == "a2"
    assert places(held)["counters"] == {"parked": 1, "signalled": 2}
    assert len(fields(held)) == 3


def test_a_repeated_signal_has_the_answer_of_the_first(held: World):
    """Also when its message has ended meanwhile, or had the signal of someone else."""
    calls = {name: KEYS.new_call() for name in ("given", "kept", "early")}
    held.run(own.park(hold("a"), "go", 60.0, Parting(element("a2"))))
    signals = {
        "given": own.signal(KEYS, "a", "go", b"j1", None, calls["given"]),
        "kept": own.signal(KEYS, "a", "stop", b"j1", None, calls["kept"]),
        "early": own.signal(KEYS, "z", "go", b"j1", 60.0, calls["early"]),
    }
    for said in ("kept", "given", "early"):
        assert [held.run(signals[said]) for _ in range(2)] == [said, said]
    assert held.run(own.signal(KEYS, "a", "go", b"j1", None, KEYS.new_call())) == "before"
    held.redis.hset(KEYS.followed, "\na", "ended")
    assert [held.run(one) for one in signals.values()] == [*signals]
    assert places(held)["counters"] == {"parked": 1, "signalled": 3}
    assert 0 < held.redis.pttl(calls["given"]) <= 600_000


def test_a_signal_that_is_there_keeps_the_message_with_its_consumer(held: World):
    assert held.run(own.signal(KEYS, "a", "go", b"j2", None)) == "unknown"
    assert held.run(own.signal(KEYS, "a", "go", b"j2", 60.0)) == "early"
    assert held.run(own.signal(KEYS, "a", "go", b"j3", 60.0)) == "early before"
    assert held.run(own.signal(KEYS, "a", "stop", b"j3", None)) == "early"
    assert held.run(own.park(hold("a"), "go", None, Parting(element("a2")))) == ("given", b"j2")
    assert places(held)["processing:w"] == "b a"


def test_an_early_signal_that_was_asked_for_goes_with_its_message(held: World):
    """Its next run, perhaps days later, gets it again."""
    held.run(own.signal(KEYS, "a", "go", b"j2", 60.0))
    parting = Parting(element("a2"))
    assert held.run(own.park(hold("a"), "go", None, parting)) == ("given", b"j2")
    for entry in held.redis.zrange(KEYS.waits, 0, -1):
        held.redis.zadd(KEYS.waits, {entry: 1})
    held.run(own.unpark_due(KEYS, 10))
    assert held.run(own.park(hold("a"), "go", None, parting)) == ("given", b"j2")


def test_a_wait_ends_when_its_time_is_over(held: World):
    held.run(own.park(hold("a"), "go", 60.0, Parting(element("a2"))))
    assert held.run(own.unpark_due(KEYS, 10)) == (0, 0)
    assert end_timeouts(held.redis, KEYS.waits) == 1
    held.fill()
    assert held.run(own.unpark_due(KEYS, 10)) == (1, 1)
    held.redis.config_set("maxmemory", 0)
    assert places(held)["messages"] == "a2"
    assert held.run(own.signal(KEYS, "a", "go", b"j1", None)) == "late"


def test_waits_end_in_parts_also_when_memory_is_full(held: World):
    names = [f"m{chr(97 + number)}" for number in range(20)]
    held.redis.lpush(KEYS.processing("w"), *[element(name) for name in names])
    for name in names:
        held.run(own.park(hold(name), "go", 60.0, Parting(element(f"{name}2"))))
    assert end_timeouts(held.redis, KEYS.waits) == 20
    held.fill()
    assert [held.run(own.unpark_due(KEYS, 8)) for _ in range(4)] == [(8, 8), (8, 8), (4, 4), (0, 0)]
    held.redis.config_set("maxmemory", 0)
    assert places(held)["messages"].split()[::-1] == [f"{name}2" for name in names]  # type: ignore[attr-defined]
    assert not held.redis.exists(KEYS.waits, KEYS.parked)


def test_early_signals_are_kept_for_so_many_messages_only(held: World):
    held.run(own.signal(KEYS, "first", "go", b"j1", 60.0))
    held.redis.zadd(KEYS.waits, {f"\n{number}": held.now + 60_000 for number in range(99_999)})
    before = fields(held), held.redis.zcard(KEYS.waits)
    call = KEYS.new_call()
    assert [held.run(own.signal(KEYS, "next", "go", b"j1", 60.0, call)) for _ in range(2)] == ["full", "full"]
    assert (fields(held), held.redis.zcard(KEYS.waits)) == before
    assert held.run(own.signal(KEYS, "first", "stop", b"j1", 60.0)) == "early"
    held.run(own.record(hold("a"), 1, ENTRY))
    assert held.run(own.signal(KEYS, "a", "go", b"j1", 60.0)) == "kept"
    held.redis.zrem(KEYS.waits, "\n7")
    assert held.run(own.signal(KEYS, "next", "go", b"j1", 60.0, call)) == "early"


def test_a_message_has_so_many_signals_only_and_the_one_it_waits_for(held: World):
    for identity in ("nobody", "a"):
        said = [held.run(own.signal(KEYS, identity, f"s{number}", b"j1", 60.0)) for number in range(1000)]
        assert said == ["early"] * 1000
        assert held.run(own.signal(KEYS, identity, "go", b"j1", 60.0)) == "many"
    assert held.run(own.signal(KEYS, "nobody", "s0", b"j1", 60.0)) == "early before"
    assert held.run(own.park(hold("a"), "go", 60.0, Parting(element("a2")))) == ("ok", None)
    assert held.run(own.signal(KEYS, "a", "stop", b"j1", None)) == "many"
    assert held.run(own.signal(KEYS, "a", "go", b"j1", None)) == "given"


def test_an_early_signal_that_no_message_came_for_is_forgotten(held: World):
    held.run(own.signal(KEYS, "nobody", "go", b"j2", 60.0))
    held.run(own.signal(KEYS, "a", "go", b"j2", 60.0))
    held.run(own.record(hold("a"), 1, ENTRY))
    for entry in held.redis.zrange(KEYS.waits, 0, -1):
        held.redis.zadd(KEYS.waits, {entry: 1})
    assert held.run(own.unpark_due(KEYS, 10)) == (0, 2)
    assert {field.split(b"\n")[1] for field in fields(held)} == {b"a"}
    assert not held.redis.exists(KEYS.waits)


@pytest.mark.parametrize("signalled", [False, True])
def test_the_record_goes_with_its_message_and_one_with_signals_is_remembered_as_ended(held: World, signalled: bool):
    held.run(own.record(hold("a"), 1, ENTRY))
    if signalled:
        held.run(own.signal(KEYS, "a", "go", b"j2", None))
    held.run(ops.settle(KEYS, "w", 15.0, [element("a"), element("b")]))
    assert held.run(own.recorded(KEYS, "a")).entries == ()
    assert held.run(own.signal(KEYS, "a", "go", b"j2", None)) == ("ended" if signalled else "unknown")
    assert len(fields(held)) == (3 if signalled else 0)


def test_only_the_latest_ends_are_remembered(held: World):
    held.redis.hset(KEYS.followed, "\n", 9_999)
    held.redis.hset(KEYS.followed, "\n\n0", "\nold")
    held.redis.hset(KEYS.followed, "\nold", "ended")
    held.redis.hset(KEYS.config, "recorded", 1)
    held.run(own.signal(KEYS, "a", "go", b"j2", 60.0))
    assert held.run(own.signal(KEYS, "old", "go", b"j2", None)) == "ended"
    held.run(ops.settle(KEYS, "w", 15.0, [element("a")]))
    assert held.run(own.signal(KEYS, "old", "go", b"j2", None)) == "unknown"
    assert held.run(own.signal(KEYS, "a", "go", b"j2", None)) == "ended"
    assert len(fields(held)) == 3


def test_a_record_stays_with_a_dead_letter_and_its_failed_steps_run_again_after_a_redrive(held: World):
    for number, kind in enumerate("srfbz", 1):
        entry = Entry(kind, number, kind, b"1 x").encoded()  # type: ignore[arg-type]
        held.run(own.record(hold("a"), number, entry))
    held.run(
        ops.settle(KEYS, "w", 15.0, [], [Move(element("a"), Destination.DEAD, "dead:rejected", "a", element("a2"))])
    )
    assert [one.kind for one in held.run(own.recorded(KEYS, "a")).entries] == list("srfbz")
    held.run(ops.redrive(KEYS, [ops.Revival(element("a2"), "a", element("a3"))]))
    assert [(one.kind, one.name) for one in held.run(own.recorded(KEYS, "a")).entries] == list(
        zip("sxxxz", "srfbz", strict=True)
    )


def test_a_record_goes_with_a_dead_letter_that_is_discarded(held: World):
    held.run(own.record(hold("a"), 1, ENTRY))
    held.run(
        ops.settle(KEYS, "w", 15.0, [], [Move(element("a"), Destination.DEAD, "dead:rejected", "a", element("a2"))])
    )
    assert held.run(ops.discard(KEYS, [(element("a2"), "a", b"")], "purged_dead")) == 1
    assert fields(held) == {}


def test_parked_messages_are_removed_with_their_records_but_for_their_end(held: World):
    held.run(own.record(hold("a"), 1, ENTRY))
    held.run(own.park(hold("a"), "go", 60.0, Parting(element("a2"))))
    assert held.run(own.remove_parked(KEYS, "purged", ["a", "unknown"])) == 1
    assert fields(held) == {b"\na": b"ended", b"\n": b"1", b"\n\n1": b"\na"}
    assert held.run(own.signal(KEYS, "a", "go", b"j1", 60.0)) == "ended"
    assert (parked(held), held.redis.exists(KEYS.waits)) == ({}, 0)
    assert places(held)["counters"] == {"parked": 1, "purged": 1}


def test_a_repeated_removal_of_parked_messages_has_the_answer_of_the_first(held: World):
    held.run(own.park(hold("a"), "go", 60.0, Parting(element("a2"))))
    removal = own.remove_parked(KEYS, "cancelled", ["a"], KEYS.new_call())
    assert [held.run(removal) for _ in range(2)] == [1, 1]
    assert held.run(own.remove_parked(KEYS, "cancelled", ["a"], KEYS.new_call())) == 0


def test_a_record_of_another_message_with_the_same_id_is_left_alone(held: World):
    held.run(own.record(hold("a"), 1, ENTRY))
    other = Message.decode("q", element("a", enqueued_at=7))
    held.redis.lpush(KEYS.processing("w"), other.element)
    assert held.run(own.record(Hold(KEYS, "w", other), 1, ENTRY)) == "other"
    assert held.run(own.park(Hold(KEYS, "w", other), "go", None, Parting(element("a2")))) == ("other", None)


def test_a_purge_of_very_many_parked_messages_removes_all_of_them(world: World):
    """Redis answers an empty page before the end where the part of the hash that it looks at is empty by then."""
    ids = ["".join(letters) for letters in itertools.islice(itertools.product("abcdefgh", repeat=5), 9500)]
    world.redis.hset(KEYS.parked, mapping={one: b"1 1 approval\n" + element(one) for one in ids})
    assert world.store.run(WAITING.purge(KEYS)) == 9500
    assert world.redis.exists(KEYS.parked) == 0
