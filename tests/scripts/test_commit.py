"""commit, commit_roll: a decision in one step, and the short steps that carry it out."""

import pytest

from reliq import ops
from reliq.errors import ReliqError
from reliq.features.staging import ops as stage_ops
from reliq.features.staging.model import Share, Summary, encode
from reliq.features.staging.ops import Staged
from reliq.model.element import Extra, first_element_apart, new_reference
from reliq.model.keys import dedup_digest
from reliq.ops.chunks import DEAD_PLACE, bodies_chunk, chunks_of, deduplicated, framed, place, placed_chunk
from tests.scripts.test_stage import DAY, KEYS, clear, keys_of, stage
from tests.support.state import element, elements, keyed, name_of


def commit(world, run="r1", stream="", epoch=0):
    return world.run(stage_ops.commit(KEYS, "j", run, b"manifest", 3, 60, stream, epoch))


def roll(world, dedup=()):
    """Roll a chunk; return how many messages moved, and how many chunks are left."""
    moved, left, _ = world.run(stage_ops.commit_roll("j", Staged(KEYS, "p"), dedup))
    return moved, left


def digests(chunk):
    return [digest for digest, _ in deduplicated(chunk)]


def chunk_of(*names) -> bytes:
    (one,) = chunks_of(elements(*names))
    return data_of(one)


def placed(*messages) -> bytes:
    """A chunk of pairs of place and element."""
    return data_of(placed_chunk(len(messages), b"".join(framed(part) for pair in messages for part in pair)))


def data_of(chunk) -> bytes:
    return chunk.head + chunk.frames


def names(world) -> str:
    return " ".join(name_of(one) for one in world.redis.lrange(KEYS.messages, 0, -1))


def test_commit_records_the_manifest_and_makes_the_job_due_at_once(world):
    stage(world)
    assert commit(world) == "committed"
    found = keys_of(world)
    assert found["job:j"] == {
        "state": "committed",
        "run": "r1",
        "manifest": "manifest",
        "remember": "60000",
        "messages": "3",
    }
    assert world.redis.zscore(KEYS.jobs, "j") == 0
    assert "messages" not in found


def test_commit_may_be_repeated(world):
    stage(world)
    assert [commit(world), commit(world)] == ["committed", "already"]


def test_commit_of_another_run_or_of_an_aborted_job_is_refused(world):
    stage(world)
    assert commit(world, run="r2") == "closed"
    world.run(stage_ops.stage_abort(KEYS, "j", "r1"))
    before = keys_of(world)
    assert commit(world) == "closed"
    assert keys_of(world) == before


def test_commit_of_a_job_nobody_knows_is_refused(world):
    assert commit(world) == "closed"
    assert keys_of(world) == {}


def test_a_stream_commits_each_epoch_once(world):
    answers = []
    for epoch in (0, 0, 1, 0, 1, 2):
        world.redis.delete(KEYS.job("j"))
        world.run(stage_ops.stage_open(KEYS, "j", "r1", DAY))
        answers.append(commit(world, stream="s", epoch=epoch))
    assert answers == ["committed", "repeated", "committed", "repeated", "repeated", "committed"]
    assert keys_of(world)["epochs"]["s"].split()[0] == "2"


def test_streams_do_not_know_each_other(world):
    stage(world)
    commit(world, stream="s", epoch=7)
    world.redis.delete(KEYS.job("j"))
    world.run(stage_ops.stage_open(KEYS, "j", "r1", DAY))
    assert commit(world, stream="t", epoch=0) == "committed"


def test_a_roll_moves_one_chunk_first_staged_first_taken(world):
    stage(world, 0, (chunk_of("a", "b"), chunk_of("c")))
    assert roll(world) == (2, 1)
    assert names(world) == "b a"
    assert roll(world) == (1, 0)
    assert names(world) == "c b a"
    assert world.redis.hget(KEYS.counters, "enqueued") == b"3"
    assert roll(world) == (0, 0)


def test_a_delayed_message_is_filed_with_its_due_time_and_can_be_cancelled(world):
    stage(world, 0, (placed((place(0), element("a")), (place(60_000), element("b"))),))
    assert roll(world) == (2, 0)
    assert names(world) == "a"
    ((later, due),) = world.redis.zrange(KEYS.delayed, 0, -1, withscores=True)
    assert (name_of(later), world.now + 60_000 <= due < world.now + 70_000) == ("b", True)
    assert world.run(ops.cancel(KEYS, "b"))


def test_messages_of_one_key_become_ready_one_after_the_other(world):
    stage(world, 0, (placed(*((place(0), keyed(name, "k")) for name in "abc")),))
    assert roll(world) == (3, 0)
    assert names(world) == "a"
    assert world.redis.zcard(KEYS.waiting) == 2
    assert len(world.redis.hgetall(KEYS.active)) == 1


def test_a_deduplication_key_lets_the_first_message_in_and_counts_the_others(world):
    once = dedup_digest("once")
    first, other = (
        placed((place(0, 60_000, once, digest), element(name))) for name, digest in (("a", "1"), ("b", "2"))
    )
    again = placed((place(0, 60_000, once, "1"), element("c")))
    stage(world, 0, (first, other, again))
    assert [roll(world, dedup=digests(one)) for one in (first, other, again)] == [
        (1, 2),
        (1, 1),
        (1, 0),
    ]
    assert names(world) == "a"
    assert 0 < world.redis.pttl(KEYS.dedup("once")) <= 60_000
    counters = world.redis.hgetall(KEYS.counters)
    assert counters == {b"enqueued": b"1", b"deduplicated": b"2", b"dedup_conflicts": b"1"}


def test_two_messages_of_one_chunk_with_one_deduplication_key(world):
    once = dedup_digest("once")
    both = placed(*((place(0, 60_000, once, "1"), element(name)) for name in "ab"))
    stage(world, 0, (both,))
    assert roll(world, dedup=digests(both)) == (2, 0)
    assert names(world) == "a"


def test_a_duplicate_is_no_member_of_its_batch(world):
    once, batch = dedup_digest("once"), "abcdefABCDEF"
    members = [element(name, extra=Extra(batch=batch)) for name in "abc"]
    chunk = placed((b"0", members[0]), *((place(0, 60_000, once, "1"), one) for one in members[1:]))
    stage(world, 0, (chunk,))
    assert roll(world, dedup=digests(chunk)) == (3, 0)
    assert world.redis.hget(KEYS.followed, f" {batch}") == b"2 2 0 0"


def test_deduplication_keys_of_another_chunk_move_nothing(world):
    chunk = placed((place(0, 60_000, dedup_digest("once"), "1"), element("a")))
    stage(world, 0, (chunk,))
    before = keys_of(world)
    assert roll(world) == (-1, 1)
    assert roll(world, dedup=[dedup_digest("other")]) == (-1, 1)
    assert keys_of(world) == before


def test_a_duplicate_leaves_no_body_behind(world):
    reference, once = new_reference(2000), dedup_digest("once")
    world.redis.set(KEYS.dedup("once"), "first 1")
    duplicate = first_element_apart("a", 1, {}, Extra(apart=reference))
    bodies = data_of(bodies_chunk(1, framed(reference) + framed(bytes(2000))))
    chunk = placed((place(0, 60_000, once, "1"), duplicate))
    stage(world, 0, (bodies, chunk))
    assert roll(world) == (0, 1)
    assert world.redis.hkeys(KEYS.bodies) == [reference]
    assert roll(world, dedup=digests(chunk)) == (1, 0)
    assert world.redis.hlen(KEYS.bodies) == 0


def test_a_row_that_cannot_be_sent_becomes_a_dead_letter(world):
    stage(world, 0, (placed((DEAD_PLACE, element("a"))),))
    assert roll(world) == (1, 0)
    ((letter, died),) = world.redis.zrange(KEYS.dead, 0, -1, withscores=True)
    assert (name_of(letter), world.now <= died < world.now + 10_000) == ("a", True)
    counters = world.redis.hgetall(KEYS.counters)
    assert counters == {b"enqueued": b"1", b"dead_lettered": b"1", b"dead:invalid": b"1"}


def test_a_chunk_that_does_not_decode_stays_where_it_is(world):
    stage(world, 0, (b"\xc1 no message pack",))
    before = keys_of(world)
    with pytest.raises(ReliqError):
        roll(world)
    assert keys_of(world) == before


def test_commit_and_roll_pass_when_memory_is_full(world):
    stage(world, 0, (chunk_of("a"),))
    try:
        world.redis.config_set("maxmemory", 1)
        assert commit(world) == "committed"
        assert roll(world) == (1, 0)
        assert clear(world, "p") == 0
    finally:
        world.redis.config_set("maxmemory", 0)
    assert names(world) == "a"


def test_staging_is_refused_when_memory_is_full_and_leaves_nothing(world):
    try:
        world.redis.config_set("maxmemory", 1)
        with pytest.raises(ReliqError, match="maxmemory"):
            stage(world)
    finally:
        world.redis.config_set("maxmemory", 0)
    assert keys_of(world) == {}


def test_versions_of_an_application_are_committed_in_rising_order_beside_the_epochs_of_streams(world):
    answers = []
    for version, versions in ((7, True), (7, True), (6, True), (0, False), (8, True)):
        world.redis.delete(KEYS.job("j"))
        world.run(stage_ops.stage_open(KEYS, "j", "r1", DAY))
        answers.append(world.run(stage_ops.commit(KEYS, "j", "r1", b"", 3, 60, "shop", version, versions)))
    assert answers == ["committed", "repeated", "repeated", "committed", "committed"]
    for application, version, found in (("shop", 8, ""), ("shop", 7, ""), ("shop", 9, None), ("other", 0, None)):
        assert world.run(stage_ops.committed_turn(KEYS, application, version, versions=True)) == found


def test_the_latest_hundred_jobs_that_have_ended_say_what_they_have_written(world):
    about = Summary(rows=3, queues={"q": Share(2, 99)})
    for number in range(102):
        world.redis.delete(KEYS.job("j"))
        world.run(stage_ops.stage_open(KEYS, "j", "r1", DAY))
        world.run(stage_ops.commit(KEYS, "j", "r1", b"", number, 60, about=encode(about)))
        world.run(stage_ops.count_duplicates(KEYS, "j", "q", number))
        assert world.run(stage_ops.duplicates(KEYS, "j")) == {"q": number}
        assert clear(world) == 0
    latest, *others = world.run(stage_ops.ended_jobs(KEYS, 1000))
    assert (len(others), others[-1].deduplicated) == (99, {"q": 2})
    assert (latest.name, latest.deduplicated, latest.about) == ("j", {"q": 101}, about)
    assert latest.opened <= latest.committed <= latest.ended


def test_a_job_that_is_aborted_or_says_nothing_is_not_among_them(world):
    stage(world)
    commit(world)
    assert clear(world, "p") == 0
    stage(world, job="k")
    world.run(stage_ops.stage_abort(KEYS, "k", "r1"))
    world.run(stage_ops.stage_clear(KEYS, "k", "r1", 60, [Staged(KEYS, "p")]))
    assert world.run(stage_ops.ended_jobs(KEYS, 10)) == []
