"""Messages and the user's own database, in one transaction: SQLite always, PostgreSQL where Debian's is installed."""

import contextlib
import functools
import subprocess
import sys
import threading
import tracemalloc

import pytest
import sqlalchemy
from sqlalchemy import func, orm, select
from sqlalchemy.ext import asyncio

import reliq
from reliq.contrib import sql
from reliq.contrib.sql import relaying
from reliq.errors import InvalidMessage, InvalidName, InvalidSetting, OutcomeUnknown, QueueFull
from reliq.model.element import new_id
from reliq.model.message import Message
from tests.support.ports import free_port
from tests.support.workers import ROOT, eventually, working


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request, tmp_path):
    url = f"sqlite:///{tmp_path}/shop.db" if request.param == "sqlite" else request.getfixturevalue("postgresql")
    engine = sqlalchemy.create_engine(url)
    sql.metadata.drop_all(engine)
    sql.create_tables(engine)
    yield engine
    engine.dispose()


def count(engine, table):
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def message(name):
    return Message.decode("q", reliq.NewMessage("x", id=name).element(0))


def test_once_is_true_once_and_a_rollback_undoes_it(engine):
    with engine.connect() as connection:
        assert sql.once(connection, message("a"))
        connection.rollback()
    with engine.begin() as connection:
        assert [sql.once(connection, message(name)) for name in ("a", "b", "a")] == [True, True, False]
    with engine.begin() as connection:
        assert not sql.once(connection, message("b"))
        assert sql.forget(connection, "1h") == 0
        assert sql.forget(connection, 0) in (0, 2)


@pytest.mark.parametrize("kind", [orm.Session, lambda engine: orm.scoped_session(orm.sessionmaker(engine))])
def test_a_session_is_a_transaction(engine, kind):
    session = kind(engine)
    assert sql.once(session, message("a"))
    sql.enqueue(session, "orders", "x")
    session.rollback()
    assert [sql.once(session, message(name)) for name in ("a", "a")] == [True, False]
    sql.enqueue(session, "orders", "y")
    assert sql.outbox_counts(session) == {"orders": sql.OutboxCounts(waiting=1)}
    assert (sql.list_parked(session), sql.retry_parked(session)) == ([], 0)
    session.commit()
    session.close()
    assert count(engine, sql.outbox) == 1
    assert sql.forget(session, "1h") == 0
    session.close()


@pytest.mark.parametrize("kind", [asyncio.AsyncConnection, asyncio.AsyncSession, sqlalchemy.Engine])
def test_what_is_no_transaction_is_refused(kind):
    """An AsyncSession would return a coroutine, and the row would never be written."""
    none = object.__new__(kind)
    for call in (
        lambda: sql.enqueue(none, "orders", "x"),
        lambda: sql.once(none, message("a")),
        lambda: sql.forget(none, "1h"),
        lambda: sql.outbox_counts(none),
        lambda: sql.list_parked(none),
        lambda: sql.retry_parked(none),
    ):
        with pytest.raises(InvalidSetting, match=f"^{kind.__name__} is no transaction: give a Connection or Session"):
            call()


def test_a_handler_with_once_does_its_work_once_though_the_message_comes_again(engine, app):
    work = sqlalchemy.Table("reliq_work", sqlalchemy.MetaData(), sqlalchemy.Column("id", sqlalchemy.String(64)))
    work.drop(engine, checkfirst=True)
    work.create(engine)

    @app.handler("q", retry=reliq.fixed(0, limit=3))
    def handle(message: reliq.Message) -> None:
        with engine.begin() as connection:
            if sql.once(connection, message):
                connection.execute(work.insert().values(id=message.id))
        if not message.failures:
            raise RuntimeError("died after its commit, before the ack")

    app.queue("q").send_many(range(20))
    with working(app, monitor=True):
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 20)
    assert count(engine, work) == 20


def test_a_row_has_every_option_that_a_message_may_have(engine, app):
    options: reliq.PublishOptions = {"key": "customer-7", "priority": "high", "ttl": "1h", "headers": {"a": "b"}}
    with engine.begin() as connection:
        sql.enqueue(connection, "q", "ordered", **options)
        sql.enqueue(connection, "q", "limited", limit_key="tenant-7")
    assert sql.relay_once(engine, app) == 2
    with app.queue("q").consumer() as consumer:
        first, second = consumer.claim(10)
        assert (first.key, first.priority, first.headers, first.expires_at > 0) == (
            "customer-7",
            "high",
            {"a": "b"},
            True,
        )
        assert (second.limit_key, second.key, second.priority) == ("tenant-7", "", "normal")


def test_an_option_that_a_row_cannot_have_is_refused(engine):
    with engine.begin() as connection, pytest.raises(TypeError, match="unexpected keyword argument 'dedup_key'"):
        sql.enqueue(connection, "q", "body", dedup_key="k")  # type: ignore[call-arg]


def test_tables_of_an_earlier_version_get_the_column_and_keep_their_rows(engine, app):
    with engine.begin() as connection:
        for table in ("reliq_outbox", "reliq_outbox_parked"):
            connection.execute(sqlalchemy.text(f"ALTER TABLE {table} DROP COLUMN options"))
        row = {"id": "old", "queue": "q", "headers": "{}", "delay": 0.0, "body": b"before"}
        connection.execute(
            sqlalchemy.text(
                "INSERT INTO reliq_outbox (id, queue, headers, delay, body) "
                "VALUES (:id, :queue, :headers, :delay, :body)"
            ),
            row,
        )
    sql.create_tables(engine)
    sql.create_tables(engine)
    with engine.begin() as connection:
        sql.enqueue(connection, "q", "after", priority="high")
    assert sql.relay_once(engine, app) == 2
    with app.queue("q").consumer() as consumer:
        assert {(one.body, one.priority) for one in consumer.claim(10)} == {(b"before", "normal"), (b"after", "high")}


def test_what_is_rolled_back_is_never_sent_and_what_commits_is(engine, app):
    with engine.connect() as connection:
        sql.enqueue(connection, "q", "never")
        connection.rollback()
    with engine.begin() as connection:
        first = sql.enqueue(connection, "q", {"order": 1}, headers={"a": "b"})
        sql.enqueue(connection, "later", b"\x00\xff", delay="1h")
    assert (sql.relay_once(engine, app), sql.relay_once(engine, app)) == (2, 0)
    with app.queue("q").consumer() as consumer:
        (received,) = consumer.claim(10)
        assert (received.id, received.json(), received.headers) == (first, {"order": 1}, {"a": "b"})
    assert app.queue("later").stats().delayed == 1
    assert count(engine, sql.outbox) == 0


def test_a_row_without_a_version_has_version_1_whatever_the_relay_knows(engine, app):
    """Its program may be of an earlier release than the relay."""
    app.upgrade("orders", version=2)(lambda body: body)
    with engine.begin() as connection:
        sql.enqueue(connection, "orders", {"nr": 1})
        sql.enqueue(connection, "orders", {"number": 1}, headers={"body-version": "2"})
        sql.enqueue(connection, "mails", "x")
    assert sql.relay_once(engine, app) == 3
    assert [message.headers for message in claimed(app, "orders")] == [{"body-version": "1"}, {"body-version": "2"}]
    assert [message.headers for message in claimed(app, "mails")] == [{}]


def claimed(app, queue):
    with app.queue(queue).consumer() as consumer:
        messages = consumer.claim(limit=10)
        consumer.ack(*messages)
    return messages


def test_killed_between_the_send_and_the_deletion_it_sends_none_twice(engine, app, monkeypatch):
    with engine.begin() as connection:
        for number in range(10):
            sql.enqueue(connection, "q", number)
    with monkeypatch.context() as patch:
        patch.setattr(relaying, "_delete", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sql.relay_once(engine, app)
    assert (app.queue("q").stats().ready, count(engine, sql.outbox)) == (10, 10)
    assert sql.relay_once(engine, app) == 10
    assert (app.queue("q").stats().ready, count(engine, sql.outbox)) == (10, 0)


@pytest.mark.parametrize(("step", "size", "sent"), [("_delete", 1, 2), ("move_aside", 2000, 1)])
def test_a_second_relay_deletes_no_row_that_it_has_not_read(engine, app, monkeypatch, step, size, sent):
    """SQLite gives the number of a deleted row to a later one."""
    theirs = getattr(relaying, step)

    def overtaken(*args):
        monkeypatch.setattr(relaying, step, theirs)
        sql.relay_once(engine, small)  # another relay is quicker
        with engine.begin() as connection:
            sql.enqueue(connection, "q", "later", id="later")
        theirs(*args)

    with engine.begin() as connection:
        sql.enqueue(connection, "q", "x" * size)
    monkeypatch.setattr(relaying, step, overtaken)
    with reliq.Reliq(app.url, max_body=1000) as small:
        sql.relay_once(engine, small)
    assert app.queue("q").stats().ready == sent


def test_a_full_queue_keeps_its_rows_and_holds_up_no_other(engine, app):
    app.queue("full").configure(max_length=1)
    with engine.begin() as connection:
        for queue in ("full", "full", "other"):
            sql.enqueue(connection, queue, "x")
    with pytest.raises(QueueFull):
        sql.relay_once(engine, app)
    assert (count(engine, sql.outbox), app.queue("other").stats().ready) == (1, 1)


def write_row(engine, queue="q", body=b"x", headers="{}", delay=0.0, id=None, options=None):
    """A row that something else than `enqueue` wrote, or an `enqueue` with other limits."""
    row = {"id": id or new_id(), "queue": queue, "headers": headers, "delay": delay, "body": body}
    row |= {} if options is None else {"options": options}
    with engine.begin() as connection:
        connection.execute(sql.outbox.insert().values(row))
    return row["id"]


def read(engine, what, *arguments, **options):
    with engine.begin() as connection:
        return what(connection, *arguments, **options)


@pytest.mark.parametrize(
    ("queue", "body", "options", "error"),
    [
        ("q", b"x" * (1024 * 1024 + 1), {}, InvalidMessage),
        ("q", b"xyz", {"max_body": 2}, InvalidMessage),
        ("q", float("nan"), {}, InvalidMessage),
        ("q", "x", {"headers": {"a": "b" * 20_000}}, InvalidMessage),
        ("q", "x", {"delay": "1000d"}, InvalidMessage),
        ("q", "x", {"id": "a b"}, InvalidName),
        ("no queue", "x", {}, InvalidName),
    ],
)
def test_what_send_would_refuse_is_refused_before_a_row_is_written(engine, queue, body, options, error):
    with engine.begin() as connection, pytest.raises(error):
        sql.enqueue(connection, queue, body, **options)
    assert count(engine, sql.outbox) == 0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"body": b"x" * (1024 * 1024 + 1)}, "the limit is 1,048,576"),
        ({"headers": "no JSON"}, "Expecting value"),
        ({"headers": '{"a": 1}'}, "headers must map texts to texts"),
        ({"headers": '{"": "a"}'}, "a header has an empty name"),
        ({"delay": -1.0}, "delay is -1.0"),
        ({"queue": "no queue"}, "queue name 'no queue'"),
        ({"id": "a b"}, "message id 'a b'"),
        ({"options": "3"}, "options must have a JSON object"),
        ({"options": '{"due": 1' + "0" * 400 + "}"}, "not written by `enqueue`: integer division result too large"),
        ({"options": '{"due": "tomorrow"}'}, "not written by `enqueue`: "),
        ({"options": "[" * 100_000}, "not written by `enqueue`: maximum recursion depth"),
        ({"headers": "[" * 100_000}, "not written by `enqueue`: maximum recursion depth"),
    ],
)
def test_a_row_that_its_queue_refuses_is_parked_with_the_reason_and_holds_up_none(engine, app, row, reason, caplog):
    bad = write_row(engine, **row)
    good = write_row(engine)
    assert sql.relay_once(engine, app) == 1
    (parked,) = read(engine, sql.list_parked)
    assert (parked.id, parked.queue, reason in parked.reason) == (bad, row.get("queue", "q"), True)
    assert f"id={bad}" in caplog.text
    assert (count(engine, sql.outbox), app.queue("q").stats().ready) == (0, 1)
    assert read(engine, sql.outbox_counts) == {parked.queue: sql.OutboxCounts(0, 1)}
    with app.queue("q").consumer() as consumer:
        assert [one.id for one in consumer.claim(10)] == [good]


def write_as_sqlite_takes_it(engine, **columns):
    """A row that another program wrote into SQLite, which stores a value of any type in any column."""
    row = {"id": new_id(), "queue": "q", "headers": "{}", "delay": 0.0, "options": None, "body": b"x", **columns}
    values = ", ".join(f":{name}" for name in row)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(f"INSERT INTO reliq_outbox ({', '.join(row)}) VALUES ({values})"), row)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("body", "sent"), [('{"n": "é"}', '{"n": "é"}'.encode()), (5, b"5"), (0.5, b"0.5")])
def test_a_body_that_sqlite_has_as_text_or_number_is_sent(engine, app, body, sent):
    write_as_sqlite_takes_it(engine, body=body)
    assert sql.relay_once(engine, app) == 1
    assert [message.body for message in claimed(app, "q")] == [sent]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("bad", [{"options": "3"}, {"delay": "soon"}])
def test_a_row_that_sqlite_has_as_text_is_parked_and_put_back_as_it_is(engine, app, bad):
    write_as_sqlite_takes_it(engine, body='{"n": 1}', **bad)
    assert sql.relay_once(engine, app) == 0
    assert read(engine, sql.outbox_counts) == {"q": sql.OutboxCounts(waiting=0, parked=1)}
    assert read(engine, sql.retry_parked) == 1
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE reliq_outbox SET options = NULL, delay = 0"))
    assert sql.relay_once(engine, app) == 1
    assert [message.body for message in claimed(app, "q")] == [b'{"n": 1}']


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("column", ["id", "queue", "headers", "delay", "options"])
@pytest.mark.parametrize("stored", ["CAST(X'7BFF' AS TEXT)", "X'7BFF'"])
def test_a_row_that_is_no_utf_8_in_sqlite_is_parked_and_holds_up_none(engine, app, column, stored, caplog):
    bad, good, other = write_row(engine), write_row(engine), write_row(engine, queue="other")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(f"UPDATE reliq_outbox SET {column} = {stored} WHERE id = '{bad}'"))
    assert sql.relay_once(engine, app) == 2
    assert [claimed(app, name)[0].id for name in ("q", "other")] == [good, other]
    (parked,) = read(engine, sql.list_parked)
    assert caplog.text.count("outbox: parks") == 1
    assert list(read(engine, sql.outbox_counts).values()) == [sql.OutboxCounts(waiting=0, parked=1)]
    assert [one.id for one in read(engine, lambda opened: sql.list_parked(opened, parked.queue))] == [parked.id]
    assert read(engine, lambda opened: sql.retry_parked(opened, ids=[parked.id])) == 1
    assert read(engine, sql.outbox_counts) == {parked.queue: sql.OutboxCounts(waiting=1, parked=0)}
    assert sql.relay_once(engine, app) == 0
    assert [one.id for one in read(engine, sql.list_parked)] == [parked.id]


def test_a_row_whose_options_another_program_wrote_as_null_is_sent(engine, app):
    write_row(engine, options="null")
    assert sql.relay_once(engine, app) == 1


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_row_that_is_larger_than_a_home_may_be_holds_up_none(engine, app, partitions):
    app.queue("q").configure(partitions=partitions, max_bytes=partitions * 1024 * 1024)
    large = write_row(engine, body=b"x" * 1_200_000)
    for _ in range(20):
        write_row(engine)
    with reliq.Reliq(app.url, max_body="2MiB") as larger:
        assert sql.relay_once(engine, larger) == 20
    (parked,) = read(engine, sql.list_parked)
    assert (parked.id, "each home of its queue may have 1048576 (max_bytes)" in parked.reason) == (large, True)
    assert (count(engine, sql.outbox), app.queue("q").stats().ready) == (0, 20)


def test_parked_rows_are_tried_again_when_their_cause_is_gone(engine, app):
    larger = reliq.Reliq(app.url, max_body="2MiB")
    for number in range(2):
        write_row(engine, body=b"x" * 1_200_000, id=f"large-{number}")
    write_row(engine, queue="no queue", id="nameless")
    assert sql.relay_once(engine, app) == 0
    assert read(engine, sql.retry_parked, queue="other") == 0
    assert read(engine, sql.retry_parked, ids=["large-0"]) == 1
    assert read(engine, sql.retry_parked, queue="q") == 1
    assert sql.relay_once(engine, larger) == 2
    larger.close()
    assert [parked.id for parked in read(engine, sql.list_parked)] == ["nameless"]
    assert read(engine, sql.list_parked, queue="q") == []


def test_a_parked_row_waits_for_the_one_with_its_id_that_is_in_the_outbox(engine, app):
    write_row(engine, body=b"x" * 1_200_000, id="twice")
    assert sql.relay_once(engine, app) == 0
    write_row(engine, id="twice")
    assert read(engine, sql.retry_parked) == 0
    assert read(engine, sql.outbox_counts) == {"q": sql.OutboxCounts(1, 1)}


def test_a_second_body_under_one_id_is_parked_and_not_taken_for_sent(engine, app):
    write_row(engine, body=b"first", id="a")
    assert sql.relay_once(engine, app) == 1
    write_row(engine, body=b"second", id="a")
    assert sql.relay_once(engine, app) == 0
    (parked,) = read(engine, sql.list_parked)
    assert "another body" in parked.reason


def test_a_backlog_beyond_max_length_enters_piece_by_piece_and_in_order(engine, app):
    queue = app.queue("q")
    queue.configure(max_length=10)
    with engine.begin() as connection:
        ids = [sql.enqueue(connection, "q", number) for number in range(25)]
    received = []
    with queue.consumer() as consumer:
        for fitted in (10, 10, 5):
            sent = count(engine, sql.outbox)
            if fitted == 10:
                with pytest.raises(QueueFull):
                    sql.relay_once(engine, app)
            else:
                sql.relay_once(engine, app)
            assert sent - count(engine, sql.outbox) == fitted
            received += [one.id for one in consumer.claim(100)]
    assert received == ids


def test_a_backlog_beyond_max_bytes_enters_piece_by_piece(engine, app):
    queue = app.queue("q")
    queue.configure(max_bytes=1024 * 1024)
    with engine.begin() as connection:
        for _ in range(10):
            sql.enqueue(connection, "q", b"x" * 200_000)
    with pytest.raises(QueueFull):
        sql.relay_once(engine, app)
    assert queue.stats().ready == 5
    assert count(engine, sql.outbox) == 5


def test_a_message_larger_than_its_queue_may_ever_be_is_parked(engine, app):
    larger = reliq.Reliq(app.url, max_body=4 * 1024 * 1024)
    larger.queue("q").configure(max_bytes=1024 * 1024)
    write_row(engine, body=b"x" * 2 * 1024 * 1024)
    write_row(engine)
    assert sql.relay_once(engine, larger) == 1
    larger.close()
    (parked,) = read(engine, sql.list_parked)
    assert "max_bytes" in parked.reason


def test_a_full_queue_with_more_rows_than_a_call_takes_does_not_hold_up_the_others(engine, app):
    app.queue("full").configure(max_length=1)
    for queue in ["full"] * 30 + ["other"] * 5:
        write_row(engine, queue=queue)
    with pytest.raises(QueueFull, match="'full'"):
        sql.relay_once(engine, app, limit=10)
    assert read(engine, sql.outbox_counts) == {"full": sql.OutboxCounts(29, 0)}
    assert app.queue("other").stats().ready == 5


@contextlib.contextmanager
def using_less_than(most):
    """Fail if Python's objects have that many bytes at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def test_a_backlog_that_does_not_fit_is_not_read_as_a_whole(engine, app, monkeypatch):
    monkeypatch.setattr(relaying, "_PIECE_BYTES", 2_000_000)
    app.queue("q").configure(max_length=1)
    for _ in range(40):
        write_row(engine, body=b"x" * 1_000_000)
    with using_less_than(20_000_000), pytest.raises(QueueFull):
        sql.relay_once(engine, app)
    assert (count(engine, sql.outbox), app.queue("q").stats().ready) == (39, 1)


def test_rows_that_are_too_large_are_not_read(engine, app):
    for _ in range(40):
        write_row(engine, body=b"x" * 1_000_000)
    with using_less_than(2_000_000), reliq.Reliq(app.url, max_body=999_999) as small:
        assert sql.relay_once(engine, small) == 0
        assert read(engine, sql.outbox_counts) == {"q": sql.OutboxCounts(waiting=0, parked=40)}
        assert read(engine, sql.retry_parked) == 40


def test_bodies_that_are_too_large_for_one_call_go_in_several(engine, app, monkeypatch):
    monkeypatch.setattr(relaying, "_PIECE_BYTES", 250)
    for _ in range(5):
        write_row(engine, body=b"x" * 100)
    sent = []
    send_many = app.queue("q").send_many

    def counting(messages):
        sent.append(len(messages))
        return send_many(messages)

    monkeypatch.setattr(app.queue("q"), "send_many", counting)
    assert sql.relay_once(engine, app) == 5
    assert sent == [2, 2, 1]


def test_without_the_table_of_parked_rows_a_bad_row_still_holds_up_none(engine, app, caplog):
    """The application was upgraded, its database not yet."""
    sql.parked.drop(engine)
    bad = write_row(engine, headers="no JSON")
    write_row(engine)
    for _ in range(2):
        with pytest.raises(reliq.ReliqError) as refused:
            sql.relay_once(engine, app)
        told = str(refused.value)
        assert told.startswith(f"queue 'q': message {bad} cannot be parked (not written by `enqueue`: Expecting value")
        assert "reliq_outbox_parked" in told  # the database names it
        assert told.endswith("run reliq.contrib.sql.create_tables, or with Django `manage.py migrate`")
    assert "parks" not in caplog.text
    assert (count(engine, sql.outbox), app.queue("q").stats().ready) == (1, 1)
    sql.create_tables(engine)
    assert sql.relay_once(engine, app) == 0
    assert read(engine, sql.outbox_counts) == {"q": sql.OutboxCounts(0, 1)}
    assert caplog.text.count(f"parks queue=q id={bad}") == 1


def test_why_a_row_cannot_be_parked_is_told(engine, app, monkeypatch):
    def refuse(*_):
        raise sqlalchemy.exc.OperationalError("INSERT", {}, OSError("disk full\nof logs"))

    monkeypatch.setattr(relaying, "move_aside", refuse)
    write_row(engine, headers="no JSON")
    with pytest.raises(reliq.ReliqError, match=r": OperationalError: disk full$"):
        sql.relay_once(engine, app)


@contextlib.contextmanager
def relayed(engine, app):
    """A relay in a thread."""
    stopping = threading.Event()
    thread = threading.Thread(target=sql.relay, args=(engine, app, stopping, 0.01))
    thread.start()
    yield thread
    stopping.set()
    thread.join()


def lines_of_the_relay(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "reliq.sql"]


def test_a_relay_tells_what_the_database_lacks_and_goes_on_when_it_is_there(engine, app, caplog):
    sql.outbox.drop(engine)
    with relayed(engine, app) as thread:
        eventually(lambda: lines_of_the_relay(caplog))
        (told,) = lines_of_the_relay(caplog)
        assert "reliq_outbox" in told  # the database names it
        assert "\n" not in told
        assert told.endswith("; run reliq.contrib.sql.create_tables, or with Django `manage.py migrate`")
        sql.create_tables(engine)
        write_row(engine)
        eventually(lambda: app.queue("q").stats().ready == 1)
        assert thread.is_alive()


def test_a_relay_without_a_column_tells_what_adds_it(engine, app):
    write_row(engine)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("ALTER TABLE reliq_outbox DROP COLUMN options"))
    with pytest.raises(reliq.ReliqError, match=r"queue 'q': the database fails: .*options.*; run .*create_tables"):
        sql.relay_once(engine, app)


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_relay_tells_why_it_cannot_connect(engine, app, caplog):
    away = sqlalchemy.create_engine(engine.url.set(port=free_port()))
    with relayed(away, app):
        eventually(lambda: lines_of_the_relay(caplog))
    (told,) = lines_of_the_relay(caplog)
    assert "onnection refused" in told
    assert "create_tables" not in told


def test_an_unknown_outcome_keeps_its_rows(engine, app, monkeypatch):
    def send_many(messages):
        raise OutcomeUnknown("no answer")

    with engine.begin() as connection:
        sql.enqueue(connection, "q", "x")
    monkeypatch.setattr(app.queue("q"), "send_many", send_many)
    with pytest.raises(OutcomeUnknown):
        sql.relay_once(engine, app)
    assert count(engine, sql.outbox) == 1


def test_a_relay_killed_again_and_again_loses_and_doubles_nothing(engine, app):
    command = [sys.executable, "-m", "tests.integration.client.relaying"]
    arguments = [engine.url.render_as_string(hide_password=False), app.url]
    total, queue = 1000, app.queue("q")
    ids = set()
    with engine.begin() as connection:
        for number in range(total):
            ids.add(sql.enqueue(connection, "q", number))

    def relayed_since(before):
        return queue.stats().ready > before or not count(engine, sql.outbox)

    for _ in range(3):
        before = queue.stats().ready
        relay = subprocess.Popen([*command, *arguments], cwd=ROOT)
        eventually(functools.partial(relayed_since, before))
        relay.kill()
        relay.wait()
    while sql.relay_once(engine, app):
        pass
    with queue.consumer() as consumer:
        received = [one.id for _ in range(2) for one in consumer.claim(1000)]
        assert (len(received), set(received)) == (total, ids)
        consumer.release()
