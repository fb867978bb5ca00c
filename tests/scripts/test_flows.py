"""Messages that wait until others are handled, by whole states."""

import time

import pytest

from reliq import ops
from reliq.features.flows import ops as own
from reliq.model.element import new_id
from reliq.ops import Destination, Entry, Move
from tests.support.state import KEYS, World, element, elements, keyed


def waits(world: World, name: str, *before: str) -> None:
    """Send a message that waits for others."""
    assert world.run(own.flow_hold(KEYS, [(name, before)])) == 1
    world.run(ops.enqueue(KEYS, [], [Entry(name, keyed(name, own.line_key(name)), 0.0, None, 0.0)]))


def send(world: World, *names: str) -> None:
    world.run(ops.enqueue(KEYS, elements(*names)))


def work_off(world: World) -> list[str]:
    """Claim and ack one message after another; return their ids in this order."""
    world.given(leases={"w": 60_000})
    done = []
    while claimed := world.run(ops.claim(KEYS, "w", 60.0, 1)).elements:
        world.run(ops.settle(KEYS, "w", 60.0, claimed))
        done += [element_id(one) for one in claimed]
    return done


def element_id(raw: bytes) -> str:
    from reliq.model.element import decode_envelope

    return decode_envelope(raw).id


def nothing_is_left(world: World) -> None:
    assert not world.redis.exists(KEYS.followed, KEYS.active, KEYS.waiting, KEYS.config)


def test_a_chain_runs_in_its_order(world: World):
    waits(world, "c", "b")
    waits(world, "b", "a")
    assert world.redis.llen(KEYS.messages) == 0
    assert world.redis.zcard(KEYS.waiting) == 2
    send(world, "a")
    assert work_off(world) == ["a", "b", "c"]
    nothing_is_left(world)


def test_a_fan_in_waits_for_the_last_and_a_fan_out_begins_at_once(world: World):
    waits(world, "end", "b", "c", "d")
    for name in "bcd":
        waits(world, name, "a")
    send(world, "a")
    done = work_off(world)
    assert (done[0], sorted(done[1:4]), done[4]) == ("a", ["b", "c", "d"], "end")
    nothing_is_left(world)


def test_acks_of_one_call_release_once_and_their_claim_gets_what_they_released(world: World):
    waits(world, "end", "a", "b")
    send(world, "a", "b")
    world.given(leases={"w": 60_000})
    first, second = world.run(ops.claim(KEYS, "w", 60.0, 2)).elements
    answer = world.run(ops.settle(KEYS, "w", 60.0, [first, second], limit=5, row=2))
    assert [element_id(one) for one in answer.elements] == ["end"]


@pytest.mark.parametrize("destination", [Destination.HEAD, Destination.DEAD, Destination.DELAYED])
def test_what_is_not_handled_releases_nothing(world: World, destination: Destination):
    waits(world, "end", "a")
    world.given(processing={"w": "a"}, leases={"w": 60_000})
    world.run(ops.settle(KEYS, "w", 60.0, [], [Move(element("a"), destination, "x", "a", element("a2"), 60.0)]))
    assert world.redis.zcard(KEYS.waiting) == 1
    assert world.redis.hget(KEYS.config, "flowing") == b"1"


def test_a_repeated_hold_changes_nothing(world: World):
    waits(world, "end", "a", "b")
    before = world.redis.hgetall(KEYS.followed)
    assert world.run(own.flow_hold(KEYS, [("end", ["a", "b"])])) == 0
    assert world.redis.hgetall(KEYS.followed) == before


def test_a_queue_without_flows_has_none_of_it(world: World):
    send(world, "a", "b")
    assert work_off(world) == ["a", "b"]
    nothing_is_left(world)


def test_a_fan_in_of_ten_thousand(world: World):
    ids = [new_id() for _ in range(10_000)]
    assert world.run(own.flow_hold(KEYS, [("end", ids)])) == 1
    world.run(ops.enqueue(KEYS, [], [Entry("end", keyed("end", own.line_key("end")), 0.0, None, 0.0)]))
    raw = [element("a", id=one) for one in ids]
    for at in range(0, len(raw), 1000):
        world.run(ops.enqueue(KEYS, raw[at : at + 1000]))
    world.given(leases={"w": 600_000})
    began, last = time.perf_counter(), 0.0
    while claimed := world.run(ops.claim(KEYS, "w", 600.0, 100)).elements:
        if [element_id(one) for one in claimed] == ["end"]:
            print(f"10,000 acked in {last - began:.2f} s, the end claimed {time.perf_counter() - last:.4f} s later")
        world.run(ops.settle(KEYS, "w", 600.0, claimed, row=len(claimed)))
        last = time.perf_counter()
    nothing_is_left(world)
