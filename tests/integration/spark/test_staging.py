"""Staging without Spark: all of a job or nothing of it, whichever process dies at any point."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import reliq
from reliq import ops
from reliq.features.staging import duty
from reliq.features.staging.steps import Job, Part, PartWriter, abort, commit, open_job, roll_forward, roll_parts
from reliq.model.element import Extra, first_element, first_element_apart, new_reference
from reliq.model.keys import SEVERAL, JobKeys, QueueKeys
from reliq.ops import Steps
from reliq.ops.chunks import Chunk, bodies_chunk, chunks_of, framed
from reliq.transport.store import Store
from reliq_monitor import rotation
from tests.support.turns import Monitor

KEYS = QueueKeys("orders")


@pytest.fixture
def orders(app):
    return app.queue("orders")


def element(name: str, size: int = 0) -> bytes:
    return first_element(name, 1, {}, name.ljust(size).encode(), None)


def stage(store: Store, job: Job, part: str, *names: str, queue: str = "orders") -> Part:
    writer = PartWriter(job, queue, part)
    store.run(writer.add(chunks_of([element(name) for name in names])))
    return writer.part


def visible(orders) -> list[str]:
    """The ids in the order in which they would be claimed."""
    with orders.consumer() as consumer:
        messages = consumer.claim(1000)
        consumer.release(*messages[::-1])
    return [message.id for message in messages]


def drive(store: Store, steps: Steps, most: int) -> bool:
    """Carry out `most` requests, then die without having seen the last answer; True when it ended before."""
    answer, connection = None, store.connection()
    try:
        for _ in range(most):
            answer = store.call(steps.send(answer), connection)
    except StopIteration:
        return True
    finally:
        connection.close()
    return False


def whole_commit(job: Job, parts: list[Part]) -> Steps[None]:
    yield from commit(job, parts)
    yield from roll_forward(job)


def staged_keys(store: Store) -> list[bytes]:
    found = store.call(ops.command("KEYS", "reliq:{orders}:staged:*"))
    return sorted(found + store.call(ops.command("KEYS", "reliq:{orders}:parts:*")))


def test_nothing_is_visible_before_the_commit_and_all_after_it(store, orders):
    job = Job(KEYS)
    store.run(open_job(job))
    parts = [stage(store, job, "0", "a", "b"), stage(store, job, "1", "c")]
    assert visible(orders) == []
    store.run(whole_commit(job, parts))
    assert visible(orders) == ["a", "b", "c"]
    assert orders.stats().counters["enqueued"] == 3
    assert staged_keys(store) == []


def test_only_the_approved_attempt_of_a_part_counts(store, orders):
    job = Job(KEYS)
    stage(store, job, "0", "a")
    twin = stage(store, job, "0", "a")
    stage(store, job, "0", "a")
    store.run(whole_commit(job, [twin]))
    assert visible(orders) == ["a"]
    assert staged_keys(store) == []


def test_a_late_twin_finds_its_job_closed(store, orders):
    job = Job(KEYS)
    late = PartWriter(job, "orders", "0")
    store.run(late.add(chunks_of([element("a")])))
    store.run(whole_commit(job, [stage(store, job, "0", "a")]))
    with pytest.raises(reliq.JobClosed, match="is committed; nothing of this attempt becomes visible"):
        store.run(late.add(chunks_of([element("b")])))
    assert visible(orders) == ["a"]
    assert staged_keys(store) == []


def test_a_run_whose_job_another_run_has_started_or_committed_is_told_so(store, orders):
    job, other = Job(KEYS, "load"), Job(KEYS, "load")
    store.run(open_job(job))
    part = stage(store, job, "0", "a")
    store.run(open_job(other))
    with pytest.raises(reliq.JobClosed, match=r"^job load was started again by another run since; nothing of this run"):
        store.run(commit(job, [part]))
    store.run(whole_commit(other, [stage(store, other, "0", "b")]))
    with pytest.raises(reliq.JobClosed, match=r"^job load was committed by another run; nothing of this run"):
        store.run(commit(job, [part]))


def test_an_aborted_job_leaves_nothing(store, orders):
    job = Job(KEYS)
    part = stage(store, job, "0", "a")
    assert store.run(abort(job))
    with pytest.raises(reliq.JobClosed, match="was aborted, or was silent for its time limit of 86400 s"):
        store.run(commit(job, [part]))
    assert (visible(orders), staged_keys(store)) == ([], [])


def test_a_committed_job_cannot_be_aborted(store, orders):
    job = Job(KEYS)
    store.run(commit(job, [stage(store, job, "0", "a")]))
    assert not store.run(abort(job))
    store.run(roll_forward(job))
    assert visible(orders) == ["a"]


def test_a_job_that_was_committed_is_not_begun_again(store, orders):
    first = Job(KEYS, "nightly")
    store.run(open_job(first))
    store.run(whole_commit(first, [stage(store, first, "0", "a")]))
    assert not store.run(open_job(Job(KEYS, "nightly")))
    assert visible(orders) == ["a"]


def test_beginning_a_job_anew_discards_what_the_dead_run_staged(store, orders):
    dead, again = Job(KEYS, "nightly"), Job(KEYS, "nightly")
    store.run(open_job(dead))
    lost = stage(store, dead, "0", "a")
    assert store.run(open_job(again))
    with pytest.raises(reliq.JobClosed):
        store.run(commit(dead, [lost]))
    store.run(whole_commit(again, [stage(store, again, "0", "a", "b")]))
    assert visible(orders) == ["a", "b"]
    assert staged_keys(store) == []


def test_a_commit_above_max_length_is_refused_whole(store, orders):
    orders.configure(max_length=2)
    orders.send("before", id="x")
    job = Job(KEYS)
    part = stage(store, job, "0", "a", "b")
    with pytest.raises(reliq.QueueFull, match="1 of at most 2"):
        store.run(commit(job, [part]))
    store.run(abort(job))
    assert visible(orders) == ["x"]


def test_a_commit_above_max_bytes_is_refused_whole(store, orders):
    """As a send is: what is staged counts when it is to become visible."""
    orders.configure(max_bytes=1 << 20)
    orders.send(b"x" * 250_000, id="x")
    job, small = Job(KEYS), Job(KEYS)
    parts = []
    for part in ("0", "1"):
        writer = PartWriter(job, "orders", part)
        store.run(writer.add(chunks_of([element(part + name, 100_000) for name in "abcd"])))
        parts.append(writer.part)
    with pytest.raises(reliq.QueueFull, match=r"of at most 1048576 bytes; none of the 8 of job"):
        store.run(commit(job, parts))
    store.run(abort(job))
    store.run(whole_commit(small, [stage(store, small, "0", "a")]))
    assert visible(orders) == ["x", "a"]


def test_a_part_that_redis_has_lost_stops_the_commit(store, orders):
    job = Job(KEYS)
    kept, lost = stage(store, job, "0", "a"), stage(store, job, "1", "b")
    store.call(ops.command("DEL", KEYS.staged(job.name, lost.name)))
    with pytest.raises(reliq.JobClosed, match="lost"):
        store.run(commit(job, [kept, lost]))
    assert visible(orders) == []


def test_large_parts_are_cut_into_bounded_chunks(store, orders):
    job = Job(KEYS)
    writer = PartWriter(job, "orders", "0")
    names = [f"m{number}" for number in range(9000)]
    store.run(writer.add(chunks_of([element(name) for name in names])))
    store.run(writer.add(chunks_of([element(f"large{number}", 700_000) for number in range(3)])))
    assert (writer.part.chunks, writer.part.messages) == (5 + 3, 9003)
    store.run(whole_commit(job, [writer.part]))
    assert orders.stats().ready == 9003
    assert visible(orders) == names[:1000]


class Leader:
    """A commit of two parts with five chunks between them, and twins that are not approved."""

    ALL = tuple("abcdefgh")

    def __init__(self, store: Store, home: JobKeys = KEYS, other: str = "orders") -> None:
        self.job = Job(home)
        first, second = PartWriter(self.job, "orders", "0"), PartWriter(self.job, other, "1")
        for name in "abcde":
            store.run(first.add(chunks_of([element(name)])))
        for name in "fgh":
            store.run(second.add(chunks_of([element(name)])))
        stage(store, self.job, "0", "a", "b")
        self.parts = [first.part, second.part]

    def commit(self) -> Steps[None]:
        return whole_commit(self.job, self.parts)


STEPS_OF_A_COMMIT = 28


@pytest.mark.parametrize("steps", range(STEPS_OF_A_COMMIT))
def test_a_leader_killed_at_any_step_of_its_commit(store, orders, url, steps):
    leader = Leader(store)
    ended = drive(store, leader.commit(), steps)
    assert ended == (steps == STEPS_OF_A_COMMIT - 1), "the commit has another number of steps: kill it at each"
    state = store.call(ops.command("HGET", KEYS.job(leader.job.name), "state"))
    Monitor(Store(url)).finish_staged()
    if state == b"open":
        assert visible(orders) == []
        assert store.run(abort(leader.job))
        assert visible(orders) == []
    else:
        assert visible(orders) == list(Leader.ALL)
        assert orders.stats().counters["enqueued"] == len(Leader.ALL)
    assert staged_keys(store) == []


STEPS_OF_A_COMMIT_OF_SEVERAL = STEPS_OF_A_COMMIT + 1


@pytest.mark.parametrize("steps", range(STEPS_OF_A_COMMIT_OF_SEVERAL))
def test_a_leader_of_several_queues_killed_at_any_step_of_its_commit(store, app, url, steps):
    leader = Leader(store, SEVERAL, "bills")
    ended = drive(store, leader.commit(), steps)
    assert ended == (steps == STEPS_OF_A_COMMIT_OF_SEVERAL - 1), (
        "the commit has another number of steps: kill it at each"
    )
    decided = store.call(ops.command("HGET", SEVERAL.job(leader.job.name), "state")) != b"open"
    Monitor(Store(url)).finish_staged()
    if not decided:
        assert store.run(abort(leader.job))
    found = visible(app.queue("orders")), visible(app.queue("bills"))
    assert found == ((list("abcde"), list("fgh")) if decided else ([], []))
    assert store.call(ops.command("KEYS", "*:staged:*")) == []
    assert store.call(ops.command("EXISTS", SEVERAL.jobs)) == 0


def test_what_no_job_knows_ends_by_itself_until_a_commit_takes_it(store):
    leader = Leader(store, SEVERAL, "bills")
    keys = [part.staged.key(leader.job.name) for part in leader.parts]

    def times_to_live():
        return store.call([ops.command("PTTL", key) for key in keys])

    assert min(times_to_live()) > leader.job.time_limit * 1000
    store.run(commit(leader.job, leader.parts))
    assert times_to_live() == [-1, -1]


def test_a_late_twin_of_a_job_of_several_queues_finds_it_closed(store):
    leader = Leader(store, SEVERAL, "bills")
    late, other = PartWriter(leader.job, "orders", "2"), PartWriter(leader.job, "orders", "2")
    store.run(late.add(chunks_of([element("x")])))
    store.run(leader.commit())
    for writer in (late, other):
        with pytest.raises(reliq.JobClosed):
            store.run(writer.add(chunks_of([element("y")])))
    assert store.call(ops.command("KEYS", "*:staged:*")) == []


def test_a_job_of_several_queues_is_refused_whole_when_one_of_them_is_full(store, app):
    app.queue("bills").configure(max_length=2)
    leader = Leader(store, SEVERAL, "bills")
    with pytest.raises(reliq.QueueFull, match="'bills' holds 0 of at most 2"):
        store.run(leader.commit())
    store.run(abort(leader.job))
    assert (visible(app.queue("orders")), visible(app.queue("bills"))) == ([], [])


def large_rows(*names: str) -> list[Chunk]:
    """Chunks of messages with bodies of 5,000 bytes, as the Spark writer makes them: bodies first."""
    references = [new_reference(5000) for _ in names]
    bodies = [
        framed(part) for name, one in zip(names, references, strict=True) for part in (one, name.ljust(5000).encode())
    ]
    rows = [first_element_apart(name, 1, {}, Extra(apart=one)) for name, one in zip(names, references, strict=True)]
    return [bodies_chunk(len(names), b"".join(bodies)), *chunks_of(rows)]


def bodies_stored(store: Store) -> int:
    return store.call(ops.hash_size(KEYS.bodies))


@pytest.mark.parametrize("home", [KEYS, SEVERAL])
@pytest.mark.parametrize("steps", range(20))
def test_large_bodies_of_a_leader_killed_at_any_step(store, orders, url, home, steps):
    """Its twin's bodies, and all bodies of a job that is not committed, are deleted with their messages."""
    job = Job(home)
    writer, twin = PartWriter(job, "orders", "0"), PartWriter(job, "orders", "0")
    for one in (writer, twin):
        store.run(one.add(large_rows("a", "b")))
        store.run(one.add(large_rows("c")))
    assert bodies_stored(store) == (6 if home is KEYS else 0)
    drive(store, whole_commit(job, [writer.part]), steps)
    decided = store.call(ops.command("HGET", home.job(job.name), "state")) != b"open"
    Monitor(Store(url)).finish_staged()
    if not decided:
        assert store.run(abort(job))
    assert bodies_stored(store) == (3 if decided else 0)
    with orders.consumer() as consumer:
        found = consumer.claim(10)
        assert [message.body[:2] for message in found] == ([b"a ", b"b ", b"c "] if decided else [])
        consumer.ack(*found)
    assert (bodies_stored(store), staged_keys(store)) == (0, [])


def test_a_late_twin_leaves_no_body_behind(store):
    job = Job(KEYS)
    late = PartWriter(job, "orders", "0")
    store.run(late.add(large_rows("a")))
    assert store.run(abort(job))
    with pytest.raises(reliq.JobClosed):
        store.run(late.add(large_rows("b")))
    assert (bodies_stored(store), staged_keys(store)) == (0, [])


def test_bodies_of_more_than_one_call_are_stored_with_their_messages(store, orders):
    job = Job(KEYS)
    writer = PartWriter(job, "orders", "0")
    names = [f"m{number}" for number in range(3000)]  # 15 MB
    store.run(writer.add(chunk for start in range(0, 3000, 50) for chunk in large_rows(*names[start : start + 50])))
    store.run(whole_commit(job, [writer.part]))
    assert bodies_stored(store) == orders.stats().ready == 3000
    assert sorted(visible(orders)) == sorted(names[:1000])


def test_a_job_of_large_bodies_counts_them_against_max_bytes(store, orders):
    orders.configure(max_bytes=1 << 20)
    job, small = Job(KEYS), Job(KEYS)
    writer = PartWriter(job, "orders", "0")
    store.run(writer.add(large_rows(*(f"m{number}" for number in range(250)))))
    with pytest.raises(reliq.QueueFull, match="of at most 1048576 bytes"):
        store.run(commit(job, [writer.part]))
    store.run(abort(job))
    assert bodies_stored(store) == 0
    other = PartWriter(small, "orders", "0")
    store.run(other.add(large_rows(*(f"m{number}" for number in range(100)))))
    store.run(whole_commit(small, [other.part]))
    assert orders.stats().ready == 100


def test_two_rollers_of_one_part_move_it_once_and_in_order(store, orders, url):
    job = Job(KEYS)
    writer, names = PartWriter(job, "orders", "0"), [f"m{number}" for number in range(60)]
    for name in names:
        store.run(writer.add(chunks_of([element(name)])))
    store.run(commit(job, [writer.part]))
    with ThreadPoolExecutor(2) as rollers:
        for roller in [rollers.submit(store.run, roll_parts(job, [writer.part])) for _ in range(2)]:
            roller.result(timeout=30)
    assert visible(orders) == names
    assert orders.stats().counters["enqueued"] == 60


def test_a_full_redis_lets_what_is_committed_become_visible(store, orders):
    leader = Leader(store)
    try:
        store.call(ops.command("CONFIG", "SET", "maxmemory", 1))
        store.run(leader.commit())
    finally:
        store.call(ops.command("CONFIG", "SET", "maxmemory", 0))
    assert visible(orders) == list(Leader.ALL)
    assert staged_keys(store) == []


@pytest.mark.parametrize("steps", range(STEPS_OF_A_COMMIT))
def test_a_leader_that_repeats_its_commit_after_any_step(store, orders, steps):
    leader = Leader(store)
    drive(store, leader.commit(), steps)
    store.run(leader.commit())
    assert visible(orders) == list(Leader.ALL)
    assert staged_keys(store) == []


@pytest.mark.parametrize("steps", range(STEPS_OF_A_COMMIT))
def test_a_monitor_that_overtakes_a_living_leader_at_any_step(store, orders, url, steps):
    leader = Leader(store)
    commit_steps, monitor = leader.commit(), Monitor(Store(url))
    answer, connection = None, store.connection()
    for step in range(STEPS_OF_A_COMMIT):
        if step == steps:
            monitor.finish_staged()
        try:
            answer = store.call(commit_steps.send(answer), connection)
        except StopIteration:
            break
    connection.close()
    assert visible(orders) == list(Leader.ALL)
    assert orders.stats().counters["enqueued"] == len(Leader.ALL)
    assert staged_keys(store) == []


@pytest.mark.parametrize("steps", range(6))
def test_an_abort_killed_at_any_step(store, orders, url, steps):
    leader = Leader(store)
    drive(store, abort(leader.job), steps)
    store.call(ops.command("ZADD", KEYS.jobs, "XX", 1, leader.job.name))
    Monitor(Store(url)).finish_staged()
    assert (visible(orders), staged_keys(store)) == ([], [])


def test_the_monitor_removes_an_orphan_once_its_time_limit_has_passed(store, orders, url):
    job, monitor = Job(KEYS, time_limit=3600), Monitor(Store(url))
    part = stage(store, job, "0", "a")
    monitor.finish_staged()
    assert len(staged_keys(store)) == 2
    store.call(ops.command("ZINCRBY", KEYS.jobs, -3_600_001, job.name))
    monitor.finish_staged()
    assert staged_keys(store) == []
    with pytest.raises(reliq.JobClosed):
        store.run(commit(job, [part]))
    assert visible(orders) == []


def test_a_large_job_is_finished_over_several_looks_of_the_monitor(store, orders, url):
    job = Job(KEYS)
    writer = PartWriter(job, "orders", "0")
    for number in range(150):
        store.run(writer.add(chunks_of([element(f"m{number}")])))
    store.run(commit(job, [writer.part]))
    monitor = Monitor(Store(url))
    assert [monitor.finish_staged() for _ in range(3)] == [100, 50, 0]
    assert visible(orders) == [f"m{number}" for number in range(150)]


def test_a_turn_is_short_however_many_jobs_are_left(store, url, app, monkeypatch):
    """The other duties wait for its end; before, a turn rolled a hundred chunks of every job forward."""
    monkeypatch.setattr(rotation, "A_TURN", 0.0)
    for queue in ("a", "b", "c"):
        job = Job(QueueKeys(queue))
        store.run(commit(job, [stage(store, job, "0", f"m{queue}", queue=queue)]))
    monitor = Monitor(store)
    staged = monitor._whole._rota.duty_of(duty.StagedJobs)
    turns = [(monitor.finish_staged(), staged.pause == 0.0) for _ in range(4)]
    assert turns == [(1, True), (1, True), (1, False), (0, False)]
    assert [app.queue(queue).stats().ready for queue in ("a", "b", "c")] == [1, 1, 1]


def test_streams_that_fell_silent_are_forgotten(store, url):
    store.call(ops.command("SADD", "reliq:queues", "orders"))
    now = store.call(ops.server_time())
    for home in (KEYS, SEVERAL):
        store.call(ops.command("HSET", home.epochs, "old", "7 1000", "live", f"8 {now}"))
    Monitor(Store(url)).tidy()
    for home in (KEYS, SEVERAL):
        assert store.call(ops.command("HKEYS", home.epochs)) == [b"live"]


def test_a_monitor_notes_how_far_it_has_rolled_a_job_forward(store, orders):
    """The page of jobs shows it, whoever rolls: a driver that died is replaced by monitors, a step at a time."""
    job = Job(KEYS)
    parts = [stage(store, job, str(number), f"a{number}", f"b{number}") for number in range(5)]
    store.run(commit(job, parts))
    for turns in (1, 2):
        assert store.run(roll_forward(job, at_most=2)) == 4
        assert store.call(ops.job_record(KEYS, job.name)).rolled == 4 * turns
    assert store.run(roll_forward(job, at_most=2)) == 2
    assert store.call(ops.job_record(KEYS, job.name)).state == "done"
    assert orders.stats().ready == 10
