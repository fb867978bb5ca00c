"""sweep and tell: find messages wherever they are, and cancel them."""

import pytest

from reliq import ops
from reliq.features.tracking import ops as track_ops
from reliq.features.tracking.locating import start_of
from reliq.features.tracking.ops import Criterion
from reliq.model.element import BLANK, group_of
from reliq.model.life import Report
from reliq.model.message import Message
from reliq.ops.held import Hold
from tests.support.state import KEYS, element, keyed

A = Criterion.with_id("a")


def found(swept):
    return [(match.id, match.behind) for match in swept.matches]


def headed(name, **headers):
    return element(name, headers=headers)


def test_a_ready_message_is_found_with_its_position(world):
    world.given(messages="c b a d")  # d is taken first
    swept = world.run(track_ops.sweep(KEYS, KEYS.messages, 0, A))
    assert (swept.following, found(swept)) == (None, [("a", 1)])


def test_a_sweep_is_a_part_of_a_place_and_says_where_the_next_begins(world, monkeypatch):
    world.given(messages="d c b a")
    monkeypatch.setattr(track_ops, "SWEEP", 2)
    first = world.run(track_ops.sweep(KEYS, KEYS.messages, 0, A))
    second = world.run(track_ops.sweep(KEYS, KEYS.messages, first.following, A))
    assert (found(first), first.following) == ([], 2)
    assert found(second) == [("a", 0)]


def test_a_repeated_cancellation_finds_what_the_first_has_removed(world):
    """Not the next message with this id."""
    world.given(messages="c a b a")
    call, other = KEYS.new_call(), KEYS.new_call()
    assert found(world.run(track_ops.sweep(KEYS, KEYS.messages, 0, A, 1, call))) == [("a", 2)]
    assert found(world.run(track_ops.sweep(KEYS, KEYS.messages, 0, A, 1, call))) == [("a", -1)]
    assert found(world.run(track_ops.sweep(KEYS, KEYS.messages, 0, Criterion.with_id("z"), 1, other))) == []
    assert not world.run(ops.exists(other))
    assert world.state()["counters"]["cancelled"] == 1


@pytest.mark.parametrize("place", [KEYS.messages, KEYS.delayed, KEYS.waiting])
def test_a_repeated_part_is_answered_as_the_first_and_goes_on_where_that_began(world, place):
    names = ["a1", "b", "a2", "a3"]
    if place == KEYS.messages:
        world.given(messages=" ".join(names))
    elif place == KEYS.delayed:
        world.given(delayed={name: number for number, name in enumerate(names)})
    else:
        lines = {group_of("k").encode() + b"%016d" % number + element(name): 0 for number, name in enumerate(names)}
        world.redis.zadd(place, lines)
    start, call = start_of(KEYS, place), KEYS.new_call()
    first, again = (world.run(track_ops.sweep(KEYS, place, start, A, 2, call)) for _ in range(2))
    assert [one.id for one in first.matches] == [one.id for one in again.matches] == ["a", "a"]
    rest = world.run(track_ops.sweep(KEYS, place, again.following, A, 2, KEYS.new_call()))
    assert (rest.following, [one.id for one in rest.matches]) == (None, ["a"])


def test_a_cancelled_ready_message_leaves_a_blank_that_a_claim_passes_over(world):
    world.given(messages="c a b", leases={"w": 15_000})
    swept = world.run(track_ops.sweep(KEYS, KEYS.messages, 0, A, removals=1))
    assert found(swept) == [("a", 1)]
    assert world.redis.lrange(KEYS.messages, 0, -1) == [element("c"), BLANK, element("b")]
    assert world.run(ops.stats(KEYS, ["w"])).ready == 2
    claimed = world.run(ops.claim(KEYS, "w", 15.0, 10))
    assert claimed.elements == [element("b"), element("c")]
    assert world.state() == {
        "consumers": {"w"},
        "counters": {"blanks": 1, "blanks_passed": 1, "cancelled": 1, "claimed": 2},
        "lease:w": "alive",
        "processing:w": "c b",
    }


def test_only_the_named_message_goes(world):
    world.given(messages="ab a b")
    world.run(track_ops.sweep(KEYS, KEYS.messages, 0, A, removals=10))
    assert world.redis.lrange(KEYS.messages, 0, -1) == [element("ab"), BLANK, element("b")]


def test_a_cancelled_message_passes_its_key_on_although_that_moves_the_places_of_others(world):
    world.redis.rpush(KEYS.messages, keyed("a", "k"), element("x"), keyed("b", "k"))
    world.redis.hset(KEYS.active, group_of("k"), "a")
    world.redis.zadd(KEYS.waiting, {group_of("k").encode() + b"%016d" % 1 + keyed("c", "k"): 0})
    swept = world.run(track_ops.sweep(KEYS, KEYS.messages, 0, Criterion.with_key("k"), removals=9))
    assert found(swept) == [("a", 2), ("b", 0)]
    assert world.redis.lrange(KEYS.messages, 0, -1) == [keyed("c", "k"), BLANK, element("x")]


def test_the_places_at_the_end_of_the_list_go_with_the_last_message_behind_them(world, monkeypatch):
    world.redis.rpush(KEYS.messages, element("b"), *[BLANK] * 120, element("a"), *[BLANK] * 7)
    world.redis.hset(KEYS.counters, "blanks", 127)
    world.run(track_ops.sweep(KEYS, KEYS.messages, 0, A, removals=1))
    assert world.state() == {
        "counters": {"blanks": 128, "blanks_passed": 128, "cancelled": 1},
        "messages": "b",
    }


def test_the_places_stay_that_keep_messages_from_being_empty_before_another_list_is(world):
    world.given(messages="a")
    world.redis.rpush(KEYS.high, element("b"))
    world.run(track_ops.sweep(KEYS, KEYS.messages, 0, A, removals=1))
    assert world.redis.lrange(KEYS.messages, 0, -1) == [BLANK]
    assert world.redis.lrange(KEYS.high, 0, -1) == [element("b")]


def test_a_waiting_message_is_removed_from_its_line(world):
    world.redis.rpush(KEYS.messages, keyed("a", "k"))
    world.redis.hset(KEYS.active, group_of("k"), "a")
    for turn, name in enumerate("bc"):
        world.redis.zadd(KEYS.waiting, {group_of("k").encode() + b"%016d" % turn + keyed(name, "k"): 0})
    swept = world.run(track_ops.sweep(KEYS, KEYS.waiting, b"", Criterion.with_id("b"), removals=1))
    assert found(swept) == [("b", -1)]
    assert world.state() == {
        "active": {group_of("k"): "a"},
        "counters": {"cancelled": 1},
        "messages": "a",
        "waiting": "c",
    }


def test_delayed_messages_are_removed_with_their_index(world):
    world.given(delayed={"a": 1000, "b": 2000})
    world.run(track_ops.sweep(KEYS, KEYS.delayed, 0, A, removals=10))
    assert world.state() == {"counters": {"cancelled": 1}, "delayed": "b", "index": {"b"}}


def test_headers_must_all_be_there_and_bytes_of_a_body_do_not_count(world):
    one = headed("a", tenant="x", kind="mail")
    other = headed("b", tenant="x")
    body = element("c", body=b"\xa6tenant\xa1x\xa4kind\xa4mail")
    world.redis.rpush(KEYS.messages, one, other, body)
    wanted = Criterion.with_headers({"tenant": "x", "kind": "mail"})
    assert found(world.run(track_ops.sweep(KEYS, KEYS.messages, 0, wanted))) == [("a", 2)]


def test_what_is_no_message_matches_nothing(world):
    world.redis.rpush(KEYS.messages, b"", b"\x9a", b"no message", BLANK)
    for wanted in (A, Criterion.with_key("k"), Criterion.with_headers({"a": "b"})):
        swept = world.run(track_ops.sweep(KEYS, KEYS.messages, 0, wanted, removals=9))
        assert (swept.following, swept.matches) == (None, [])


def test_a_purge_passes_over_blanks(world):
    world.redis.rpush(KEYS.messages, BLANK, element("a"), BLANK)
    world.redis.hset(KEYS.counters, "blanks", 2)
    assert world.run(ops.purge(KEYS, 10)).removed == 1
    assert world.state() == {"counters": {"blanks": 2, "blanks_passed": 2, "purged": 1}}
    world.redis.rpush(KEYS.messages, BLANK)
    assert world.run(ops.purge(KEYS, 1)) == (0, True, [])
    assert world.run(ops.purge(KEYS, 1)).removed == 0


def test_a_blank_does_not_count_for_the_length_of_the_queue(world):
    world.given(messages="a", config={"max_length": 2})
    world.run(track_ops.sweep(KEYS, KEYS.messages, 0, A, removals=1))
    assert world.run(ops.enqueue(KEYS, [element("b"), element("c")])).status == "ok"
    assert world.run(ops.enqueue(KEYS, [element("d")])).status == "full"


@pytest.mark.parametrize(("name", "told"), [("a", True), ("b", False)])
def test_a_consumer_is_told_only_of_what_it_holds(world, name, told):
    world.given(processing={"w": "a"}, leases={"w": 15_000})
    assert world.run(track_ops.tell(KEYS, "w", name, 0)) is told
    cancelled = world.run(ops.told(KEYS))
    assert [identity for identity, _ in cancelled] == (["a"] if told else [])
    assert all(abs(at - world.now) < 60_000 for _, at in cancelled)


def hold(name, place=0, raw=None):
    return Hold(KEYS, "w", Message.decode("q", raw or element(name)), place)


def test_a_report_is_stored_only_about_a_message_that_is_held_with_a_lease(world):
    world.given(processing={"w": "a", "gone": "a"}, leases={"w": 15_000})
    assert world.run(ops.report(hold("a"), Report(0.5, "half", b"\xc0")))
    assert not world.run(ops.report(hold("b"), Report(0.9, "settled")))
    assert not world.run(ops.report(hold("a")._replace(consumer="gone"), Report(0.9, "stolen")))
    report = world.run(ops.reported(KEYS, "a"))
    assert (report.fraction, report.text, report.tag, report.state) == (0.5, "half", "a 1", b"\xc0")
    assert world.redis.pttl(KEYS.report("a")) > 6 * 86_400_000
    assert world.redis.exists(KEYS.report("b")) == 0


def test_a_report_says_nothing_about_another_message_with_the_same_id(world):
    world.given(processing={"w": "a"}, leases={"w": 15_000})
    later = element("a2", enqueued_at=1_700_000_000_001)
    world.redis.rpush(KEYS.processing("w"), later)
    assert world.run(ops.report(hold("a"), Report(0.5, "half", b"\xc0")))
    assert world.run(ops.report(hold("a", raw=later), Report(0.1)))
    report = world.run(ops.reported(KEYS, "a"))
    assert (report.fraction, report.text, report.state, report.sent) == (0.1, "", None, 1_700_000_000_001)


def test_a_report_of_a_former_version_is_gone_on_with(world):
    world.given(processing={"w": "a"}, leases={"w": 15_000})
    world.redis.hset(KEYS.report("a"), mapping={"tag": "a 1", "at": 1, "state": b"\xc0"})
    message = hold("a").message
    assert world.run(ops.reported(KEYS, "a")).is_about(message.enqueued_at)
    assert world.run(ops.report(hold("a"), Report(0.1)))
    report = world.run(ops.reported(KEYS, "a"))
    assert (report.fraction, report.state, report.sent) == (0.1, b"\xc0", message.enqueued_at)


@pytest.mark.parametrize("place", [0, 1, 7])
def test_a_report_finds_its_message_wherever_it_is_in_the_list(world, place):
    world.given(processing={"w": "c b a"}, leases={"w": 15_000})
    assert world.run(ops.report(hold("b", place=place), Report(0.5)))
