"""What Spark shows of a job has no password in it: plans, explain, its pages, its REST API, the event log, errors."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
import redis
from pyspark.errors import PySparkException

from reliq.embedded import EmbeddedRedis
from reliq.errors import InvalidSetting
from reliq.spark import register
from reliq.spark.options import Given

PASSWORD = "hunter2/x@7#%"
PARTS = ("hunter2", quote(PASSWORD, safe=""))


@pytest.fixture(scope="module")
def guarded():
    """A server that wants a password, as a URL."""
    with EmbeddedRedis() as server:
        with redis.Redis(port=server.port) as client:
            client.config_set("requirepass", PASSWORD)
        yield server.url.replace("//", f"//:{quote(PASSWORD, safe='')}@")


def all_that_spark_shows(folder: Path, url: str, reference: str) -> str:
    (folder / "events").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.spark.secrets_driver", str(folder), url, reference],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False,
        timeout=500,
    )  # fmt: skip
    assert "all done" in done.stdout, done.stderr[-3000:]
    assert [way for way in ("connection", "url", "register") if f"done: {way}\n" not in done.stdout] == []
    events = [path.read_text() for path in (folder / "events").rglob("events_*")]
    assert any("SparkListenerSQLExecutionStart" in text for text in events)
    checkpoints = [path.read_text(errors="replace") for path in folder.glob("*/checkpoint-*/**/*") if path.is_file()]
    return "\n".join([done.stdout, done.stderr, *events, *checkpoints])


@pytest.mark.spark
def test_neither_plans_nor_pages_nor_the_event_log_have_the_password(guarded, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(guarded + "\n")
    shown = all_that_spark_shows(tmp_path, guarded, f"file:{secret}")
    assert "== Physical Plan ==" in shown
    assert not [part for part in PARTS if part in shown]


def test_a_connection_by_reference_is_read_on_the_driver(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("redis://:pw@h/1\n")
    monkeypatch.setenv("SHOP_REDIS", "redis://:pw@h/2")
    conf = {"spark.reliq.secret.url": "redis://:pw@h/3"}
    for reference, url in [
        (f"file:{tmp_path}/secret", "redis://:pw@h/1"),
        ("env:SHOP_REDIS", "redis://:pw@h/2"),
        ("conf:spark.reliq.secret.url", "redis://:pw@h/3"),
    ]:
        options = Given({"connection": reference, "queue": "q"}, "redis://default", conf).for_reading()
        assert options.connection.url == url
        assert "pw" not in repr(options)


def test_without_a_server_nothing_is_sent_to_one_that_happens_to_be_local(monkeypatch):
    monkeypatch.delenv("RELIQ_URL", raising=False)
    with pytest.raises(InvalidSetting, match=r"no Redis server is named.*register\(spark\)"):
        Given({"queue": "q"}, None).for_writing()


def test_the_variables_of_the_process_that_registers_count_before_older_ones(monkeypatch):
    for name, value in {"RELIQ_URL": "redis://old", "RELIQ_MAX_BODY": "1KiB", "RELIQ_ALLOW_EVICTION": "0"}.items():
        monkeypatch.setenv(name, value)
    now = {"RELIQ_URL": "redis://new", "RELIQ_MAX_BODY": "2KiB", "RELIQ_ALLOW_EVICTION": "1"}
    for options in ({}, {"connection": "env:RELIQ_URL"}):
        found = Given({"queue": "q", **options}, None, {}, now).for_writing()
        assert (found.connection.url, found.connection.allow_eviction) == ("redis://new", True)
        assert found.rules.max_body == 2048


def test_a_variable_that_is_set_after_the_session_began_is_seen(session, url, orders, monkeypatch):
    rows = session.createDataFrame([("a",)], "value string")
    register(session, url)
    rows.write.format("reliq").options(queue="orders").mode("append").save()  # Spark's planners have begun
    monkeypatch.setenv("RELIQ_URL", url)
    monkeypatch.setenv("SHOP_REDIS", url)
    for given in (None, "env:SHOP_REDIS"):
        register(session, given)
        rows.write.format("reliq").options(queue="orders").mode("append").save()
    rows.write.format("reliq").options(queue="orders", connection="env:RELIQ_URL").mode("append").save()
    assert orders.stats().ready == 4


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"connection": "redis://:hunter2@h"}, "option connection .* is not a reference: write env:RELIQ_URL"),
        ({"connection": "env:NOT_SET"}, "no such environment variable"),
        ({"connection": "conf:spark.reliq.not.set"}, "no such Spark configuration entry"),
        ({"connection": "file:/not/there"}, "No such file"),
        ({"connection": "env:PATH", "url": "redis://:hunter2@h"}, "both given"),
    ],
)
def test_a_connection_that_is_none_is_refused_without_a_secret(options, problem):
    with pytest.raises(InvalidSetting, match=problem) as caught:
        Given({"queue": "q", **options}, None).for_reading()
    assert "hunter2" not in str(caught.value)


def test_a_setting_of_the_session_is_found_by_its_name(spark, url, orders):
    spark.conf.set("spark.reliq.secret.shop", url)
    register(spark, "redis://127.0.0.1:1/0")
    rows = spark.createDataFrame([("a",)], "value string")
    options = {"queue": "orders", "connection": "conf:spark.reliq.secret.shop"}
    rows.write.format("reliq").options(**options).mode("append").save()
    assert orders.stats().ready == 1
    spark.conf.unset("spark.reliq.secret.shop")


def test_a_url_that_is_wrong_is_not_shown(spark):
    for url in ("redis://:hunter2/x@127.0.0.1:1/0", "hunter2@127.0.0.1", "redis://127.0.0.1:1/0?password=hunter2"):
        with pytest.raises(PySparkException) as caught:
            spark.read.format("reliq").options(queue="orders", url=url).load().collect()
        assert "hunter2" not in str(caught.value)
