"""reliq spark enqueue and export-dead: files into queues and back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from reliq.cli import main
from reliq.extras import install_command
from reliq.features.staging import steps
from reliq.ops import Steps
from reliq.spark import pipeline, session

ROOT = Path(__file__).parents[3]


@pytest.fixture
def lines(tmp_path) -> Path:
    path = tmp_path / "orders.json"
    path.write_text("".join(json.dumps({"order": number, "land": "eu"}) + "\n" for number in range(20)))
    return path


@pytest.fixture
def submitted(session, monkeypatch):
    """Commands use the session of the tests, as they use that of spark-submit, and leave it running."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(type(session), "stop", lambda self: None)
    yield
    monkeypatch.undo()


def run(*arguments: str) -> int:
    return main.main(["spark", *arguments])


def test_a_file_becomes_messages(submitted, orders, url, lines, capsys):
    assert run("enqueue", "--input", str(lines), "--format", "json", "--queue", "orders", "--url", url) == 0
    assert capsys.readouterr().out == "20 messages enqueued\n"
    with orders.consumer() as consumer:
        messages = consumer.claim(100)
    assert sorted(message.json()["order"] for message in messages) == list(range(20))


def test_sql_says_what_a_message_is(submitted, orders, url, lines, capsys):
    select = "SELECT to_json(struct(order)) AS value, concat('order-', order) AS id FROM input WHERE order < 2"
    arguments = ["--input", str(lines), "--format", "json", "--queue", "orders", "--url", url, "--select", select]
    assert run("enqueue", *arguments, "--job", "nightly", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    size = said["bytes"]
    assert said == {
        "job": "nightly", "enqueued": 2, "committed_before": False, "rows": 2, "deduplicated": 0, "unroutable": 0,
        "bytes": size, "queues": {"orders": {"messages": 2, "deduplicated": 0, "bytes": size}}, "complete": True,
    }  # fmt: skip
    assert run("enqueue", *arguments, "--job", "nightly") == 0
    assert "was committed before: nothing enqueued" in capsys.readouterr().out
    with orders.consumer() as consumer:
        assert {message.id for message in consumer.claim(10)} == {"order-0", "order-1"}


def test_rows_that_became_no_message_are_told(submitted, orders, url, lines, capsys):
    select = "SELECT 'x' AS value, cast(order % 3 AS string) AS dedup_key FROM input"
    arguments = ["--input", str(lines), "--format", "json", "--url", url, "--select", select]
    assert run("enqueue", *arguments, "--queue", "orders") == 0
    assert capsys.readouterr().out == "3 messages enqueued (17 deduplicated)\n"


def unknown(*_) -> Steps[None]:
    yield from ()


def test_a_job_that_another_driver_commits_meanwhile_is_told_as_committed_before(
    submitted, orders, url, lines, capsys, monkeypatch
):
    arguments = ["--input", str(lines), "--format", "json", "--queue", "orders", "--url", url, "--job", "nightly"]
    assert run("enqueue", *arguments) == 0
    monkeypatch.setattr(steps, "outcome", unknown)  # it asked before that commit
    assert run("enqueue", *arguments) == 0
    assert capsys.readouterr().out.endswith("job nightly was committed before: nothing enqueued\n")
    assert orders.stats().ready == 20


@pytest.fixture
def two_lands(tmp_path) -> Path:
    path = tmp_path / "orders.json"
    rows = [{"order": number, "land": "eu" if number % 2 else "us"} for number in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def orders_of(app, queue: str) -> list[int]:
    with app.queue(queue).consumer() as consumer:
        return sorted(message.json()["order"] for message in consumer.claim(100))


@pytest.mark.parametrize(
    "where",
    [
        ["--queue-column", "land"],
        ["--queue-column", "land", "--select", "SELECT to_json(struct(order)) AS value, land FROM input"],
        ["--select", "SELECT to_json(struct(*)) AS value, land AS queue FROM input"],
    ],
)
def test_a_column_names_the_queue_of_each_row(submitted, app, url, two_lands, capsys, where):
    assert run("enqueue", "--input", str(two_lands), "--format", "json", "--url", url, "--job", "j", *where) == 0
    assert run("enqueue", "--input", str(two_lands), "--format", "json", "--url", url, "--job", "j", *where) == 0
    assert capsys.readouterr().out == "20 messages enqueued\njob j was committed before: nothing enqueued\n"
    assert orders_of(app, "eu") == list(range(1, 20, 2))
    assert orders_of(app, "us") == list(range(0, 20, 2))


def test_a_column_is_the_topic_of_each_row(submitted, app, url, two_lands, capsys):
    app.subscribe("all", "#")
    app.subscribe("europe", "eu")
    arguments = ["--input", str(two_lands), "--format", "json", "--url", url, "--topic-column", "land"]
    assert run("enqueue", *arguments) == 0
    assert capsys.readouterr().out == "30 messages enqueued\n"
    assert orders_of(app, "all") == list(range(20))
    assert orders_of(app, "europe") == list(range(1, 20, 2))
    app.unsubscribe("all", "#")
    assert run("enqueue", *arguments, "--mandatory") == 1
    assert "no queue is bound to a pattern that matches 'us'" in capsys.readouterr().err
    assert orders_of(app, "europe") == list(range(1, 20, 2))


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ([], "say where the rows go: --queue NAME, --queue-column COLUMN"),
        (["--select", "SELECT 'x' AS value"], "say where the rows go: --queue NAME, --queue-column COLUMN"),
        (["--topic-column", "nation"], "there is no column 'nation'; there are land, order"),
        (["--queue-column", "order", "--mandatory"], "mandatory is for rows with a column `topic`"),
        (["--queue", "a b"], "queue name 'a b'"),
    ],
)
def test_rows_that_nothing_says_where_to_go(submitted, app, url, lines, capsys, where, sentence):
    assert run("enqueue", "--input", str(lines), "--format", "json", "--url", url, *where) in (1, 2)
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert app.queues() == []


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_dead_letters_become_files(submitted, session, orders, url, tmp_path, capsys, format):
    orders.send_many(["1", "2", "3"], headers={"trace": "7"})
    with orders.consumer() as consumer:
        for message in consumer.claim(2):
            consumer.dead(message, "no such customer")
    output = str(tmp_path / "dead")
    arguments = ["--queue", "orders", "--url", url, "--output", output, "--format", format]
    assert run("export-dead", *arguments, "--where", "cast(value AS string) <> '1'") == 0
    assert capsys.readouterr().out == f"1 dead letters written to {output}\n"
    how = {"header": True} if format == "csv" else {}
    (row,) = session.read.format(format).options(**how).load(output).select("id", "value", "error").collect()
    value = row.value if format != "parquet" else row.value.decode()
    assert (value, row.error) == ("2", "no such customer")
    assert orders.stats().dead == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--select", "SELECT order AS priority FROM input"], "column `priority` is bigint; it must be string"),
        (["--select", "SELECT nothing FROM input"], "nothing"),
        (["--option", "header"], "write NAME=VALUE"),
        (["--job", "a b"], "job name 'a b'"),
        (["--input", "/there/is/no/such/file"], "/there/is/no/such/file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(submitted, app, url, lines, capsys, arguments, sentence):
    given = ["--input", str(lines), "--format", "json", "--queue", "orders", "--url", url, *arguments]
    assert run("enqueue", *given) in (1, 2)
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert app.queues() == []


def test_without_java_one_sentence_says_what_to_install(monkeypatch, tmp_path, lines, url, capsys):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run("enqueue", "--input", str(lines), "--queue", "orders", "--url", url) == 2
    assert "Spark needs Java 17 or newer and there is none on PATH" in capsys.readouterr().err


def test_an_old_java_is_named(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_292\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ValueError, match="this is Java 8"):
        session.check_java()


def test_its_file_runs_by_itself_as_spark_submit_runs_it():
    """Nothing has imported reliq before: a circle of imports shows here only."""
    command = [sys.executable, pipeline.__file__, "enqueue", "--help"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("how", ["python", "spark-submit"])
def test_it_runs_with_plain_python_and_with_spark_submit(orders, url, lines, how):
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]", pipeline.__file__]
    command = submit if how == "spark-submit" else [sys.executable, "-m", "reliq", "spark"]
    arguments = ["enqueue", "--input", str(lines), "--format", "json", "--queue", "orders"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "RELIQ_URL": url}
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "20 messages enqueued" in done.stdout
    assert orders.stats().ready == 20


def test_without_pyspark_one_sentence_says_what_to_install_and_the_rest_works(lines, url):
    without = "import sys; sys.modules.update(pyspark=None, pyarrow=None)"
    script = f"{without}; from reliq.cli.main import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RELIQ_URL": url}

    def run_without(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    spark = run_without("spark", "enqueue", "--input", str(lines), "--queue", "orders")
    assert spark.returncode == 2
    assert f"{install_command('spark')}, and Java 17 or newer" in spark.stderr
    assert run_without("send", "orders", "x").returncode == 0
