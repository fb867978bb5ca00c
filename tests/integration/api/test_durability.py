"""How sure an enqueue is to be, duplicates with another body, and whether Redis may hold queues at all."""

import pytest

from reliq.contract import values
from reliq.embedded import EmbeddedRedis
from reliq.ops import command
from tests.integration.api.serving import problem, serving


def one(service, name, **headers):
    return service.post(f"/v1/queues/{name}/messages", json={"body": 1}, headers=headers)


def raw(service, name, **headers):
    return service.post(f"/v1/queues/{name}/messages", content=b"1", headers=headers)


def batch(service, name, **headers):
    return service.post(f"/v1/queues/{name}/messages/batch", json=[{"body": 1}], headers=headers)


def publish(service, name, **headers):
    assert service.put(f"/v1/queues/{name}/bindings/to.{name}").is_success
    return service.post(f"/v1/topics/to.{name}/messages", json={"body": 1}, headers=headers)


@pytest.fixture(params=[one, raw, batch, publish])
def call(request):
    return request.param


def asking(durability):
    return {"reliq-durability": durability}


def test_memory_is_what_redis_has(call, service, name, app):
    assert call(service, name, **asking("memory")).is_success
    assert "confirms" not in app.queue(name).stats().counters


def test_replicas_that_are_not_there_are_504_and_the_message_is(call, service, name, app, monkeypatch):
    monkeypatch.setattr(values, "DURABLE_WITHIN", 0.1)
    answer = call(service, name, **asking("replicas=1"))
    assert problem(answer) == (504, "outcome_unknown")
    assert answer.json()["detail"] == "enqueued, but durability replicas=1 was not reached within 0.1 s"
    assert app.queue(name).stats().ready == 1


@pytest.fixture(scope="module")
def forgetful():
    with EmbeddedRedis(settings=["--appendonly", "no"]) as server, serving(server.url) as service:
        yield service


def test_a_disk_that_is_not_written_is_422_and_nothing_is_enqueued(forgetful, call, name):
    assert one(forgetful, name).is_success
    assert problem(call(forgetful, name, **asking("fsync"))) == (422, "durability_unavailable")
    assert forgetful.get(f"/v1/queues/{name}").json()["ready"] == 1


@pytest.mark.parametrize("value", ["disk", "replicas=0", ""])
def test_what_is_no_durability_is_400(call, service, name, app, value):
    assert problem(call(service, name, **asking(value))) == (400, "invalid_header")
    assert app.queue(name).stats().ready == 0


def test_a_duplicate_with_another_body_is_told(service, name):
    def enqueue(body):
        return service.post(f"/v1/queues/{name}/messages", json={"body": body, "dedup_key": "k"}).json()

    first, same, other = enqueue("a"), enqueue("a"), enqueue("b")
    assert same == {"id": first["id"], "deduplicated": True}
    assert other == {"id": first["id"], "deduplicated": True, "conflict": True}


def test_in_a_batch_as_well(service, name):
    entries = [{"body": body, "dedup_key": "k"} for body in ("a", "a", "b")]
    results = service.post(f"/v1/queues/{name}/messages/batch", json=entries).json()["results"]
    assert [result.get("conflict") for result in results] == [None, None, True]


def test_a_redis_that_forgets_is_not_ready_and_the_reason_is_told():
    with EmbeddedRedis(settings=["--appendonly", "no", "--save", ""]) as server, serving(server.url) as service:
        answer = service.get("/readyz")
        assert problem(answer) == (503, "not_ready")
        assert "persistence: none" in answer.json()["detail"]
        assert service.get("/healthz").is_success


def test_a_redis_that_evicts_is_told_without_its_address(url, app):
    app.store.call(command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"))
    try:
        with serving(url) as service:
            answer = service.get("/readyz")
        with serving(url, allow_eviction=True) as service:
            allowed = service.get("/readyz")
    finally:
        app.store.call(command("CONFIG", "SET", "maxmemory-policy", "noeviction"))
    assert problem(answer) == (503, "not_ready")
    assert "maxmemory-policy allkeys-lru" in answer.json()["detail"]
    assert "127.0.0.1" not in answer.text
    assert allowed.json() == {"status": "ready"}


def test_a_full_redis_is_ready_because_it_drains_through_its_consumers(service, app):
    app.store.call(command("CONFIG", "SET", "maxmemory", 1))
    try:
        assert service.get("/readyz").json() == {"status": "ready"}
    finally:
        app.store.call(command("CONFIG", "SET", "maxmemory", 0))
