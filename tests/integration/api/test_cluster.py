"""The service on a real Redis Cluster of two masters."""

import contextlib

import pytest

from reliq.embedded import EmbeddedRedis
from tests.integration.api.serving import problem, serving
from tests.integration.client.test_cluster import complete
from tests.support.ports import free_port_with_bus
from tests.support.workers import eventually

SETTINGS = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"]


@pytest.fixture(scope="module")
def masters():
    import redis

    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedRedis(settings=SETTINGS, port=free_port_with_bus())) for _ in range(2)]
        clients = [stack.enter_context(redis.Redis(port=server.port)) for server in servers]
        for client, slots in zip(clients, (range(8192), range(8192, 16384)), strict=True):
            client.execute_command("CLUSTER", "ADDSLOTS", *slots)
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
        eventually(lambda: complete(servers), timeout=60)
        yield servers


def test_a_cluster_is_ready_and_its_queues_are_served(masters):
    with serving(f"redis+cluster://127.0.0.1:{masters[0].port}") as service:
        answer = service.get("/readyz")
        assert answer.json() == {"status": "ready"}, answer.text
        for queue in ("a", "b", "c", "d"):
            assert service.post(f"/v1/queues/{queue}/messages", json={"body": queue}).status_code == 201
            given = service.post(f"/v1/queues/{queue}/leases", json={}).json()
            settle = f"/v1/queues/{queue}/leases/{given['lease']}/settle"
            ids = [message["id"] for message in given["messages"]]
            assert service.post(settle, json={"ack": ids}).json()["results"][0]["code"] == "done"
            assert service.post(settle, json={"ack": ids}).json()["results"][0]["code"] == "already"


def test_a_node_that_is_given_as_a_single_server_is_not_ready(masters):
    with serving(f"redis://127.0.0.1:{masters[0].port}/0") as service:
        answer = service.get("/readyz")
        assert problem(answer) == (503, "not_ready")
        assert "redis+cluster://" in answer.json()["detail"]
