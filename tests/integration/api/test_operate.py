"""Queues and dead letters for operators."""

import pytest

import reliq
from tests.integration.api.serving import problem


@pytest.fixture
def call(service, orders):
    def send(method, path="", body=None):
        return service.request(method, f"/v1/queues/{orders.name}{path}", json=body)

    return send


@pytest.fixture
def letters(orders):
    """Three dead letters, of two reasons."""
    ids = orders.send_many(["bad", "worse", "late"])
    with orders.consumer() as consumer:
        bad, worse, late = consumer.claim(limit=3)
        consumer.dead(bad, "malformed")
        consumer.dead(worse, "malformed")
        consumer.ack(late)
    orders.send("expired", ttl=0.001, id="expired")
    with orders.consumer() as consumer:
        while orders.stats().dead < 3:
            consumer.release(*consumer.claim())
    return [*ids[:2], "expired"]


def test_the_numbers_of_a_queue_and_its_policy(call, service, orders):
    orders.send_many(["a", "b"])
    orders.send("later", delay=60)
    answer = call("GET").json()
    assert (answer["queue"], answer["ready"], answer["delayed"], answer["dead"]) == (orders.name, 2, 1, 0)
    assert answer["counters"] == {"enqueued": 3}
    assert answer["config"] == {
        "max_length": None, "max_bytes": None, "max_deliveries": 5, "dead_max_age": None, "durability": "memory",
        "dead_max_count": None, "dead_to": None, "paused": False, "rate": None, "burst": None, "concurrency": None,
        "key_rate": None, "key_concurrency": None, "fair": False, "weights": {},
        "track": False, "history": None, "keep_output": 86400.0, "partitions": 1,
    }  # fmt: skip
    (listed,) = service.get("/v1/queues").json()["queues"]
    assert listed == {name: value for name, value in answer.items() if name != "config"} | {
        "oldest_ready_age": listed["oldest_ready_age"]
    }


def test_the_dashboard_is_at_the_root(service):
    answer = service.get("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")


def test_the_policy_is_changed_field_by_field(call, orders):
    assert call("PATCH", body={"max_length": 7, "dead_max_age": 60}).json()["max_length"] == 7
    assert call("PATCH", body={"max_length": None}).json() == {
        "max_length": None, "max_bytes": None, "max_deliveries": 5, "dead_max_age": 60, "durability": "memory",
        "dead_max_count": None, "dead_to": None, "paused": False, "rate": None, "burst": None, "concurrency": None,
        "key_rate": None, "key_concurrency": None, "fair": False, "weights": {},
        "track": False, "history": None, "keep_output": 86400.0, "partitions": 1,
    }  # fmt: skip
    assert orders.config().dead_max_age == 60


@pytest.mark.parametrize(
    "changes",
    [
        {"max_length": 0},
        {"max_length": "7"},
        {"max_length": 1.5},
        {"max_bytes": 1000},
        {"max_bytes": "1KiB"},
        {"max_bytes": "1 megabyte"},
        {"max_deliveries": 10**6},
        {"paused": True},
        {"x": 1},
        {"x": None},
        {"round": None},
        {"prioritised": None},
    ],
)
def test_a_policy_that_makes_no_sense_changes_nothing(call, orders, changes):
    orders.configure(max_length=3)
    assert problem(call("PATCH", body={"dead_max_count": 9, **changes})) == (422, "invalid_request")
    assert (orders.config().max_length, orders.config().dead_max_count) == (3, None)


def test_a_size_in_a_policy_may_have_a_unit(call, orders):
    assert call("PATCH", body={"max_bytes": "5MiB"}).json()["max_bytes"] == 5 * 1024 * 1024


def test_a_wrong_durability_is_refused_with_the_sentence_of_the_library(call, orders):
    with pytest.raises(reliq.InvalidSetting) as refused:
        orders.configure(durability="bogus")
    answer = call("PATCH", body={"durability": "bogus"})
    assert problem(answer) == (422, "invalid_request")
    assert answer.json()["detail"] == str(refused.value)


def test_pause_and_resume(call, orders):
    orders.send("x")
    assert call("POST", "/pause").json() == {"queue": orders.name, "paused": True}
    assert call("POST", "/leases", {}).json()["messages"] == []
    assert call("POST", "/resume").json() == {"queue": orders.name, "paused": False}
    assert len(call("POST", "/leases", {}).json()["messages"]) == 1


def test_a_purge_must_be_confirmed(call, orders):
    orders.send_many(["a", "b"])
    for body in ({}, {"confirm": "other"}, None):
        assert problem(call("POST", "/purge", body)) == (422, "invalid_request")
    assert orders.stats().ready == 2
    assert call("POST", "/purge", {"confirm": orders.name}).json() == {"removed": 2}


def test_dead_letters_are_listed_a_page_at_a_time(call, letters):
    first = call("GET", "/dead?limit=2").json()
    second = call("GET", f"/dead?limit=2&after={first['next']}").json()
    assert {one["id"] for one in first["letters"] + second["letters"]} == set(letters)
    assert second["next"] is None
    assert [one["id"] for one in call("GET", "/dead?reason=expired").json()["letters"]] == ["expired"]


def test_lists_have_the_filters_of_what_acts_on_them(call, orders):
    for tenant in ("a", "b"):
        orders.send(tenant, id=tenant, headers={"tenant": tenant, "kind": "x"})
        orders.send(tenant, id=f"{tenant}-later", headers={"tenant": tenant, "kind": "x"}, delay="1h")
    with orders.consumer() as consumer:
        for message in consumer.claim(limit=2):
            consumer.dead(message, "bad")

    def listed(path, of="letters"):
        return [one["id"] for one in call("GET", path).json()[of]]

    assert listed("/dead?header=tenant=a&header=kind=x") == ["a"]
    assert listed("/dead?header=tenant=a&header=kind=y") == []
    assert listed("/dead?older_than=1h") == listed("/dead?newer_than=0") == []
    assert set(listed("/dead?newer_than=1h")) == set(listed("/dead?older_than=0")) == {"a", "b"}
    assert listed("/delayed?header=tenant=b", of="messages") == ["b-later"]
    for path in ("/dead?header=tenant", "/delayed?header=tenant"):
        answer = call("GET", path)
        assert problem(answer) == (422, "invalid_request")
        assert "header is 'tenant': write name=value" in answer.json()["detail"]


def test_delayed_messages_are_listed_with_their_last_error(call, orders):
    retry = orders.send("bad")
    with orders.consumer() as consumer:
        consumer.retry(consumer.claim()[0], "1h", "no such order")
    later = orders.send("later", delay="2h")
    first = call("GET", "/delayed?limit=1").json()
    second = call("GET", f"/delayed?after={first['next']}").json()
    assert [one["id"] for one in first["messages"] + second["messages"]] == [retry, later]
    found = first["messages"][0]
    assert (found["failures"], found["error_class"], found["error"]) == (1, "Retry", "no such order")
    assert [one["id"] for one in call("GET", "/delayed?failed=true").json()["messages"]] == [retry]


def test_one_dead_letter_with_its_body_and_its_errors(call, letters):
    letter = call("GET", f"/dead/{letters[0]}").json()
    assert (letter["reason"], letter["body"], letter["encoding"]) == ("rejected", "bad", "text")
    assert (letter["key"], letter["routing_key"]) == ("", "")
    assert [error["text"] for error in letter["errors"]] == ["malformed"]
    assert problem(call("GET", "/dead/nobody")) == (404, "dead_letter_not_found")


def test_redrive_with_a_filter_a_dry_run_and_a_limit(call, orders, letters):
    dry = call("POST", "/dead/redrive", {"reason": "rejected", "dry_run": True}).json()
    assert (dry["matched"], dry["redriven"], orders.stats().dead) == (2, 0, 3)
    done = call("POST", "/dead/redrive", {"reason": "rejected", "limit": 1}).json()
    assert (done["redriven"], orders.stats().dead, orders.stats().ready) == (1, 2, 1)
    assert call("POST", "/dead/redrive", {"ids": ["expired"]}).json()["redriven"] == 1
    assert call("POST", "/dead/redrive", {}).json()["redriven"] == 1
    assert (orders.stats().dead, orders.stats().ready) == (0, 3)


def test_dead_letters_are_purged_by_a_filter_or_all(call, orders, letters):
    assert problem(call("POST", "/dead/purge", {})) == (422, "invalid_request")
    assert call("POST", "/dead/purge", {"reason": "expired"}).json() == {"removed": 1}
    assert call("POST", "/dead/purge", {"all": True}).json() == {"removed": 2}
    assert orders.stats().dead == 0


def test_metrics_have_the_queues_and_this_services_requests(service, call, orders):
    orders.send_many(["a", "b"])
    call("POST", "/leases", {})
    call("POST", "/leases", {"limit": 0})
    text = service.get("/metrics").text
    assert f'reliq_queue_messages{{queue="{orders.name}",state="ready"}} 1.0' in text
    for status in (200, 422):
        labels = f'method="POST",route="/v1/queues/{{queue}}/leases",status="{status}"'
        assert f"reliq_http_request_seconds_count{{{labels}}}" in text


def test_hostile_bodies_come_back_as_data(call, orders):
    orders.send("<script>alert(1)</script>")
    (message,) = call("POST", "/leases", {}).json()["messages"]
    assert message["body"] == "<script>alert(1)</script>"


def test_a_breaker_is_opened_and_closed_over_http(service, orders):
    orders.send("x")
    path = f"/v1/queues/{orders.name}"
    assert service.put(f"{path}/breaker", json={"state": "open", "seconds": 60}).json()["breaker"] == "open"
    assert service.get(path).json()["limited_by"] == "breaker"
    assert service.post(f"{path}/leases", json={"limit": 1}).json()["messages"] == []
    assert service.put(f"{path}/breaker", json={"state": "closed"}).json()["breaker"] == "closed"
    assert len(service.post(f"{path}/leases", json={"limit": 1}).json()["messages"]) == 1


def test_a_duration_of_the_policy_may_have_a_unit(service, orders):
    answer = service.patch(f"/v1/queues/{orders.name}", json={"dead_max_age": "30d"})
    assert answer.json()["dead_max_age"] == orders.config().dead_max_age == 30 * 86_400
    refused = service.patch(f"/v1/queues/{orders.name}", json={"dead_max_age": "a month"})
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("dead_max_age is ")


@pytest.mark.parametrize("wrong", [
        {"rate": "100/parsec"}, {"rate": 5}, {"burst": 0}, {"concurrency": -1}, {"key_rate": "0/s"},
        {"key_concurrency": 0}, {"fair": "often"}, {"weights": {"a": 0}},
    ])  # fmt: skip
def test_a_wrong_limit_over_http_changes_nothing(service, orders, wrong):
    before = orders.config()
    answer = service.patch(f"/v1/queues/{orders.name}", json=wrong)
    assert answer.status_code == 422
    assert next(iter(wrong)) in answer.text
    assert orders.config() == before
