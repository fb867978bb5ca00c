"""txnAppId and txnVersion: a write that is made once, however late its replay, as in Delta."""

import pytest
from pyspark.errors import PySparkException

import reliq.spark
from reliq import ops
from reliq.errors import InvalidSetting
from reliq.features.staging import steps as staging
from reliq.model.keys import QueueKeys
from tests.integration.spark.test_batch_writer import claimed, keys_left, numbers, write
from tests.integration.spark.test_streams import folders, forget_commit, put, rows_of, run
from tests.support.turns import Monitor

KEYS = QueueKeys("orders")
__all__ = ["folders"]  # a fixture


def test_a_version_is_written_once_and_an_earlier_one_never(spark, orders, app):
    for version, ready in ((5, 4), (5, 4), (4, 4), (0, 4), (6, 8)):
        write(numbers(spark, 4), txnAppId="the nightly load", txnVersion=version)
        assert orders.stats().ready == ready
    write(numbers(spark, 4), txnAppId="another", txnVersion=0)
    assert orders.stats().ready == 12
    assert keys_left(app) == set()


def test_a_version_is_remembered_for_longer_than_jobs_and_streams_are(spark, orders, app):
    write(numbers(spark, 4), txnAppId="yearly", txnVersion=3)
    version, *_ = app.store.call(ops.command("HGET", KEYS.versions, "yearly")).split()
    app.store.call(ops.command("HSET", KEYS.versions, "yearly", version + b" 1"))  # in 1970
    app.store.call(ops.command("DEL", *app.store.call(ops.command("KEYS", "reliq:{orders}:job:*"))))
    Monitor(app.store).tidy()
    assert app.store.call(ops.command("TTL", KEYS.versions)) == -1
    write(numbers(spark, 4), txnAppId="yearly", txnVersion=3)
    assert orders.stats().ready == 4


def test_a_replay_has_the_ids_of_its_first_run(spark, orders):
    write(numbers(spark, 2), txnAppId="the load", txnVersion=7)
    ids = sorted(message.id for message in claimed(orders))
    assert [one.rpartition(".7-")[2] for one in ids] == ["0-0", "1-0"]
    assert ids[0].startswith("the-load-")


def test_of_two_drivers_with_one_version_one_commits(spark, orders, app):
    """Another driver has staged the same version; it comes to its commit when this one has committed."""
    other = staging.Job(KEYS, "nightly.1.other")
    app.store.run(staging.open_job(other))
    late = staging.Job(KEYS, "late.1.other")
    app.store.run(staging.open_job(late))
    write(numbers(spark, 4), txnAppId="nightly", txnVersion=1)
    assert app.store.run(staging.commit(late, [], staging.Turn("nightly", 1, versions=True))) == "repeated"
    record = app.store.call(ops.job_record(KEYS, other.name))
    assert record.state == "aborted", "a run that died is removed by the one that committed"
    assert (orders.stats().ready, keys_left(app)) == (4, set())


def enqueue_each(df, batch_id) -> None:
    df.write.format("reliq").option("queue", "orders").options(**reliq.spark.transaction(df, batch_id)).mode(
        "append"
    ).save()


def test_foreach_batch_adds_nothing_when_it_is_replayed(spark, orders, folders):
    put(folders / "in", "f0", range(10))
    put(folders / "in", "f1", range(10, 20))
    each = rows_of(spark, folders / "in").writeStream.foreachBatch(enqueue_each)
    run(each, folders)
    assert orders.stats().ready == 20
    forget_commit(folders)
    run(each, folders)
    assert orders.stats().ready == 20
    (folders / "checkpoint").rename(folders / "former")
    run(each, folders)
    assert orders.stats().ready == 40, "a new checkpoint is a new application"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"txnAppId": "a"}, "txnAppId and txnVersion belong together"),
        ({"txnVersion": "1"}, "txnAppId and txnVersion belong together"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "option txnVersion"),
        ({"txnAppId": "a", "txnVersion": "1", "job": "j"}, "txnAppId and job both say when rows are the same"),
        ({"txnAppId": "a" * 513, "txnVersion": "1"}, "txnAppId has more than 512 bytes"),
    ],
)
def test_wrong_options_are_refused(spark, app, options, sentence):
    with pytest.raises(PySparkException, match=sentence):
        write(numbers(spark, 1), **options)
    assert app.queues() == []


def test_outside_of_a_stream_the_application_has_to_be_named(spark):
    with pytest.raises(InvalidSetting, match="name the application"):
        reliq.spark.transaction(spark.range(1), 0)
    assert reliq.spark.transaction(spark.range(1), 3, "shop") == {"txnAppId": "shop", "txnVersion": "3"}
