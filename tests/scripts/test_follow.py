"""What a queue notes about its messages: the index of `track`, the history, and the counts of batches."""

from string import ascii_lowercase
from typing import Any

import pytest

from reliq import ops
from reliq.features.tracking import ops as track_ops
from reliq.features.tracking.ops import Criterion
from reliq.model.element import Extra, group_of, latest_group_of
from reliq.ops import Destination, Entry, Move, Revival
from tests.support.state import KEYS, element, elements, keyed

BATCH = "abcdefABCDEF"


def of_batch(name, **extra):
    return element(name, extra=Extra(batch=BATCH, **extra))


def counts(world):
    found = world.redis.hget(KEYS.followed, f" {BATCH}")
    return found and tuple(int(one) for one in found.split())


def events(world):
    _, found = world.run(track_ops.biography(KEYS, "a", b"-"))
    return [(event.name, event.detail) for event in found]


def settle(world, acks=(), moves=()):
    return world.run(ops.settle(KEYS, "w", 15.0, acks, moves))


@pytest.fixture
def tracked(world):
    world.given(config={"track": 1, "history": 3600}, leases={"w": 15_000})
    return world


def test_push_leaves_a_queue_that_follows_its_messages_to_enqueue(tracked):
    assert tracked.run(ops.push(KEYS, elements("a"), "p", 1, 0)) is False
    tracked.run(ops.enqueue(KEYS, elements("a", "b")))
    assert tracked.redis.hgetall(KEYS.followed) == {b"a": b"1", b"b": b"1"}


def test_a_life_is_noted_from_its_beginning_to_its_end(tracked):
    tracked.run(ops.enqueue(KEYS, elements("a", "b")))
    tracked.run(ops.claim(KEYS, "w", 15.0, 1))
    settle(tracked, moves=[Move(element("a"), Destination.DELAYED, "retried", "a", element("a2"), 5.0)])
    tracked.redis.zadd(KEYS.delayed, {element("a2"): 0})
    tracked.run(ops.promote(KEYS, 10))
    tracked.run(ops.claim(KEYS, "w", 15.0, 2))
    settle(tracked, acks=[element("b"), element("a2")])
    assert events(tracked) == [
        ("enqueued", ""), ("claimed", "w"), ("retried", "5000"), ("claimed", "w"), ("acked", ""),
    ]  # fmt: skip
    assert tracked.redis.hgetall(KEYS.followed) == {}


def test_dead_letters_and_redrives_are_noted(tracked):
    tracked.run(ops.enqueue(KEYS, elements("a")))
    tracked.run(ops.claim(KEYS, "w", 15.0, 1))
    settle(tracked, moves=[Move(element("a"), Destination.DEAD, "dead:rejected", "a", element("a2"))])
    assert tracked.redis.hexists(KEYS.followed, "a") is False
    tracked.run(ops.redrive(KEYS, [Revival(element("a2"), "a", element("a3"))]))
    assert events(tracked)[2:] == [("dead:rejected", ""), ("redriven", "")]
    assert tracked.redis.hexists(KEYS.followed, "a")


def test_a_message_that_waits_for_its_key_is_found_by_its_line(tracked):
    for name in "ab":
        tracked.run(ops.enqueue(KEYS, [], [Entry(name, keyed(name, "k"), 0, None, 0)]))
    line = tracked.run(track_ops.tracked(KEYS, "b"))
    assert line.startswith(group_of("k").encode())
    assert tracked.run(ops.in_line(KEYS, line)) == keyed("b", "k")


@pytest.mark.parametrize("how", ["cancel", "sweep", "purge"])
def test_what_is_cancelled_or_purged_leaves_the_index(tracked, how):
    tracked.run(ops.enqueue(KEYS, [], [Entry("a", element("a"), 60.0 if how == "cancel" else 0, None, 0)]))
    if how == "cancel":
        tracked.run(ops.cancel(KEYS, "a"))
    elif how == "sweep":
        tracked.run(track_ops.sweep(KEYS, KEYS.messages, 0, Criterion.with_id("a"), 1))
    else:
        tracked.run(ops.purge(KEYS, 10))
    assert tracked.redis.hgetall(KEYS.followed) == {}
    assert events(tracked)[1:] == [("purged" if how == "purge" else "cancelled", "")]


def test_the_history_is_bounded_by_its_time(tracked):
    for number in range(200):
        tracked.redis.xadd(KEYS.history, {"id": "a", "event": "enqueued", "detail": ""}, id=f"1-{number + 1}")
    for _ in range(100):
        tracked.run(ops.enqueue(KEYS, elements("b")))
    assert len(tracked.redis.xrange(KEYS.history, "-", "(1000-0")) < 100  # Redis deletes a hundred at a time
    assert 0 < tracked.redis.pttl(KEYS.history) <= 3_660_000


def test_a_call_prolongs_the_history_once_however_many_messages_it_notes(tracked):
    tracked.redis.config_resetstat()
    tracked.run(ops.enqueue(KEYS, elements(*(f"m{number}" for number in range(50)))))
    counts = {name: one["calls"] for name, one in tracked.redis.info("commandstats").items()}
    assert (counts["cmdstat_xadd"], counts["cmdstat_pexpire"]) == (50, 1)


def test_a_batch_counts_its_messages_until_they_end(world):
    world.given(leases={"w": 15_000})
    plain = [of_batch("a"), element("x"), of_batch("b", key="k", group=group_of("k"))]
    world.run(ops.enqueue(KEYS, plain, batches={BATCH: 2}))
    world.run(ops.enqueue(KEYS, [], [Entry("c", of_batch("c"), 60.0, None, 0), Entry("d", of_batch("d"), 0, None, 0)]))
    assert counts(world) == (4, 4, 0, 0)
    assert world.redis.hget(KEYS.config, "batched") == b"1"
    claimed = world.run(ops.claim(KEYS, "w", 15.0, 10)).elements
    a, x, b, d = claimed
    settle(world, acks=[a, x])
    assert counts(world) == (3, 4, 0, 0)
    settle(world, moves=[Move(b, Destination.DEAD, "dead:rejected", "b", of_batch("b"))])
    assert counts(world) == (2, 4, 1, 0)
    world.run(ops.redrive(KEYS, [Revival(of_batch("b"), "b", of_batch("b"))]))
    assert counts(world) == (3, 4, 0, 0)
    world.run(ops.cancel(KEYS, "c"))
    assert counts(world) == (2, 4, 0, 1)
    settle(world, acks=[d], moves=[])
    settle(world, acks=[d])  # again: it is not there any more
    world.run(ops.purge(KEYS, 10))
    assert counts(world) == (0, 4, 0, 2)


def test_a_repeated_call_and_a_duplicate_do_not_count(world):
    entry = Entry("a", of_batch("a"), 0, "dedup", 60.0)
    world.run(ops.enqueue(KEYS, [], [entry], "p", 1))
    world.run(ops.enqueue(KEYS, [], [entry], "p", 1))
    world.run(ops.enqueue(KEYS, [], [Entry("b", of_batch("b"), 0, "dedup", 60.0)], "p", 2))
    assert counts(world) == (1, 1, 0, 0)


@pytest.mark.parametrize("batches", [None, {of_batch("a"): BATCH, of_batch("b"): BATCH}])
def test_acks_in_a_row_are_counted_once_whether_or_not_the_caller_knows_their_batches(world, batches):
    world.given(leases={"w": 15_000})
    sent = [of_batch("a"), element("x"), of_batch("b"), of_batch("c")]
    world.run(ops.enqueue(KEYS, sent, batches={BATCH: 3}))
    world.run(ops.claim(KEYS, "w", 15.0, 10))
    assert world.run(ops.settle(KEYS, "w", 15.0, sent[:3], row=3, batches=batches)).codes == "ddd"
    assert counts(world) == (1, 3, 0, 0)


def test_a_message_that_is_tried_again_stays_open(world):
    world.given(leases={"w": 15_000})
    world.run(ops.enqueue(KEYS, [of_batch("a")], batches={BATCH: 1}))
    world.run(ops.claim(KEYS, "w", 15.0, 10))
    settle(world, moves=[Move(of_batch("a"), Destination.HEAD, "retried", "a", of_batch("a2"))])
    assert counts(world) == (1, 1, 0, 0)


def test_a_body_that_ends_like_a_batch_has_none(world):
    body = b"\xa5batch\xac" + BATCH.encode()
    world.run(ops.enqueue(KEYS, [element("a", body=body), element("b", body=body, extra=Extra(expires_at=2**40))]))
    assert world.redis.exists(KEYS.followed) == 0


@pytest.mark.parametrize("extra", [{"cycle": True}, {"lane": True}, {"priority": "high"}, {"apart": b"r" * 12}])
def test_a_batch_is_found_before_the_other_fields_of_the_tail(world, extra):
    group: dict[str, Any] = {} if "priority" in extra or "apart" in extra else {"key": "k", "group": group_of("k")}
    raw = element("a", version=2 if "apart" in extra else 1, body=b"", extra=Extra(batch=BATCH, **group, **extra))
    if extra.get("cycle"):
        world.redis.hset(KEYS.cycle, group_of("k"), "other k")
    world.run(ops.enqueue(KEYS, [], [Entry("a", raw, 0, None, 0)]))
    assert counts(world) == (1, 1, 0, 0)


def test_what_replaces_another_in_the_first_call_of_a_batch_is_counted(world):
    latest = {name: of_batch(name, group=latest_group_of("d")) for name in "abc"}
    world.run(ops.enqueue(KEYS, [], [Entry(name, one, 0, "d", 0.0, replace=True) for name, one in latest.items()]))
    assert counts(world) == (2, 3, 0, 1)  # a is ready, and c has replaced b behind it


def test_the_index_is_deleted_beside_the_counts_of_an_open_batch(tracked):
    names = ["x" + first + second for first in ascii_lowercase for second in ascii_lowercase]
    tracked.run(ops.enqueue(KEYS, [of_batch("a"), *elements(*names)], batches={BATCH: 1}))
    tracked.redis.hdel(KEYS.config, "track")
    cursor = tracked.run(track_ops.forget_tracked(KEYS))
    assert tracked.redis.hlen(KEYS.followed) > 1
    while cursor:
        cursor = tracked.run(track_ops.forget_tracked(KEYS, cursor))
    assert tracked.redis.hkeys(KEYS.followed) == [f" {BATCH}".encode()]


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        ("batched", " b"),
        ("recorded", "\na"),
        ("emitted", "\ta"),
        ("flowing", "\va"),
        (None, "\t\t1"),
        (None, "\v\v\v1"),  # what monitors have not read yet
    ],
)
def test_what_other_features_have_noted_stays_when_the_index_goes(tracked, flag, field):
    tracked.run(ops.enqueue(KEYS, elements("x")))
    tracked.redis.hset(KEYS.followed, field, "noted")
    if flag is not None:
        tracked.redis.hset(KEYS.config, flag, 1)
    tracked.redis.hdel(KEYS.config, "track")
    assert tracked.run(track_ops.forget_tracked(KEYS)) == 0
    assert tracked.redis.hkeys(KEYS.followed) == [field.encode()]


def test_the_index_of_a_queue_that_tracks_again_stays(tracked):
    tracked.run(ops.enqueue(KEYS, [of_batch("a"), *elements("x")], batches={BATCH: 1}))
    assert tracked.run(track_ops.forget_tracked(KEYS)) == 0
    assert tracked.redis.hlen(KEYS.followed) == 3
