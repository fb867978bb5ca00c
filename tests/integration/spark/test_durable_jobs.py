"""Durability of jobs, without a JVM: a write succeeds once replicas have its commit."""

from dataclasses import replace

import pytest
from pyspark.sql.types import StringType, StructField, StructType

import reliq
from reliq import ops
from reliq.cli import main
from reliq.contract import values
from reliq.errors import DurabilityUnavailable, InvalidSetting, OutcomeUnknown
from reliq.features.staging import durable
from reliq.features.staging import steps as staging
from reliq.features.staging.spark.stream_writer import ReliqStreamWriter
from reliq.features.staging.spark.writer import ReliqWriter, commit
from reliq.features.staging.spark.written import Staged
from reliq.features.staging.steps import Job, Part, PartWriter, Turn
from reliq.model.keys import SEVERAL, QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.ops.chunks import chunks_of
from reliq.protocol.durability import durability
from reliq.spark.options import Given, WriteOptions
from reliq.transport.store import Store
from tests.support.fleet import Fleet
from tests.support.turns import Monitor

KEYS = QueueKeys("orders")
ROWS = StructType([StructField("value", StringType())])


def stage(store: Store, job: Job, queue: str = "orders") -> Part:
    writer = PartWriter(job, queue, "0")
    store.run(writer.add(chunks_of([NewMessage("a row").element(1)])))
    return writer.part


def options(url: str, **more: str) -> WriteOptions:
    return Given({"queue": "orders", "url": url, **more}, None).for_writing()


def write(app: reliq.Reliq, job: Job, turn: Turn | None = None, **more: str) -> None:
    """Do what the tasks and the driver of a job do."""
    parts = (stage(app.store, job),)
    commit(app.store, job, [Staged(job.name, job.run, parts, rows=1)], options(app.url, **more), turn)


@pytest.fixture
def impatient(monkeypatch):
    """For tests in which no replica confirms anything."""
    monkeypatch.setattr(values, "DURABLE_WITHIN", 0.1)


def test_a_write_with_more_replicas_than_there_are_fails_and_the_job_of_that_name_is_committed(app, impatient):
    job, orders = Job(KEYS, "load"), app.queue("orders")
    with pytest.raises(OutcomeUnknown, match="load is committed, but durability replicas=1 was not reached"):
        write(app, job, durability="replicas=1")
    assert Monitor(app.store).finish_staged() == orders.stats().ready == 1
    again = {"job": "load", "columns": ""}
    with pytest.raises(OutcomeUnknown, match="load is committed, but durability replicas=1 was not reached"):
        ReliqWriter(options(app.url, durability="replicas=1", **again), ROWS, overwrite=False)
    with pytest.raises(OutcomeUnknown, match="durability replicas=1 was not reached"):
        ReliqWriter(options(app.url, **again), ROWS, overwrite=False)  # that of its commit
    ReliqWriter(options(app.url, durability="memory", **again), ROWS, overwrite=False)
    assert app.queue("orders").stats().ready == 1, "written again, it adds nothing"


def test_a_version_that_is_written_again_waits_for_replicas_too(app, impatient):
    once = {"txnAppId": "shop", "txnVersion": "7"}
    unsure = "^version 7 of shop is committed, but .*replicas=1 was not reached.*again with its txnAppId and txnVersion"
    with pytest.raises(OutcomeUnknown, match=unsure):
        write(app, Job(KEYS), Turn("shop", 7, versions=True), durability="replicas=1", **once)
    for durability_again in ({"durability": "replicas=1"}, {}):
        with pytest.raises(OutcomeUnknown, match=unsure):
            ReliqWriter(options(app.url, **durability_again, **once), ROWS, overwrite=False)
    assert not ReliqWriter(options(app.url, durability="memory", **once), ROWS, overwrite=False)._write
    assert app.store.call(ops.command("KEYS", "*:job:shop*")) == [], "asking leaves nothing"


def test_a_micro_batch_that_is_replayed_waits_for_replicas_too(app, impatient):
    unsure = "^epoch 3 of stream q is committed, but .*replicas=1 was not reached.*query again from its checkpoint"
    for run in ("first", "second"):
        with pytest.raises(OutcomeUnknown, match=unsure):
            write(app, Job(KEYS, f"q.3.{run}"), Turn("q", 3), durability="replicas=1")
    assert Monitor(app.store).finish_staged() == app.queue("orders").stats().ready == 1


@pytest.mark.parametrize(
    ("job", "turn", "once"),
    [
        (Job(SEVERAL, "shop@load"), None, {"job": "load", "application": "shop"}),
        (Job(SEVERAL), Turn("shop", 7, versions=True), {"txnAppId": "shop", "txnVersion": "7"}),
    ],
)
def test_a_write_of_several_queues_that_is_written_again_has_the_durability_of_its_commit(
    app, impatient, job, turn, once
):
    rows = StructType([StructField("value", StringType()), StructField("queue", StringType())])
    again = Given({"url": app.url, **once}, None).for_writing()
    app.store.run(staging.commit(job, [stage(app.store, job)], turn, durability="replicas=1"))
    with pytest.raises(OutcomeUnknown, match="is committed, but durability replicas=1 was not reached"):
        ReliqWriter(again, rows, overwrite=False)
    assert not ReliqWriter(replace(again, durability="memory"), rows, overwrite=False)._write


@pytest.mark.parametrize(
    ("turn", "once"),
    [(None, {"job": "load"}), (Turn("shop", 7, versions=True), {"txnAppId": "shop", "txnVersion": "7"})],
)
def test_what_an_earlier_version_has_committed_is_to_have_the_durability_of_its_queue(app, impatient, turn, once):
    """It noted none."""
    job = Job(KEYS, "load") if turn is None else Job(KEYS)
    app.queue("orders").configure(durability="replicas=1")
    app.store.run(staging.commit(job, [stage(app.store, job)], turn))
    with pytest.raises(OutcomeUnknown, match="is committed, but durability replicas=1 was not reached"):
        ReliqWriter(options(app.url, **{"columns": "", **once}), ROWS, overwrite=False)


def test_a_command_that_is_run_again_waits_for_replicas_too(app, impatient, capsys):
    app.queue("orders").configure(durability="replicas=1")
    with pytest.raises(OutcomeUnknown):
        write(app, Job(KEYS, "load"))
    command = ["spark", "enqueue", "--input", "none", "--queue", "orders", "--job", "load", "--url", app.url]
    assert main.main(command) != 0
    said = capsys.readouterr()
    assert "job load is committed, but durability replicas=1 was not reached" in said.err
    assert said.out == ""


def test_a_job_without_a_name_does_not_advise_to_write_its_rows_twice(app, impatient):
    with pytest.raises(OutcomeUnknown, match=r"it has no name .* without writing its rows twice"):
        write(app, Job(KEYS), durability="replicas=1")


@pytest.mark.parametrize("kind", [ReliqWriter, ReliqStreamWriter])
@pytest.mark.parametrize(
    ("durability", "sentence"), [("fsync", "needs Redis 7.2 or newer"), ("replicas=1", "0 replicas answer")]
)
def test_a_durability_that_the_server_cannot_have_is_refused_before_the_first_task(
    app, impatient, kind, durability, sentence
):
    app.store.call(ops.command("CONFIG", "SET", "appendonly", "no"))
    with pytest.raises(DurabilityUnavailable, match=sentence):
        kind(options(app.url, durability=durability), ROWS, overwrite=False)
    app.store.call(ops.command("HSET", KEYS.config, "durability", durability))
    with pytest.raises(DurabilityUnavailable, match=sentence):
        kind(options(app.url, job="load") if kind is ReliqWriter else options(app.url), ROWS, overwrite=False)
    assert app.store.call(ops.command("EXISTS", KEYS.jobs)) == 0


def test_the_durability_of_the_queue_is_that_of_its_jobs_unless_the_option_is_less(app, impatient):
    app.queue("orders").configure(durability="replicas=1")
    with pytest.raises(OutcomeUnknown, match="replicas=1 was not reached"):
        write(app, Job(KEYS))
    write(app, Job(KEYS), durability="memory")
    assert app.queue("orders").stats().ready >= 1


def test_the_strongest_durability_of_all_queues_counts(app):
    app.queue("mail").configure(durability="replicas=2")
    app.queue("audit").configure(durability="replicas=1")
    assert app.store.run(durable.wanted_for(["audit", "mail", "orders"], None)).name == "replicas=2"


def test_parts_in_other_slots_are_confirmed_before_anything_is_decided(app, impatient):
    job = Job(SEVERAL)
    parts = [stage(app.store, job, queue) for queue in ("mail", "audit")]
    with pytest.raises(DurabilityUnavailable, match="not reached for queue mail; nothing becomes visible"):
        app.store.run(durable.confirm_parts(job, parts, durability("replicas=1")))
    assert app.store.run(staging.outcome(SEVERAL, job.name)) is None


def test_a_commit_that_a_failover_has_lost_is_no_success(app, impatient):
    job = Job(KEYS, "load")
    with pytest.raises(OutcomeUnknown, match="does not know its commit"):
        app.store.run(durable.confirm_commit(job, durability("replicas=1")))
    assert app.store.call(ops.command("EXISTS", KEYS.job("load"))) == 0
    stage(app.store, job)
    with pytest.raises(OutcomeUnknown, match="does not know its commit"):
        app.store.run(durable.confirm_commit(job, durability("replicas=1")))
    assert app.store.run(staging.open_job(Job(KEYS, "load")))


def test_a_word_that_is_no_durability_is_refused(url):
    with pytest.raises(InvalidSetting, match="option durability is 'disk'"):
        options(url, durability="disk")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_replicas_have_what_a_write_has_committed():
    """The master dies at once, before anything else can reach its replicas."""
    with Fleet() as fleet, reliq.Reliq(fleet.url) as app:
        write(app, Job(KEYS, "load"), durability="replicas=2")
        fleet.fail_over("killed")
        assert not app.store.run(staging.open_job(Job(KEYS, "load")))
        Monitor(app.store).finish_staged()
        assert app.queue("orders").stats().ready == 1
