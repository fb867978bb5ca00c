"""commit, commit_roll: a decision in one step, and the short steps that carry it out."""

import pytest

from reliq import ops
from reliq.errors import ReliqError
from reliq.ops import Staged
from reliq.ops.chunks import chunk, chunks_of, framed
from tests.scripts.test_stage import DAY, KEYS, clear, keys_of, stage
from tests.support.state import element, elements, name_of


def commit(world, run="r1", stream="", epoch=0):
    return world.run(ops.commit(KEYS, "j", run, b"manifest", 3, 60, stream, epoch))


def roll(world, part="p"):
    return world.run(ops.commit_roll("j", Staged(KEYS, part)))


def chunk_of(*names) -> bytes:
    (one,) = chunks_of(elements(*names))
    return data_of(one)


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
    world.run(ops.stage_abort(KEYS, "j", "r1"))
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
        world.run(ops.stage_open(KEYS, "j", "r1", DAY))
        answers.append(commit(world, stream="s", epoch=epoch))
    assert answers == ["committed", "repeated", "committed", "repeated", "repeated", "committed"]
    assert keys_of(world)["epochs"]["s"].split()[0] == "2"


def test_streams_do_not_know_each_other(world):
    stage(world)
    commit(world, stream="s", epoch=7)
    world.redis.delete(KEYS.job("j"))
    world.run(ops.stage_open(KEYS, "j", "r1", DAY))
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
    frames = b"".join(map(framed, (b"0", element("a"), b"60000", element("b"))))
    stage(world, 0, (data_of(chunk(2, frames, delayed=True)),))
    assert roll(world) == (2, 0)
    assert names(world) == "a"
    ((later, due),) = world.redis.zrange(KEYS.delayed, 0, -1, withscores=True)
    assert (name_of(later), world.now + 60_000 <= due < world.now + 70_000) == ("b", True)
    assert world.run(ops.cancel(KEYS, "b"))


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
