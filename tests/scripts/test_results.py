"""The results that a settle stores: how long they are kept, and those of messages that their consumer has lost."""

import pytest

from reliq import ops
from reliq.model.result import SKIPPED
from reliq.ops import Destination, Mark, Move
from tests.support.state import HOUR, KEYS, World, element

SECOND = 1_000
DAY = 86_400 * SECOND
HELD = "abcdefg"
MARK = KEYS.done("ia")


@pytest.fixture
def held(world: World) -> World:
    """A consumer has claimed some messages."""
    world.given(processing={"w": " ".join(reversed(HELD))}, leases={"w": HOUR})
    return world


def store(world: World, name: str, kept: float) -> None:
    """Ack a message with a result that is to be kept for so many seconds."""
    results = {element(name): (name, b"j1")}
    world.run(ops.settle(KEYS, "w", 15.0, [element(name)], results_kept=kept, results=results))


def passes(world: World, ms: int) -> None:
    """Let time pass for the results: the moments of theirs move into the past."""
    for key in (KEYS.results, KEYS.earlier_results):
        for field in ("", "  "):
            if world.redis.hexists(key, field):
                world.redis.hincrby(key, field, -ms)
        if world.redis.exists(key):
            world.redis.pexpire(key, world.redis.pttl(key) - ms)


def kept(world: World) -> str:
    found = (name for key in (KEYS.results, KEYS.earlier_results) for name in world.redis.hkeys(key))
    return "".join(sorted(name.decode() for name in found)).strip()


def test_results_go_two_times_as_late_as_the_first_of_their_hash_came(held: World):
    store(held, "a", 100)
    passes(held, 90 * SECOND)
    store(held, "b", 100)
    assert 109 * SECOND < held.redis.pttl(KEYS.results) <= 110 * SECOND
    passes(held, 20 * SECOND)
    store(held, "c", 100)
    assert kept(held) == "abc"
    assert 89 * SECOND < held.redis.pttl(KEYS.earlier_results) <= 90 * SECOND
    assert 199 * SECOND < held.redis.pttl(KEYS.results) <= 200 * SECOND
    passes(held, 95 * SECOND)
    assert kept(held) == "c"


def test_a_result_stays_as_long_as_promised_though_later_ones_are_kept_shorter(held: World):
    store(held, "a", 86_400)
    passes(held, DAY - SECOND)
    store(held, "b", 86_400)
    for name in "cde":
        passes(held, 2 * SECOND)
        store(held, name, 1)
    assert kept(held) == "abcde"
    passes(held, DAY - 10 * SECOND)  # what was stored for a day is not a day old
    store(held, "f", 1)
    assert kept(held) == "abcdef"
    passes(held, 11 * SECOND)
    store(held, "g", 1)
    assert kept(held) == "g"
    assert held.redis.pttl(KEYS.results) <= 2 * SECOND


def test_a_result_stays_as_long_as_promised_though_earlier_ones_were_kept_shorter(held: World):
    store(held, "a", 1)
    store(held, "b", 86_400)
    assert 2 * DAY - SECOND < held.redis.pttl(KEYS.results) <= 2 * DAY
    passes(held, DAY - SECOND)
    store(held, "c", 1)
    assert kept(held) == "abc"


def test_results_of_a_former_version_are_kept(held: World):
    held.redis.hset(KEYS.results, mapping={"": held.now - 90 * SECOND, "a": "j1"})
    held.redis.pexpire(KEYS.results, 200 * SECOND)
    store(held, "b", 100)
    assert kept(held) == "ab"
    assert 105 * SECOND < held.redis.pttl(KEYS.results) <= 110 * SECOND


def done(name: str, result: bytes) -> ops.Op:
    """Settle a message of a handler that runs once."""
    move = Move(element(name), Destination.DONE, "acked", name[0], result, mark=Mark(MARK, 60.0))
    return ops.settle(KEYS, "w", 15.0, [], [move], results_kept=100)


def test_a_message_that_its_consumer_has_lost_has_a_result_with_its_mark(world: World):
    world.given(messages="a2")
    assert world.run(done("a", b"j1")).codes == "l"
    assert (world.redis.exists(MARK), world.redis.hget(KEYS.results, "a")) == (1, b"j1")


def test_of_a_message_that_ran_again_the_result_stays(world: World):
    """Its first consumer lost it; the second one was done first."""
    world.given(processing={"w": "a2"}, leases={"w": HOUR})
    assert world.run(done("a2", b"j2")).codes == "d"
    assert world.run(done("a", b"j1")).codes == "a"
    assert world.redis.hget(KEYS.results, "a") == b"j2"


def repeated(name: str, kept: float) -> ops.Op:
    """Settle a message that a handler which runs once has skipped."""
    move = Move(element(name), Destination.GONE, "acked", name[0], SKIPPED)
    return ops.settle(KEYS, "w", 15.0, [], [move], results_kept=kept)


@pytest.mark.parametrize(
    ("before", "after"), [({}, b"s"), ({"a": b"d"}, b"s"), ({"a": b"j7"}, b"j7"), ({"a": b"b"}, b"b")]
)
def test_what_was_skipped_says_so_unless_its_id_has_a_result(world: World, before: dict[str, bytes], after: bytes):
    world.given(processing={"w": "a"}, leases={"w": HOUR})
    if before:
        world.redis.hset(KEYS.earlier_results, mapping=before)
    assert world.run(repeated("a", 100)).codes == "d"
    found = world.redis.hget(KEYS.results, "a") or world.redis.hget(KEYS.earlier_results, "a")
    assert found == after


def test_what_was_skipped_leaves_nothing_where_no_results_are_kept(world: World):
    world.given(processing={"w": "a"}, leases={"w": HOUR})
    assert world.run(repeated("a", 0)).codes == "d"
    assert not world.redis.exists(KEYS.results)
