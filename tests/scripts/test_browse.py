"""browse, find, upcoming and stats: what a list shows is read, and large bodies stay in Redis."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliq import ops
from reliq.model.dead_letter import DeadLetter
from reliq.model.element import Envelope, Extra, Failure
from reliq.model.listed_message import Glimpse, ListedMessage
from tests.support.state import KEYS, element

MIB = 1024 * 1024
EXTRA = Extra(reason="rejected", errors=(Failure(at=1, worker="w", error_class="E", text="why"),), priority="high")


def dead(world, *elements, score=1000):
    for place, one in enumerate(elements):
        world.redis.zadd(KEYS.dead, {one: score + place})


def ids(browsed):
    return [DeadLetter.read("q", one).id for one in browsed.found]


def sent(world, run):
    """The bytes that Redis has sent during a run, and its result."""
    before = world.redis.info("stats")["total_net_output_bytes"]
    answer = run()
    return world.redis.info("stats")["total_net_output_bytes"] - before, answer


@pytest.mark.parametrize(
    ("order", "low", "high", "limit", "skip", "found", "more"),
    [
        ("up", "-inf", "+inf", 10, 0, "abcd", False),
        ("down", "-inf", "+inf", 10, 0, "dcba", False),
        ("up", "-inf", "+inf", 2, 1, "bc", True),
        ("down", "-inf", "+inf", 2, 1, "cb", True),
        ("up", "(1000", 1002, 10, 0, "bc", False),
        ("down", "(1000", "(1003", 10, 1, "b", False),
        ("up", 1001, "+inf", 3, 0, "bcd", False),
        ("down", "-inf", "+inf", 10, 9, "", False),
        ("up", 2000, "+inf", 10, 0, "", False),
    ],
)
def test_messages_are_read_by_their_scores(world, order, low, high, limit, skip, found, more):
    dead(world, *(element(name) for name in "abcd"))
    browsed = world.run(ops.browse(KEYS.dead, order, low, high, limit, skip))
    assert ("".join(ids(browsed)), browsed.more) == (found, more)
    assert all(one.size == 0 and one.score == b"%d" % (1000 + "abcd".index(ids(browsed)[place]))
               for place, one in enumerate(browsed.found))  # fmt: skip


@pytest.mark.parametrize("shown", [0, 1, 200, 70_000])
@pytest.mark.parametrize("size", [0, 255, 256, 65_535, 65_536, 3 * MIB])
def test_a_large_body_is_cut_and_everything_else_is_kept(world, size, shown):
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    one = element("a", body=body, headers={"shop": "eu" * 1000}, failures=7, extra=EXTRA)
    dead(world, one)
    (glimpse,) = world.run(ops.browse(KEYS.dead, "up", "-inf", "+inf", 1, shown=shown)).found
    letter = DeadLetter.read("q", glimpse)
    assert (letter.id, letter.headers, letter.failures, letter.extra) == ("a", {"shop": "eu" * 1000}, 7, EXTRA)
    assert (letter.size, letter.readable, letter.died_at) == (size, True, 1000)
    assert body.startswith(letter.preview)
    assert len(glimpse.element) < len(one) - size + shown + 1100
    assert glimpse.element == one if glimpse.size == 0 else len(letter.preview) == shown
    assert world.run(ops.browse(KEYS.dead, "up", "-inf", "+inf", 1)).found == [Glimpse(one, 0, b"1000")]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=3000), st.integers(0, 2500), st.integers(0, 2**64 - 1),
    st.dictionaries(st.text(max_size=40), st.text(max_size=400), max_size=20),
    st.none() | st.builds(Extra, routing_key=st.text(max_size=300), reason=st.text(max_size=1500)),
)  # fmt: skip
def test_any_element_is_cut_at_its_body(world, body, shown, nonce, headers, extra):
    world.redis.delete(KEYS.dead)
    one = element("a", body=body, nonce=nonce, headers=headers, extra=extra)
    dead(world, one)
    (glimpse,) = world.run(ops.browse(KEYS.dead, "up", "-inf", "+inf", 1, shown=shown)).found
    found = msgspec.msgpack.decode(glimpse.element, type=Envelope)
    whole = msgspec.msgpack.decode(one, type=Envelope)
    assert msgspec.structs.replace(found, body=whole.body) == whole
    assert found.body == (body[:shown] if glimpse.size else body)
    assert glimpse.size in (0, len(body))


@pytest.mark.parametrize(
    "raw",
    [
        b"\xc1" * 5000,
        b"x" * 5000,
        b"\x9a" + b"\x93" * 5000,
        element("a", body=b"b" * 5000)[:-9],
        element("a", body=b"b" * 5000) + b"y" * 300_000,
    ],
)
def test_of_large_bytes_that_are_no_element_the_start_is_read(world, raw):
    dead(world, raw)
    (glimpse,) = world.run(ops.browse(KEYS.dead, "up", "-inf", "+inf", 1, shown=200)).found
    assert glimpse == Glimpse(raw[:1224], -len(raw), b"1000")
    letter = DeadLetter.read("q", glimpse)
    assert (letter.readable, letter.reason, letter.size, letter.preview) == (False, "decode", len(raw), raw[:1224])


def test_a_call_ends_when_a_mebibyte_is_read(world):
    dead(world, *(element(name, body=b"x" * 600_000) for name in "abcde"))
    browsed = world.run(ops.browse(KEYS.dead, "up", "-inf", "+inf", 10, shown=0))
    assert (ids(browsed), browsed.more) == (["a", "b"], True)
    browsed = world.run(ops.browse(KEYS.dead, "up", "-inf", "+inf", 10, skip=4))
    assert (ids(browsed), browsed.more) == (["e"], False)


def test_a_message_is_found_by_its_id_among_those_that_died_with_it(world):
    for name in "abc":
        dead(world, element(name, body=name.encode() * 5000))
        world.redis.zadd(KEYS.dead, {element(name, body=name.encode() * 5000): 7})
    world.redis.hset(KEYS.index, mapping={"b": 7, "gone": 7, "elsewhere": 8})
    assert world.run(ops.find(KEYS, KEYS.dead, "b", 0, None)) == Glimpse(element("b", body=b"b" * 5000), 0, b"7")
    cut = world.run(ops.find(KEYS, KEYS.dead, "b", 0, 3))
    assert (cut.size, ListedMessage.read("q", cut).preview) == (5000, b"bbb")
    for name in ("a", "gone", "elsewhere"):
        assert world.run(ops.find(KEYS, KEYS.dead, name, 0, None)) is None


def test_a_search_among_large_bodies_goes_on_in_the_next_call(world):
    for name in "abc":
        world.redis.zadd(KEYS.dead, {element(name, body=b"x" * MIB): 7})
    world.redis.hset(KEYS.index, "c", 7)
    assert world.run(ops.find(KEYS, KEYS.dead, "c", 0, 0)) == 1
    assert world.run(ops.find(KEYS, KEYS.dead, "c", 1, 0)) == 2
    assert world.run(ops.find(KEYS, KEYS.dead, "c", 2, 0)).size == MIB


def test_the_messages_that_are_taken_next(world):
    large = element("b", body=b"x" * MIB)
    world.redis.rpush(KEYS.messages, element("d"), element("c"), large, element("a"))
    found = world.run(ops.upcoming(KEYS.messages, 0, 10, 200))
    assert [ListedMessage.read("q", one).id for one in found] == ["a", "b"]
    assert [len(ListedMessage.read("q", one).preview) for one in found] == [1, 200]
    assert [one.element for one in world.run(ops.upcoming(KEYS.messages, 2, 1, 200))] == [element("c")]
    assert world.run(ops.upcoming(KEYS.messages, 4, 10, 200)) == []


def test_the_statistics_send_no_body_and_read_no_delayed_message_that_is_not_due(world):
    now = world.now
    world.redis.zadd(KEYS.delayed, {element("d", body=b"x" * MIB): now + 60_000})
    for name, list_, age in (("l", KEYS.low, 20), ("m", KEYS.messages, 40), ("h", KEYS.high, 60)):
        world.redis.lpush(list_, element(name, body=b"x" * 5 * MIB, extra=EXTRA, enqueued_at=now - age * 1000))
        size, counts = sent(world, lambda: world.run(ops.stats(KEYS, [])))
        assert size < 20_000
        assert age <= counts.oldest_ready_age < age + 15
    assert counts.overdue == 0
    world.redis.zadd(KEYS.delayed, {element("e", body=b"x" * MIB): now - 5000})
    size, counts = sent(world, lambda: world.run(ops.stats(KEYS, [])))
    assert size < 20_000
    assert 5 <= counts.overdue < 65


def test_what_was_read_takes_no_memory_afterwards_and_changes_nothing(world):
    dead(world, *(element(name, body=b"x" * 16 * MIB) for name in "ab"))
    world.redis.hset(KEYS.index, "a", 1000)
    world.redis.lpush(KEYS.messages, element("c", body=b"x" * 16 * MIB))
    before = {key: world.redis.dump(key) for key in world.redis.keys("*")}
    of_scripts = world.redis.info("memory")["used_memory_lua"]  # those of the tests before this one, too
    for op in (
        ops.browse(KEYS.dead, "up", "-inf", "+inf", 10, shown=0), ops.find(KEYS, KEYS.dead, "a", 0, 0),
        ops.upcoming(KEYS.messages, 0, 1, 0), ops.stats(KEYS, []),
    ):  # fmt: skip
        world.run(op)
        assert world.redis.info("memory")["used_memory_lua"] < of_scripts + 4 * MIB
    assert {key: world.redis.dump(key) for key in world.redis.keys("*")} == before


def test_a_full_redis_is_read(world):
    dead(world, element("a", body=b"x" * MIB))
    world.fill()
    assert ids(world.run(ops.browse(KEYS.dead, "down", "-inf", "+inf", 10, shown=0))) == ["a"]
