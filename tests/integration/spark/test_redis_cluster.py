"""Jobs on a real Redis Cluster of three masters: the record lies on one node, the parts with their queues."""

import pytest
from pyspark.sql.datasource import DataSourceStreamReader

import reliq
from reliq import ops
from reliq.features.staging.steps import Job, PartWriter, abort, commit, roll_forward
from reliq.model.keys import SEVERAL, QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.ops.chunks import chunks_of
from tests.integration.client.test_cluster import QUEUES, cluster_url, nodes  # noqa: F401  fixtures
from tests.integration.spark.test_streams import forget_commit, from_reliq, run
from tests.support.turns import Monitor


@pytest.fixture
def url(cluster_url):  # noqa: F811
    return cluster_url


@pytest.fixture
def app(url):
    app = reliq.Reliq(url)
    yield app
    app.close()


@pytest.fixture
def job():
    return Job(SEVERAL)


@pytest.fixture
def parts(app, job):
    """One message staged for each queue, on all nodes."""
    writers = [PartWriter(job, queue, "0") for queue in QUEUES]
    for writer in writers:
        app.store.run(writer.add(chunks_of([NewMessage(writer.part.queue).element(1)])))
    return [writer.part for writer in writers]


def ready(app):
    return [app.queue(name).stats().ready for name in QUEUES]


def staged_keys(app, job, parts):
    """How many there are, beside the record itself."""
    keys = [*(part.staged.key(job.name) for part in parts), SEVERAL.jobs, SEVERAL.parts(job.name)]
    return sum(app.store.call([ops.command("EXISTS", key) for key in keys]))


def test_all_queues_get_theirs_with_the_commit(app, job, parts):
    assert ready(app) == [0] * len(QUEUES)
    app.store.run(commit(job, parts))
    assert app.store.run(roll_forward(job)) == len(QUEUES)
    assert ready(app) == [1] * len(QUEUES)
    assert staged_keys(app, job, parts) == 0


def test_an_aborted_job_leaves_nothing_on_any_node(app, job, parts):
    assert app.store.run(abort(job))
    assert ready(app) == [0] * len(QUEUES)
    assert staged_keys(app, job, parts) == 0


def test_a_monitor_finishes_what_a_dead_leader_has_committed(app, job, parts):
    app.store.run(commit(job, parts))
    assert Monitor(app.store).finish_staged() == len(QUEUES)
    assert ready(app) == [1] * len(QUEUES)
    assert staged_keys(app, job, parts) == 0


def test_a_monitor_removes_an_orphan_from_all_nodes(app, job, parts):
    app.store.call(ops.command("ZADD", SEVERAL.jobs, "XX", 1, job.name))
    Monitor(app.store).finish_staged()
    assert ready(app) == [0] * len(QUEUES)
    assert staged_keys(app, job, parts) == 0


def test_a_dataframe_with_a_column_queue(spark, app):
    rows = [(f"row {number}", name) for name in QUEUES for number in range(3)]
    spark.createDataFrame(rows, "value string, queue string").write.format("reliq").mode("append").save()
    assert ready(app) == [3] * len(QUEUES)


def test_a_dataframe_for_one_queue_and_what_is_read_of_it(spark, app):
    for name in QUEUES[:3]:
        rows = spark.range(10).selectExpr("cast(id AS string) AS value")
        rows.write.format("reliq").option("queue", name).mode("append").save()
        found = spark.read.format("reliq").option("queue", name).load()
        assert sorted(int(row.value) for row in found.collect()) == list(range(10))


@pytest.fixture
def spread_out(app):
    """A queue with a partition on each node."""
    orders = app.queue("orders")
    orders.configure(partitions=3)
    names = app.store.call(ops.layout(QueueKeys("orders"))).every("orders")
    assert len({app.store.call(ops.command("CLUSTER", "KEYSLOT", name)) * 3 // 16384 for name in names}) == 3
    return orders


def numbered(spark, count):
    """Rows of which every fifth has an ordering key."""
    keyed = "IF(id % 5 = 0, CONCAT('k', id % 50), NULL) AS key"
    return spark.range(0, count, 1, 2).selectExpr("CAST(id AS STRING) AS id", "repeat('x', 1500) AS value", keyed)


def test_a_queue_with_a_partition_on_each_node_is_written_and_read(spark, app, spread_out):
    numbered(spark, 600).write.format("reliq").options(queue="orders", keyAs="order").mode("append").save()
    assert spread_out.stats().ready == 600
    found = spark.read.format("reliq").options(queue="orders").load()
    assert sorted(int(row.id) for row in found.collect()) == list(range(600))
    seen: dict[str, list[int]] = {}
    with spread_out.consumer() as consumer:
        while messages := consumer.claim(100, wait=0.2):
            for message in messages:
                seen.setdefault(message.key or "", []).append(int(message.id))
            consumer.ack(*messages)
    assert sum(map(len, seen.values())) == 600
    assert all(sorted(ids) == ids for key, ids in seen.items() if key)


@pytest.mark.skipif(
    not hasattr(DataSourceStreamReader, "getDefaultReadLimit"), reason="reading a queue as a stream needs PySpark 4.2"
)
def test_a_stream_acks_the_partitions_of_all_nodes(spark, app, spread_out, tmp_path):
    numbered(spark, 300).write.format("reliq").options(queue="orders", keyAs="order").mode("append").save()
    out = str(tmp_path / "out")
    stream = from_reliq(spark, maxMessagesPerBatch=200).select("id")
    run(stream.writeStream.format("parquet").option("path", out), tmp_path)
    assert sorted(int(row.id) for row in spark.read.parquet(out).collect()) == list(range(300))
    forget_commit(tmp_path)  # the last micro-batch is replayed, and with the next one it is acked
    app.queue("orders").send("one more", id="300")
    run(stream.writeStream.format("parquet").option("path", out), tmp_path)
    assert sorted(int(row.id) for row in spark.read.parquet(out).collect()) == list(range(301))
    assert spread_out.stats().ready == 0
