"""Durability of jobs, without a JVM: a write succeeds once replicas have its commit."""

import pytest
from pyspark.sql.types import StringType, StructField, StructType

import reliq
from reliq import ops
from reliq.contract import values
from reliq.errors import DurabilityUnavailable, InvalidSetting, OutcomeUnknown
from reliq.features.staging import durable
from reliq.features.staging import steps as staging
from reliq.features.staging.spark.writer import ReliqWriter, commit
from reliq.features.staging.spark.written import Staged
from reliq.features.staging.steps import Job, Part, PartWriter
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


def write(app: reliq.Reliq, job: Job, **more: str) -> None:
    """Do what the tasks and the driver of a job do."""
    parts = (stage(app.store, job),)
    commit(app.store, job, [Staged(job.name, job.run, parts, rows=1)], options(app.url, **more))


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
    ReliqWriter(options(app.url, **again), ROWS, overwrite=False)
    assert app.queue("orders").stats().ready == 1, "written again, it adds nothing"


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
