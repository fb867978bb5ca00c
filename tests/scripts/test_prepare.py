"""prepare, decide, ask: a message that is invisible until its producer decides."""

import pytest

from reliq import ops
from reliq.errors import RedisUnsuitable
from reliq.features.prepared import ops as own
from reliq.ops import Entry
from tests.support.state import KEYS, element, keyed

NEXT = iter(range(1, 1 << 30))
RECORDS = ("half:a", "half:b")


def prepare(world, name="a", delay=0.0, dedup=None, digest="d", raw=None, every=60.0, sequence=0):
    entry = Entry(name, raw or element(name), delay, dedup, 60.0 if dedup else 0.0, digest if dedup else "")
    return world.run(own.prepare(KEYS, entry, every, 3, "p", sequence or next(NEXT)))


def decide(world, decision="committed", name="a", **options):
    answer = world.run(own.decide(KEYS, name, decision, 60.0, **options))
    return answer.decision, answer.id


def ask(world, letter=b"", name="a"):
    return world.run(own.ask(KEYS, name, letter, 60.0))


def state(world):
    """Without the records, of which there is a test each, and the producers."""
    return {name: value for name, value in world.state().items() if name not in (*RECORDS, "producers")}


def record(world, name="a"):
    return world.state()[f"half:{name}"]


def test_prepare_keeps_the_message_where_nobody_sees_it(world):
    assert prepare(world, delay=5).status == "ok"
    assert state(world) == {"prepared": "a", "counters": {"prepared": 1, "enqueued": 1}}
    assert record(world) == {
        "state": "prepared",
        "every": "60000",
        "most": "3",
        "element": "a",
        "delay": "5000",
    }
    assert world.now + 50_000 < world.redis.zscore(KEYS.prepared, "a") <= world.now + 120_000


def test_prepare_that_is_repeated_is_carried_out_once(world):
    assert [prepare(world, sequence=7_000_000).status for _ in range(2)] == ["ok", "ok"]
    assert state(world) == {"prepared": "a", "counters": {"prepared": 1, "enqueued": 1}}


@pytest.mark.parametrize("decision", [None, "committed", "rolled_back"])
def test_prepare_refuses_an_id_that_is_known(world, decision):
    prepare(world)
    if decision:
        decide(world, decision)
    before = world.state()
    assert prepare(world).status == "id_in_use"
    assert world.state() == before


def test_what_is_prepared_takes_room_for_the_next_but_not_for_a_send(world):
    world.given(messages="x", config={"max_length": 3})
    assert [prepare(world, name).status for name in ("a", "b", "c")] == ["ok", "ok", "full"]
    assert world.run(ops.enqueue(KEYS, [element("y"), element("z")])).status == "ok"
    assert decide(world) == ("committed", "a")
    assert state(world)["messages"] == "a z y x"


def test_commit_makes_it_ready_behind_the_others(world):
    world.given(messages="x")
    prepare(world)
    assert decide(world) == ("committed", "a")
    assert state(world) == {"messages": "a x", "counters": {"prepared": 1, "enqueued": 1, "committed": 1}}
    assert record(world) == {"state": "committed"}
    assert 0 < world.redis.pttl(KEYS.prepared_record("a")) <= 60_000


def test_commit_of_a_delayed_message_starts_its_delay(world):
    prepare(world, delay=3600)
    decide(world)
    assert state(world) == {
        "delayed": "a",
        "index": {"a"},
        "counters": {"prepared": 1, "enqueued": 1, "committed": 1},
    }
    assert world.redis.zscore(KEYS.delayed, element("a")) >= world.now + 3_600_000


def test_commit_puts_a_message_behind_those_of_its_key(world):
    for name in ("a", "b"):
        prepare(world, name, raw=keyed(name, "k"))
        decide(world, name=name)
    found = state(world)
    assert (found["messages"], found["waiting"]) == ("a", "b")


def test_rollback_leaves_nothing_but_the_decision(world):
    prepare(world)
    assert decide(world, "rolled_back") == ("rolled_back", "a")
    assert state(world) == {"counters": {"prepared": 1, "enqueued": 1, "withdrawn": 1}}
    assert record(world) == {"state": "rolled_back"}


@pytest.mark.parametrize("first", ["committed", "rolled_back", "purged"])
@pytest.mark.parametrize("second", ["committed", "rolled_back", "purged"])
def test_the_first_decision_stands(world, first, second):
    prepare(world)
    decide(world, first)
    before = world.state()
    assert decide(world, second) == (first, "a")
    assert world.state() == before


def test_nobody_knows_an_id_that_was_never_prepared(world):
    assert decide(world) == ("unknown", "a")
    assert decide(world, "rolled_back") == ("unknown", "a")
    assert world.state() == {}


def test_a_dedup_key_must_be_given_and_counts_from_the_commit_on(world):
    prepare(world, dedup="k")
    assert world.redis.get(KEYS.dedup("k")) is None
    assert decide(world) == ("key", KEYS.dedup("k"))
    assert decide(world, dedup=KEYS.dedup("k")) == ("committed", "a")
    assert world.redis.get(KEYS.dedup("k")) == b"a d"
    assert 0 < world.redis.pttl(KEYS.dedup("k")) <= 60_000
    assert world.run(ops.enqueue(KEYS, [], [Entry("z", element("z"), 0, "k", 60.0)])).first_ids == {0: "a"}


@pytest.mark.parametrize(("digest", "conflicts"), [("d", None), ("other", 1)])
def test_commit_of_a_duplicate_answers_the_first_id(world, digest, conflicts):
    world.run(ops.enqueue(KEYS, [], [Entry("x", element("x"), 0, "k", 60.0, "d")]))
    prepare(world, dedup="k", digest=digest)
    for _ in range(2):
        assert decide(world, dedup=KEYS.dedup("k")) == ("committed", "x")
    found = state(world)
    assert found["messages"] == "x"
    counters = {"enqueued": 2, "prepared": 1, "committed": 1, "withdrawn": 1, "deduplicated": 1}
    assert found["counters"] == counters | ({"dedup_conflicts": conflicts} if conflicts else {})


def test_rollback_needs_no_dedup_key_and_leaves_it_free(world):
    prepare(world, dedup="k")
    assert decide(world, "rolled_back") == ("rolled_back", "a")
    assert world.redis.exists(KEYS.dedup("k")) == 0


def test_decide_tells_that_the_server_has_the_call(world):
    prepare(world)
    for sequence in (5, 6):  # also when it is repeated: a send that waits for disks reads this
        decide(world, producer="other", sequence=sequence)
        assert world.redis.hget(KEYS.producers, "other").startswith(b"%d " % sequence)


def test_ask_leaves_alone_what_is_not_overdue(world):
    prepare(world)
    before = world.state()
    assert ask(world) == "no"
    assert ask(world, name="b") == "no"
    assert world.state() == before


def overdue(world, name="a", **options):
    prepare(world, name, **options)
    world.redis.zadd(KEYS.prepared, {name: world.now - 1})


def test_ask_puts_the_question_and_waits_as_long_again(world):
    overdue(world)
    assert [ask(world), ask(world)] == ["asked", "no"]
    assert state(world) == {"prepared": "a", "questions": "a", "counters": {"prepared": 1, "enqueued": 1}}
    assert record(world)["asks"] == "1"
    assert world.redis.zscore(KEYS.prepared, "a") > world.now + 50_000


def test_a_question_is_there_once_however_often_it_is_asked(world):
    overdue(world)
    ask(world)
    world.redis.zadd(KEYS.prepared, {"a": world.now - 1})
    ask(world)
    assert world.redis.zcard(KEYS.questions) == 1
    assert world.run(own.question(KEYS)) == "a"
    assert world.run(own.question(KEYS)) is None


def test_a_decision_takes_the_question_away(world):
    overdue(world)
    ask(world)
    decide(world)
    assert "questions" not in world.state()
    assert ask(world) == "no"


def test_giving_up_makes_a_dead_letter(world):
    overdue(world)
    ask(world)
    world.redis.zadd(KEYS.prepared, {"a": world.now - 1})
    assert ask(world, letter=element("a2")) == "dead"
    assert state(world) == {
        "dead": "a2",
        "index": {" a"},
        "counters": {"prepared": 1, "enqueued": 1, "dead:undecided": 1, "dead_lettered": 1},
    }
    assert decide(world) == ("undecided", "a")
    assert ask(world, letter=element("a3")) == "no"


def test_what_redis_has_lost_is_asked_about_no_more(world):
    overdue(world)
    world.redis.delete(KEYS.prepared_record("a"))
    assert ask(world) == "no"
    assert "prepared" not in world.state()


@pytest.mark.parametrize("decision", ["committed", "rolled_back"])
def test_a_full_redis_lets_decisions_pass(world, decision):
    prepare(world, dedup="k")
    world.fill()
    for _ in range(2):
        assert decide(world, decision, producer="p", sequence=9_000_000, dedup=KEYS.dedup("k")) == (decision, "a")


def test_a_full_redis_lets_questions_pass(world):
    overdue(world)
    overdue(world, "b")
    world.fill()
    assert ask(world) == "asked"
    assert ask(world, letter=element("b2"), name="b") == "dead"


@pytest.mark.parametrize("key", ["messages", "delayed", "questions"])
def test_a_wrong_type_is_refused_before_the_first_write(world, key):
    prepare(world)
    world.redis.set(getattr(KEYS, key), "of another kind")
    before = world.state()
    with pytest.raises(RedisUnsuitable):
        decide(world)
    assert world.state() == before
