"""Messages and the user's own database, in one transaction: SQLite always, PostgreSQL where Debian's is installed."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import func, select

import reliq
from reliq.contrib import sql
from reliq.embedded import _free_port
from reliq.errors import OutcomeUnknown, QueueFull
from reliq.message import Message
from tests.workers import ROOT, eventually, working


@pytest.fixture(scope="session")
def postgresql():
    """A server of our own in a temporary folder; as the user postgres, since it refuses to run as root."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    root = os.geteuid() == 0
    if not binaries or (root and shutil.which("runuser") is None):
        pytest.skip("no PostgreSQL")
    with tempfile.TemporaryDirectory(prefix="reliq-pg-") as folder:
        if root:
            shutil.chown(folder, "postgres")

        def run(program: str, *arguments: str) -> None:
            command = [str(binaries[-1].parent / program), "-D", f"{folder}/data", *arguments]
            as_user = ["runuser", "-u", "postgres", "--"] if root else []
            subprocess.run([*as_user, *command], check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=60)

        port = _free_port()
        run("initdb", "-A", "trust", "-U", "postgres", "-N")
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        run("pg_ctl", "-w", "-l", f"{folder}/log", "-o", settings, "start")
        try:
            yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")


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


def test_killed_between_the_send_and_the_deletion_it_sends_none_twice(engine, app, monkeypatch):
    with engine.begin() as connection:
        for number in range(10):
            sql.enqueue(connection, "q", number)
    with monkeypatch.context() as patch:
        patch.setattr(sql, "_delete", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sql.relay_once(engine, app)
    assert (app.queue("q").stats().ready, count(engine, sql.outbox)) == (10, 10)
    assert sql.relay_once(engine, app) == 10
    assert (app.queue("q").stats().ready, count(engine, sql.outbox)) == (10, 0)


def test_a_full_queue_keeps_its_rows_and_holds_up_no_other(engine, app):
    app.queue("full").configure(max_length=1)
    with engine.begin() as connection:
        for queue in ("full", "full", "other"):
            sql.enqueue(connection, queue, "x")
    with pytest.raises(QueueFull):
        sql.relay_once(engine, app)
    assert (count(engine, sql.outbox), app.queue("other").stats().ready) == (2, 1)


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
    command = [sys.executable, "-m", "tests.idempotence.relaying"]
    arguments = [engine.url.render_as_string(hide_password=False), app.url]
    total, queue = 3000, app.queue("q")
    ids = set()
    with engine.begin() as connection:
        for number in range(total):
            ids.add(sql.enqueue(connection, "q", number))
    for _ in range(3):
        before = queue.stats().ready
        relay = subprocess.Popen([*command, *arguments], cwd=ROOT)
        eventually(lambda before=before: queue.stats().ready > before or not count(engine, sql.outbox))
        relay.kill()
        relay.wait()
    while sql.relay_once(engine, app):
        pass
    with queue.consumer() as consumer:
        received = [one.id for _ in range(4) for one in consumer.claim(1000)]
        assert (len(received), set(received)) == (total, ids)
        consumer.release()
