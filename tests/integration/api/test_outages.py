"""Redis is away, full, or does not answer: the client is told which, and what that means for its message."""

import asyncio
import contextlib
import os
import signal

import pytest

from reliq.embedded import EmbeddedRedis
from reliq.ops import command
from reliq.transport.store import Store
from reliq_api.app import create_app
from reliq_api.settings import Settings
from tests.integration.api.serving import problem, serving
from tests.support.proxy import Counting, Proxy
from tests.support.workers import eventually


def message(service, name, **headers):
    return service.post(f"/v1/queues/{name}/messages", json={"body": 1}, headers=headers)


def test_redis_away_is_503_and_nothing_was_enqueued(name):
    with EmbeddedRedis() as server, serving(server.url, send_timeout=0.3) as service:
        assert message(service, name).status_code == 201
        server.stop()
        message(service, name)  # the first to notice cannot know whether its command was read: 504
        refused = message(service, name)
        assert problem(refused) == (503, "redis_unavailable")
        assert refused.json()["detail"] == "Redis cannot be reached or refuses; nothing was changed."
        unread = service.get(f"/v1/queues/{name}")
        assert problem(unread) == (503, "redis_unavailable")
        assert unread.json()["detail"] == "Redis cannot be reached or refuses."
        assert problem(service.get("/readyz")) == (503, "not_ready")
        assert service.get("/healthz").status_code == 200
        server.start()
        eventually(lambda: service.get("/readyz").is_success)
        assert message(service, name).status_code == 201
        assert service.get(f"/v1/queues/{name}").json()["ready"] == 2


def test_a_service_is_ready_again_when_the_host_name_of_its_redis_leads_to_the_new_master():
    """A probe, which only reads, went on asking the former master, and kept the writes away that would have left it."""
    with (
        EmbeddedRedis() as former,
        EmbeddedRedis() as master,
        Proxy(former.port) as proxy,
        serving(proxy.url) as service,
    ):
        assert service.get("/readyz").is_success
        with contextlib.closing(Store(former.url)) as direct:
            direct.call(command("REPLICAOF", "127.0.0.1", master.port))
        eventually(lambda: "is a replica" in service.get("/readyz").json().get("detail", ""))
        proxy.target = master.port
        eventually(lambda: service.get("/readyz").is_success)


def test_a_service_starts_and_is_alive_without_redis(name):
    with serving("redis://127.0.0.1:1/0", send_timeout=0.3) as service:
        assert service.get("/healthz").json() == {"status": "ok"}
        assert problem(service.get("/readyz")) == (503, "not_ready")
        assert problem(message(service, name)) == (503, "redis_unavailable")


def test_a_probe_takes_few_round_trips_as_it_is_answered_in_time_by_a_distant_redis(redis_server):
    with Counting(redis_server.port) as proxy, serving(proxy.url) as service:
        service.get("/readyz")
        before = proxy.trips
        service.get("/readyz")
        assert proxy.trips - before == 7


def test_a_service_that_stops_while_it_looks_at_redis_leaves_no_connection():
    with EmbeddedRedis() as server, contextlib.closing(Store(server.url)) as direct:

        def alone():
            return direct.call(command("CLIENT", "LIST")).count(b"\n") == 1

        async def story():
            service = create_app(Settings(url=server.url, no_auth=True))
            async with service.router.lifespan_context(service):
                os.kill(server.pid, signal.SIGSTOP)
                assert (await service.state.readiness.look())[0] == ["Redis did not answer within 0.8 s"]
            os.kill(server.pid, signal.SIGCONT)
            await asyncio.to_thread(eventually, alone)

        assert alone()
        asyncio.run(story())


def test_an_answer_that_was_lost_is_504_and_its_repeat_enqueues_once(redis_server, url, app, name):
    """The enqueue is carried out, its reply never comes, nor does that of any repeat in the time a send has."""
    cut: list[bool] = []

    def reply(data):
        return None if cut else data

    def request(data):
        if b"dedup" in data:
            cut.append(data)
        return data

    with Proxy(redis_server.port) as proxy, serving(proxy.url, send_timeout=0.3) as service:
        for key in ("first", "second"):  # from the second send on it is one script, which Redis has then
            message(service, name, **{"idempotency-key": key})
        proxy.request, proxy.reply = request, reply
        answer = message(service, name, **{"idempotency-key": "k"})
        assert problem(answer) == (504, "outcome_unknown")
        assert app.queue(name).stats().ready == 3
        proxy.request = proxy.reply = lambda data: data
        again = eventually(lambda: settled_down(message(service, name, **{"idempotency-key": "k"})), timeout=60)
    assert again.json() == {"id": answer.json()["ids"][0], "deduplicated": True}
    assert app.queue(name).stats().ready == 3


def settled_down(answer):
    return answer if answer.status_code not in (409, 503, 504) else None


def test_a_full_queue_is_429_and_consumers_go_on(post, orders):
    orders.configure(max_length=1)
    assert post("messages", {"body": 1}).status_code == 201
    assert problem(post("messages", {"body": 2})) == (429, "queue_full")
    lease = post("leases").json()
    settle = {"ack": [lease["messages"][0]["id"]]}
    assert post(f"leases/{lease['lease']}/settle", settle).json()["results"][0]["code"] == "done"
    assert post("messages", {"body": 2}).status_code == 201


def test_a_queue_with_its_bytes_is_429_and_consumers_go_on(post, service, orders):
    assert service.patch(f"/v1/queues/{orders.name}", json={"max_bytes": 1 << 20}).json()["max_bytes"] == 1 << 20
    answers = [post("messages", {"body": "x" * 250_000}) for _ in range(5)]
    assert [answer.status_code for answer in answers[:4]] == [201] * 4
    assert problem(answers[4]) == (429, "queue_full")
    assert f"of at most {1 << 20} bytes" in answers[4].json()["detail"]
    lease = post("leases").json()
    post(f"leases/{lease['lease']}/settle", {"ack": [lease["messages"][0]["id"]]})
    assert post("messages", {"body": "x" * 250_000}).status_code == 201


def used_memory(app):
    return int(dict_of(app.store.call(command("INFO", "memory")))["used_memory"])


def dict_of(info):
    return dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)


@pytest.fixture
def maxmemory(app):
    """Sets the server's limit, for the time of a test."""
    yield lambda size: app.store.call(command("CONFIG", "SET", "maxmemory", size))
    app.store.call(command("CONFIG", "SET", "maxmemory", 0))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "schedules/s", {"when": "1h"}),
        ("PUT", "bindings/x.y", None),
        ("POST", "messages/m/signals", {"name": "s", "value": 1}),
    ],
)
def test_a_full_redis_is_no_full_queue(url, orders, maxmemory, method, path, body):
    with serving(url) as service:
        orders.send("x")
        service.get("/v1/queues")
        maxmemory(1)
        answer = service.request(method, f"/v1/queues/{orders.name}/{path}".rstrip("/"), json=body)
        assert problem(answer) == (503, "memory_pressure")
        assert "Retry-After" in answer.headers


def test_above_the_watermark_nothing_is_enqueued_while_acks_pass(url, app, orders, maxmemory):
    orders.send("x")
    with serving(url) as service:
        address = f"/v1/queues/{orders.name}"
        lease = service.post(f"{address}/leases", json={}).json()
        maxmemory(int(used_memory(app) / 0.95))
        eventually(lambda: message(service, orders.name).status_code == 503)
        assert problem(message(service, orders.name)) == (503, "memory_pressure")
        batch = service.post(f"{address}/messages/batch", json=[{"body": 1}])
        assert problem(batch) == (503, "memory_pressure")
        assert batch.json()["results"][0]["code"] == "memory_pressure"
        settle = {"ack": [lease["messages"][0]["id"]]}
        answer = service.post(f"{address}/leases/{lease['lease']}/settle", json=settle)
        assert answer.json()["results"][0]["code"] == "done"


def test_a_replica_and_an_evicting_redis_are_not_ready(url, app):
    app.store.call(command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"))
    try:
        with serving(url) as service:
            assert problem(service.get("/readyz")) == (503, "not_ready")
            assert problem(message(service, "orders")) == (503, "redis_unavailable")
    finally:
        app.store.call(command("CONFIG", "SET", "maxmemory-policy", "noeviction"))
    with serving(url) as service:
        assert service.get("/readyz").json() == {"status": "ready"}
