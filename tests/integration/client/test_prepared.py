"""Prepared messages: seen when their producer says so, or its check-back, and decided once."""

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from queue import SimpleQueue

import pytest

import reliq
from reliq import aio
from reliq.cli import main
from reliq.errors import InvalidHandler, InvalidMessage, InvalidName, InvalidSetting, OutcomeUnknown, PreparedClosed
from reliq.model.keys import QueueKeys
from reliq.observability.prometheus import Exporter
from reliq_monitor.audit import audit, balanced
from tests.support.proxy import Proxy
from tests.support.sync_adapter import Blocking
from tests.support.turns import Monitor
from tests.support.workers import ROOT, Child, eventually, process, working

KEYS = QueueKeys("q")


@pytest.fixture(params=["sync", "asyncio"])
def connect(request):
    """Makes applications of either face, closed at the end."""
    made = []
    with asyncio.Runner() as runner:

        def make(url, **options):
            sync = request.param == "sync"
            made.append(reliq.Reliq(url, **options) if sync else Blocking(aio.Reliq(url, **options), runner))
            return made[-1]

        yield make
        for one in made:
            one.close()


@pytest.fixture
def queue(connect, url):
    return connect(url).queue("q")


def claimed(app):
    with app.queue("q").consumer() as consumer:
        messages = consumer.claim(limit=100)
        consumer.ack(*messages)
    return messages


def here(app):
    stats = app.queue("q").stats()
    return stats.prepared, stats.ready, stats.delayed, stats.dead


# --- one producer ----------------------------------------------------------------------------------------------------


def test_nobody_sees_it_before_its_commit(queue, app):
    handle = queue.prepare({"order": 1}, headers={"h": "v"})
    assert (here(app), claimed(app)) == ((1, 0, 0, 0), [])
    assert handle.commit() == handle.id
    (message,) = claimed(app)
    assert (message.id, message.json(), message.headers) == (handle.id, {"order": 1}, {"h": "v"})
    assert balanced(app.store.run(audit()))


def test_nobody_sees_it_after_its_rollback(queue, app):
    queue.prepare("x").rollback()
    assert (here(app), claimed(app)) == ((0, 0, 0, 0), [])
    assert balanced(app.store.run(audit()))


def test_the_options_are_those_of_a_send(queue, app):
    options = {"id": "mine", "delay": "1h", "ttl": "2h", "key": "k", "priority": "high", "durability": "memory"}
    queue.prepare("x", **options, repeats=1).commit()
    assert here(app) == (0, 0, 1, 0)
    assert app.queue("q").cancel("mine")


def test_a_context_commits_at_its_end(queue, app):
    with queue.prepare("x"):
        assert here(app) == (1, 0, 0, 0)
    assert here(app) == (0, 1, 0, 0)


def test_an_exception_in_the_context_rolls_back(queue, app):
    with pytest.raises(KeyError), queue.prepare("x"):
        raise KeyError("the work failed")
    assert here(app) == (0, 0, 0, 0)


def afterwards(act):
    act()
    return KeyError("the work failed")


@pytest.mark.parametrize("decide", ["commit", "rollback"])
def test_a_context_leaves_alone_what_was_decided_in_it(queue, app, decide):
    with queue.prepare("x") as handle:
        getattr(handle, decide)()
    with pytest.raises(KeyError) as error, queue.prepare("x") as handle:
        raise afterwards(getattr(handle, decide))
    assert not hasattr(error.value, "__notes__")
    assert app.queue("q").stats().ready == (2 if decide == "commit" else 0)


def test_an_exception_is_not_hidden_by_a_rollback_that_fails(queue, client):
    with pytest.raises(KeyError) as error, queue.prepare("x") as handle:
        raise afterwards(lambda: client.delete(KEYS.prepared_record(handle.id)))
    (note,) = error.value.__notes__
    assert "could not be rolled back" in note


def test_any_process_may_decide_by_the_id(queue, connect, url, app):
    first, second = queue.prepare("x").id, queue.prepare("y").id
    other = connect(url).queue("q")
    other.prepared(first).commit()
    other.prepared(second).rollback()
    assert [message.id for message in claimed(app)] == [first]


def test_decisions_may_be_repeated(queue, app):
    committed, rolled_back = queue.prepare("x"), queue.prepare("y")
    for _ in range(3):
        assert committed.commit() == committed.id
        rolled_back.rollback()
    assert here(app) == (0, 1, 0, 0)


def test_a_decision_that_contradicts_the_first_is_told_so(queue, app):
    committed, rolled_back = queue.prepare("x"), queue.prepare("y")
    committed.commit()
    rolled_back.rollback()
    with pytest.raises(PreparedClosed, match="is committed, it cannot be rolled back") as error:
        committed.rollback()
    assert error.value.outcome == "committed"
    with pytest.raises(PreparedClosed, match="is rolled back, it cannot be committed") as error:
        rolled_back.commit()
    assert error.value.outcome == "rolled_back"
    assert here(app) == (0, 1, 0, 0)


def test_what_nobody_knows_is_told_so(queue):
    with pytest.raises(PreparedClosed, match="is not known") as error:
        queue.prepared("never").commit()
    assert error.value.outcome == "unknown"


def test_an_id_is_prepared_once(queue, app):
    queue.prepare("x", id="mine")
    with pytest.raises(InvalidMessage, match="prepared already"):
        queue.prepare("y", id="mine")
    assert here(app) == (1, 0, 0, 0)


def test_operators_see_prepared_messages_in_stats_and_metrics(queue, app, url, capsys):
    queue.prepare("x")
    assert main.main(["stats", "--url", url]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("1 prepared")
    with Exporter(app.store).serve(0, "127.0.0.1") as server:
        address = f"http://127.0.0.1:{server.port}/metrics"
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b'reliq_queue_messages{queue="q",state="prepared"} 1.0' in answer.read()


def test_a_decision_that_is_remembered_costs_little_and_not_for_ever(queue, client):
    handle = queue.prepare("x" * 10_000)
    handle.commit()
    assert (
        client.memory_usage(KEYS.prepared_record(handle.id)) <= 300
    )  # a table: the key held the body, and was never missing
    assert 0 < client.pttl(KEYS.prepared_record(handle.id)) <= 600_000


def test_a_dedup_key_counts_from_the_commit_on(queue, app):
    one, two = (queue.prepare("x", dedup_key="k") for _ in range(2))
    sent = queue.send("x", dedup_key="k")
    assert (one.commit(), two.commit(), one.commit()) == (sent, sent, sent)
    assert here(app) == (0, 1, 0, 0)
    assert balanced(app.store.run(audit()))


def test_a_full_queue_refuses_to_prepare_and_never_to_commit(queue, app):
    app.queue("q").configure(max_length=2)
    handles = [queue.prepare("x") for _ in range(2)]
    with pytest.raises(reliq.QueueFull, match="holds 0 of at most 2 messages, besides prepared ones, which count, too"):
        queue.prepare("y")
    queue.send("z")
    for handle in handles:
        handle.commit()
    assert here(app) == (0, 3, 0, 0)
    assert app.queue("q").stats().counters["rejected"] == 1


def test_a_purge_takes_them_along(queue, app):
    handles = [queue.prepare("x") for _ in range(250)]
    queue.send("y")
    assert app.queue("q").purge() == 251
    with pytest.raises(PreparedClosed) as error:
        handles[0].commit()
    assert (error.value.outcome, here(app)) == ("purged", (0, 0, 0, 0))
    assert balanced(app.store.run(audit()))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": 0}, InvalidSetting),
        ({"timeout": "soon"}, InvalidSetting),
        ({"checks": -1}, InvalidSetting),
        ({"durability": "disk"}, InvalidSetting),
        ({"repeats": -1}, InvalidSetting),
        ({"id": "a b"}, InvalidName),
        ({"priority": "urgent"}, InvalidMessage),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(queue, app, options, error):
    with pytest.raises(error):
        queue.prepare("x", **options)
    with pytest.raises(InvalidName):
        queue.prepared("a b")
    assert here(app) == (0, 0, 0, 0)


def test_more_replicas_than_there_are_is_unknown_and_may_be_repeated(queue, app, monkeypatch):
    monkeypatch.setattr("reliq.contract.values.DURABLE_WITHIN", 0.1)
    with pytest.raises(OutcomeUnknown, match=r"^prepared, but durability replicas=1 was not reached") as error:
        queue.prepare("x", id="mine", durability="replicas=1")
    assert (error.value.ids, here(app)) == (("mine",), (1, 0, 0, 0))
    app.queue("q").configure(durability="replicas=1")
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match=r"^committed, but durability replicas=1 was not reached"):
            queue.prepared("mine").commit()
    assert here(app) == (0, 1, 0, 0)


@pytest.mark.parametrize("verb", ["prepare", "commit", "rollback"])
def test_a_lost_answer_is_asked_for_again_and_nothing_happens_twice(connect, redis_server, url, app, verb):
    to_cut: list[str] = []

    def reply(data: bytes) -> bytes | None:
        return None if to_cut and to_cut.pop() else data

    with Proxy(redis_server.port, reply=reply) as proxy:
        queue = connect(proxy.url).queue("q")
        queue.prepare("first").rollback()  # scripts are loaded, the server is checked
        if verb == "prepare":
            to_cut.append(verb)
        handle = queue.prepare("x")
        if verb != "prepare":
            to_cut.append(verb)
        (handle.rollback if verb == "rollback" else handle.commit)()
    assert to_cut == []
    assert here(app) == ((0, 0, 0, 0) if verb == "rollback" else (0, 1, 0, 0))


# --- the check-back --------------------------------------------------------------------------------------------------


@pytest.fixture
def monitor(app):
    return Monitor(app.store)


def make_overdue(client, handle):
    client.zadd(KEYS.prepared, {handle.id: 1})


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize(("answer", "expected"), [(True, (0, 1, 0, 0)), (False, (0, 0, 0, 0))])
def test_the_check_back_decides_what_nobody_has(app, client, monitor, kind, answer, expected):
    asked = []
    handle = app.queue("q").prepare({"order": 1})
    make_overdue(client, handle)

    def check(message):
        asked.append((message.id, message.json()))
        return answer

    async def check_async(message):
        return check(message)

    app.check("q")(check if kind == "def" else check_async)
    with working(app):
        assert monitor.ask_undecided() == (1, 0)
        eventually(lambda: here(app)[0] == 0)
    assert here(app) == expected
    assert asked == [(handle.id, {"order": 1})]
    assert balanced(app.store.run(audit()))


@pytest.mark.parametrize("answer", [None, "yes", KeyError("the database is away")])
def test_no_answer_is_asked_for_again(app, client, monitor, answer):
    handle = app.queue("q").prepare("x")
    answers = iter([answer, True])
    asked: SimpleQueue[str] = SimpleQueue()

    @app.check("q")
    def check(message):
        asked.put(message.id)
        given = next(answers)
        if isinstance(given, Exception):
            raise given
        return given

    with working(app):
        for _ in range(2):
            make_overdue(client, handle)
            assert monitor.ask_undecided() == (1, 0)
            assert asked.get(timeout=20) == handle.id
        eventually(lambda: here(app) == (0, 1, 0, 0))


def test_after_so_many_questions_it_is_a_dead_letter_with_its_own_reason(app, client, monitor):
    handle = app.queue("q").prepare({"order": 1}, checks=3)
    for _ in range(3):
        make_overdue(client, handle)
        assert monitor.ask_undecided() == (1, 0)
    make_overdue(client, handle)
    assert monitor.ask_undecided() == (0, 1)
    (letter,) = app.queue("q").dead.list(reason="undecided")
    assert (letter.id, letter.json(), letter.reason) == (handle.id, {"order": 1}, "undecided")
    assert here(app) == (0, 0, 0, 1)
    with pytest.raises(PreparedClosed, match="dead letter") as error:
        handle.commit()
    assert error.value.outcome == "undecided"
    assert balanced(app.store.run(audit()))
    assert app.queue("q").dead.redrive().redriven == 1
    assert [message.id for message in claimed(app)] == [handle.id]
    assert balanced(app.store.run(audit()))


def test_the_history_of_an_undecided_message_is_that_of_any_dead_letter(app, client, monitor):
    queue = app.queue("q")
    queue.configure(history="1h", track=True)
    handle = queue.prepare("x", checks=0)
    make_overdue(client, handle)
    assert monitor.ask_undecided() == (0, 1)

    def events():
        return [one.name for one in queue.find(handle.id).history]

    assert events() == ["enqueued", "dead:undecided"]
    assert queue.dead.redrive().redriven == 1
    assert events() == ["enqueued", "dead:undecided", "redriven"]
    assert queue.find(handle.id).place == "ready"


def test_a_monitor_leaves_alone_what_still_has_time_and_what_is_decided(app, client, monitor):
    app.queue("q").prepare("x")
    decided = app.queue("q").prepare("y")
    decided.rollback()
    assert monitor.ask_undecided() == (0, 0)


def test_a_producer_that_is_faster_than_the_check_back_has_decided(app, client, monitor):
    handle = app.queue("q").prepare("x")

    @app.check("q")
    def check(message):
        handle.commit()
        return False

    make_overdue(client, handle)
    with working(app):
        monitor.ask_undecided()
        eventually(lambda: here(app) == (0, 1, 0, 0))


def test_a_second_check_back_of_a_queue_is_refused(app):
    app.check("q")(print)
    with pytest.raises(InvalidHandler, match="two check-backs"):
        app.check("q")(print)
    with pytest.raises(InvalidHandler, match="not a function"):
        app.check("r")("nothing")


# --- real processes --------------------------------------------------------------------------------------------------


def test_a_producer_killed_before_it_decides_is_answered_for_by_its_check_back(app, url, tmp_path):
    """Half of the work was done before the SIGKILL: these messages are handled, the others stay invisible."""
    environment = {"RELIQ_URL": url, "DONE": str(tmp_path)}
    module = ROOT / "tests" / "integration" / "client" / "preparing.py"
    with Child(
        [sys.executable, module, "20"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        text=True,
    ) as producer:
        ids = [producer.stdout.readline().strip() for _ in range(20)]
        producer.send_signal(signal.SIGKILL)
    assert here(app) == (20, 0, 0, 0)
    with process("worker", "preparing:app", folder=module.parent, **environment):
        eventually(lambda: here(app) == (0, 0, 0, 0) and app.queue("q").stats().counters.get("acked") == 10, 60)
    assert {path.stem for path in tmp_path.glob("*.handled")} == set(ids[1::2])
    assert app.queue("q").stats().counters["withdrawn"] == 10
    assert balanced(app.store.run(audit()))


def test_a_question_that_a_killed_worker_had_is_put_again(app, url, client, tmp_path, monitor):
    app.queue("q").prepare("x", id="mine")
    client.zadd(KEYS.prepared, {"mine": 1})
    monitor.ask_undecided()
    assert client.zpopmin(KEYS.questions)[0][0] == b"mine"  # as a worker does that is killed then
    client.zadd(KEYS.prepared, {"mine": 1})
    app.check("q")(lambda message: True)
    with working(app, monitor=True):
        eventually(lambda: here(app) == (0, 1, 0, 0))
