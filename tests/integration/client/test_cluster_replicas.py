"""A cluster whose URL names a replica first, as it does after a failover: reads and writes go to the master."""

import asyncio
import json

import pytest

import reliq
from reliq import aio
from reliq.cli.main import main
from reliq.observability.doctor import examine
from tests.integration.api.serving import serving
from tests.support.cluster import Cluster
from tests.support.workers import eventually, working


@pytest.fixture(scope="module")
def cluster():
    with Cluster(masters=1) as cluster:
        yield cluster


@pytest.fixture(params=["the replica alone", "the replica first"])
def url(cluster, request):
    (master,) = cluster.masters()
    (replica,) = (server for server in cluster.servers if server is not master)
    nodes = [replica] if request.param == "the replica alone" else [replica, master]
    return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in nodes)


def test_a_new_process_sends_and_handles(url):
    handled = []
    with reliq.Reliq(url) as app:
        app.handler("orders")(lambda message: handled.append(message.id))
        with working(app):
            sent = app.queue("orders").send("body")
            eventually(lambda: handled == [sent])


def test_tasks_of_a_new_process_send(url):
    async def send():
        async with aio.Reliq(url) as app:
            await app.queue("tasks").send("body")
            return (await app.queue("tasks").stats()).ready

    assert asyncio.run(send()) > 0


def test_the_doctor_judges_the_master(url, capsys):
    main(["doctor", "--url", url, "--json"])
    findings = {one["subject"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert "role" not in findings
    assert findings["replicas"]["fact"].startswith("1")


def test_the_service_is_ready(url):
    with serving(url) as client:
        assert client.post("/v1/queues/http/messages", json={"body": "x"}).is_success
        eventually(lambda: client.get("/readyz").is_success)


def test_a_master_that_has_just_become_a_replica_is_no_failure(url, monkeypatch):
    """While the slot map is old, INFO comes from the former master."""
    with reliq.Reliq(url) as app:
        app.queue("orders").stats()
        replica = app.store._target.seeds[0]
        monkeypatch.setattr(type(app.store._latest), "nodes", [replica], raising=False)
        report = app.store.run(examine(cluster=True))
    assert "role" not in {finding.subject for finding in report.findings}
