"""stage_open, stage, stage_abort, stage_clear: what a job writes before it is decided."""

from typing import Any

import pytest

from reliq import ops
from reliq.errors import RedisUnsuitable
from reliq.features.staging import ops as stage_ops
from reliq.features.staging.ops import Staged
from reliq.model.element import Extra, first_element_apart, new_reference
from reliq.model.keys import SEVERAL, QueueKeys
from reliq.ops import Packed
from reliq.ops.chunks import chunks_of, framed

KEYS = QueueKeys("q")
DAY = 86_400.0


def keys_of(world) -> dict[str, Any]:
    """Every key of the queue by its last words, with its value."""
    found: dict[str, Any] = {}
    for key in world.redis.keys("reliq:{q}:*"):
        name = key.decode().removeprefix("reliq:{q}:")
        match world.redis.type(key):
            case b"hash":
                fields = {k.decode(): v.decode() for k, v in world.redis.hgetall(key).items()}
                found[name] = {k: v for k, v in fields.items() if k not in ("opened", "staged")}
            case b"list":
                found[name] = world.redis.lrange(key, 0, -1)
            case b"set":
                found[name] = {one.decode() for one in world.redis.smembers(key)}
            case b"zset":
                found[name] = [one.decode() for one in world.redis.zrange(key, 0, -1)]
    return found


def stage(world, before=0, chunks=(b"x",), part="p", run="r1", job="j"):
    _, answer = world.run(stage_ops.stage(KEYS, job, run, DAY, Staged(KEYS, part), before, chunks))
    return answer


def clear(world, *parts):
    return world.run(stage_ops.stage_clear(KEYS, "j", "r1", 60, [Staged(KEYS, part) for part in parts]))


def test_a_first_chunk_begins_the_job(world):
    assert stage(world) == "ok"
    assert keys_of(world) == {
        "job:j": {"state": "open", "run": "r1"},
        "jobs": ["j"],
        "parts:j": {"q p"},
        "staged:j:p": [b"x"],
    }
    assert world.run(ops.job_record(KEYS, "j")).opened >= world.now


def test_chunks_keep_their_order(world):
    stage(world, 0, (b"a", b"b"))
    stage(world, 2, (b"c",))
    assert keys_of(world)["staged:j:p"] == [b"a", b"b", b"c"]


def test_a_call_whose_answer_was_lost_is_not_carried_out_twice(world):
    assert [stage(world), stage(world)] == ["ok", "ok"]
    assert keys_of(world)["staged:j:p"] == [b"x"]


def test_a_part_that_is_not_as_long_as_its_writer_knows_is_torn(world):
    stage(world)
    assert stage(world, before=5) == "torn"
    world.redis.flushall()
    assert stage(world, before=1) == "torn"
    assert keys_of(world) == {}


def stage_with_body(world, before, chunks, reference):
    body = Packed(2, (framed(reference) + framed(b"body"),))
    one = stage_ops.stage(KEYS, "j", "r1", DAY, Staged(KEYS, "p"), before, chunks, [body], [reference])
    *_, answer = world.run(one)
    return answer


def test_bodies_are_stored_with_a_part_and_deleted_with_it(world):
    elements = [first_element_apart(name, 1, {}, Extra(apart=new_reference(4))) for name in "abc"]
    for before, one in enumerate(elements):
        (chunk,) = chunks_of([one])
        assert stage_with_body(world, before, [chunk.head + chunk.frames], one[-12:]) == "ok"
    assert stage_with_body(world, 3, [], elements[0][-12:]) == "ok"
    assert world.redis.hlen(KEYS.bodies) == 3
    assert world.run(stage_ops.unstage("j", Staged(KEYS, "p"), 2)) == 1
    assert world.redis.hkeys(KEYS.bodies) == [elements[2][-12:]]
    assert [world.run(stage_ops.unstage("j", Staged(KEYS, "p"), 2)) for _ in range(2)] == [0, 0]
    assert world.redis.hlen(KEYS.bodies) == 0


def test_the_record_counts_what_was_staged_and_knows_when_it_was_opened(world):
    world.run(stage_ops.stage_open(KEYS, "j", "r1", DAY))
    for before in (0, 0, 1):  # the second call repeats the first one
        world.run(stage_ops.stage(KEYS, "j", "r1", DAY, Staged(KEYS, "p"), before, [b"x"], messages=7))
    record = world.run(ops.job_record(KEYS, "j"))
    assert (record.state, record.staged, record.rolled) == ("open", 14, 0)
    assert world.now <= record.opened < world.now + 10_000
    world.run(stage_ops.stage_open(KEYS, "j", "r2", DAY))
    assert world.run(ops.job_record(KEYS, "j")).staged == 0
    world.run(stage_ops.stage_enlist(SEVERAL, "k", "r1", DAY, Staged(KEYS, "p"), 5))
    assert world.run(ops.job_record(SEVERAL, "k")).staged == 5


@pytest.mark.parametrize("chunks", [[], [b"x"]])
def test_bodies_that_come_when_the_job_is_closed_are_deleted(world, chunks):
    stage(world)
    world.run(stage_ops.stage_abort(KEYS, "j", "r1"))
    before = keys_of(world)
    assert stage_with_body(world, 1, chunks, b"r" * 12) == "closed"
    assert keys_of(world) == before


def test_bodies_of_a_torn_part_are_deleted(world):
    stage(world)
    assert stage_with_body(world, 5, [b"x"], b"r" * 12) == "torn"
    assert world.redis.hlen(KEYS.bodies) == 0


def test_a_late_repeat_in_a_part_that_has_grown_leaves_the_bodies_of_the_first_call(world):
    assert stage_with_body(world, 0, [b"x"], b"r" * 12) == "ok"
    assert stage_with_body(world, 1, [b"y"], b"s" * 12) == "ok"
    before = keys_of(world)
    assert stage_with_body(world, 0, [b"x"], b"r" * 12) == "torn"
    assert keys_of(world) == before


def test_a_late_repeat_after_the_commit_leaves_the_bodies_of_messages_in_the_queue(world):
    element = first_element_apart("a", 1, {}, Extra(apart=new_reference(4)))
    (chunk,) = chunks_of([element])
    assert stage_with_body(world, 0, [chunk.head + chunk.frames], element[-12:]) == "ok"
    world.run(stage_ops.commit(KEYS, "j", "r1", b"", 1, 60.0))
    assert world.run(stage_ops.commit_roll("j", Staged(KEYS, "p"))) == (1, 0, 0)
    assert stage_with_body(world, 0, [chunk.head + chunk.frames], element[-12:]) == "closed"
    assert world.redis.hgetall(KEYS.bodies) == {element[-12:]: b"body"}
    world.redis.delete(KEYS.bodies)  # as the ack of the message does
    assert stage_with_body(world, 0, [chunk.head + chunk.frames], element[-12:]) == "closed"
    assert not world.redis.exists(KEYS.bodies)


def test_writing_renews_the_time_limit(world):
    stage(world)
    world.redis.zadd(KEYS.jobs, {"j": 1})
    stage(world, before=1)
    assert world.redis.zscore(KEYS.jobs, "j") >= world.now + DAY * 1000


def test_opening_anew_shuts_the_earlier_run_out(world):
    assert world.run(stage_ops.stage_open(KEYS, "j", "r1", DAY)) == "open"
    assert world.run(stage_ops.stage_open(KEYS, "j", "r2", DAY)) == "open"
    assert stage(world, run="r1") == "closed"
    assert stage(world, run="r2") == "ok"


@pytest.mark.parametrize("state", ["committed", "done"])
def test_a_decided_job_is_not_begun_again(world, state):
    world.redis.hset(KEYS.job("j"), mapping={"state": state, "run": "r1"})
    before = keys_of(world)
    assert world.run(stage_ops.stage_open(KEYS, "j", "r2", DAY)) == state
    assert stage(world, run="r1") == "closed"
    assert keys_of(world) == before


def test_an_aborted_job_takes_nothing_more_until_it_is_begun_anew(world):
    stage(world)
    assert world.run(stage_ops.stage_abort(KEYS, "j", "r1"))
    assert stage(world, before=1) == "closed"
    assert world.run(stage_ops.stage_open(KEYS, "j", "r2", DAY)) == "open"


def test_abort_leaves_a_committed_job_and_another_run_alone(world):
    stage(world)
    assert not world.run(stage_ops.stage_abort(KEYS, "j", "r2"))
    world.redis.hset(KEYS.job("j"), "state", "committed")
    before = keys_of(world)
    assert not world.run(stage_ops.stage_abort(KEYS, "j", "r1"))
    assert keys_of(world) == before


def test_abort_of_an_overdue_job_looks_at_its_limit(world):
    stage(world)
    assert not world.run(stage_ops.stage_abort(KEYS, "j", "r1", overdue=True))
    world.redis.zadd(KEYS.jobs, {"j": world.now - 1})
    assert world.run(stage_ops.stage_abort(KEYS, "j", "r1", overdue=True))


def test_abort_may_be_repeated(world):
    stage(world)
    assert [world.run(stage_ops.stage_abort(KEYS, "j", "r1")) for _ in range(2)] == [True, True]


def test_clear_removes_parts_and_with_the_last_the_job(world):
    stage(world, part="p")
    stage(world, part="q")
    world.run(stage_ops.stage_abort(KEYS, "j", "r1"))
    assert clear(world, "p") == 1
    assert set(keys_of(world)) == {"job:j", "jobs", "parts:j", "staged:j:q"}
    assert clear(world, "q") == 0
    assert keys_of(world) == {"job:j": {"state": "aborted", "run": "r1"}}
    assert 0 < world.redis.pttl(KEYS.job("j")) <= 60_000


def test_clear_refuses_an_open_job_and_another_run(world):
    stage(world)
    assert clear(world, "p") == -1
    world.run(stage_ops.stage_abort(KEYS, "j", "r1"))
    world.run(stage_ops.stage_open(KEYS, "j", "r2", DAY))
    assert clear(world, "p") == -1
    assert keys_of(world)["staged:j:p"] == [b"x"]


def test_a_wrong_type_is_refused_before_the_first_write(world):
    world.redis.set(KEYS.parts("j"), "not a set")
    with pytest.raises(RedisUnsuitable):
        stage(world)
    assert world.redis.dbsize() == 1


def test_a_job_of_several_queues_has_one_record(world):
    queues = [QueueKeys("q"), QueueKeys("r")]
    parts = [Staged(keys, "p") for keys in queues]
    assert [enlist(world, part) for part in parts] == ["ok", "ok"]
    assert world.redis.smembers(SEVERAL.parts("j")) == {b"q p", b"r p"}
    world.run(stage_ops.stage_abort(SEVERAL, "j", "r1"))
    assert world.run(stage_ops.stage_clear(SEVERAL, "j", "r1", 60, parts)) == 0
    assert world.redis.keys() == [SEVERAL.job("j").encode()]


def enlist(world, part, run="r1"):
    return world.run(stage_ops.stage_enlist(SEVERAL, "j", run, DAY, part))


def admit(world, size, run="r1"):
    """At one byte a second: a test takes no part of it."""
    return world.run(stage_ops.stage_admit(KEYS, "j", run, DAY, size, 1))


def test_the_writers_of_a_job_share_its_rate(world):
    stage(world)
    assert admit(world, 2000) == 2_000_000
    first = int(world.redis.hget(KEYS.job("j"), "admitted"))
    assert 2_000_000 < admit(world, 500) <= 2_500_000, "it waits behind the other one"
    assert int(world.redis.hget(KEYS.job("j"), "admitted")) == first + 500_000
    assert world.redis.zscore(KEYS.jobs, "j") == first + 500_000 + DAY * 1000, "the time limit begins after the wait"
    assert admit(world, 2000, run="r2") == 0
    world.run(stage_ops.stage_open(KEYS, "j", "r2", DAY))
    assert admit(world, 2000, run="r2") == 2_000_000, "what an earlier run has staged does not count"
    world.run(stage_ops.stage_abort(KEYS, "j", "r2"))
    assert admit(world, 2000, run="r2") == 0


def test_a_part_is_enlisted_in_an_open_job_only(world):
    part = Staged(KEYS, "p")
    assert [enlist(world, part), enlist(world, part, "r2")] == ["ok", "closed"]
    world.redis.zadd(SEVERAL.jobs, {"j": 1})
    assert enlist(world, part) == "ok"
    assert world.redis.zscore(SEVERAL.jobs, "j") >= world.now + DAY * 1000
    world.run(stage_ops.stage_abort(SEVERAL, "j", "r1"))
    assert enlist(world, part) == "closed"


def test_a_part_apart_from_its_record_ends_by_itself(world):
    part = Staged(KEYS, "p")

    def put(before, chunks):
        return world.run(stage_ops.stage_apart("j", part, before, chunks, 60))[1]

    assert [put(0, [b"a", b"b"]), put(2, [b"c"]), put(2, [b"c"])] == ["ok", "ok", "ok"]
    assert put(7, [b"d"]) == "torn"
    assert keys_of(world) == {"staged:j:p": [b"a", b"b", b"c"]}
    assert 0 < world.redis.pttl(part.key("j")) <= 60_000
    world.redis.flushall()
    assert put(3, [b"d"]) == "torn"
    assert world.redis.keys() == []
