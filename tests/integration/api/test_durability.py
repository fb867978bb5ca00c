"""How sure an enqueue is to be, duplicates with another body, and whether Redis may hold queues at all."""

from concurrent.futures import ThreadPoolExecutor

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


def keyed(service, name, **headers):
    body = {"body": 1, "dedup_key": "k"}
    return service.post(f"/v1/queues/{name}/messages", json=body, headers=headers)


def idempotent(service, name, **headers):
    return one(service, name, **headers, **{"idempotency-key": "k"})


def keyed_batch(service, name, **headers):
    body = [{"body": 1, "dedup_key": "k"}]
    return service.post(f"/v1/queues/{name}/messages/batch", json=body, headers=headers)


@pytest.mark.parametrize("of_queue", [False, True])
@pytest.mark.parametrize("again", [keyed, idempotent, keyed_batch])
def test_an_unconfirmed_duplicate_names_the_first_message(again, of_queue, service, name, app, monkeypatch):
    monkeypatch.setattr(values, "DURABLE_WITHIN", 0.1)
    if of_queue:
        app.queue(name).configure(durability="replicas=1")
    answers = [again(service, name, **({} if of_queue else asking("replicas=1"))) for _ in range(2)]
    with app.queue(name).consumer() as consumer:
        (message,) = consumer.claim(5)
    for answer in answers:
        assert problem(answer) == (504, "outcome_unknown")
        assert answer.json()["ids"] == [message.id]
        for result in answer.json().get("results", []):
            assert result == {"status": "unknown", "code": "outcome_unknown", "id": message.id}


def test_unconfirmed_sends_that_go_together_name_their_own_first_messages(service, name, app, monkeypatch):
    monkeypatch.setattr(values, "DURABLE_WITHIN", 0.1)
    app.queue(name).configure(durability="replicas=1")
    bodies = [{"body": number % 4, "dedup_key": f"k{number % 4}"} for number in range(24)]
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda body: service.post(f"/v1/queues/{name}/messages", json=body), bodies))
    with app.queue(name).consumer() as consumer:
        stored = {message.json(): message.id for message in consumer.claim(30)}
    assert [answer.json()["ids"] for answer in answers] == [[stored[body["body"]]] for body in bodies]


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


def test_a_duplicate_with_another_body_is_told_in_a_batch(service, name):
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
