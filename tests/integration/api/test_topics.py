"""Publish over HTTP, and the bindings that say who gets it."""

import pytest

from reliq.ops import command
from reliq_api.access import keyring
from tests.integration.api.serving import problem, serving


@pytest.fixture
def service(url):
    """A service of its own for each test: one knows bindings for half a second."""
    with serving(url) as client:
        yield client


@pytest.fixture
def mail(app):
    """Two queues: every order, and those of the EU."""
    app.subscribe("mailer@welcome", "order.created.*")
    app.subscribe("audit", "order.#")
    return app


def publish(service, key, body=None, **options):
    return service.post(f"/v1/topics/{key}/messages", json={"body": {"order": 1}} if body is None else body, **options)


def only_message(app, queue):
    with app.queue(queue).consumer() as consumer:
        (message,) = consumer.claim(limit=10)
        consumer.ack(message)
    return message


def test_a_copy_goes_to_every_queue_that_is_bound(service, mail):
    answer = publish(service, "order.created.eu", {"body": {"order": 1}, "headers": {"tenant": "a"}, "id": "one"})
    assert (answer.status_code, answer.json()) == (201, {"queues": {"audit": "one", "mailer@welcome": "one"}})
    for queue in ("audit", "mailer@welcome"):
        message = only_message(mail, queue)
        assert (message.json(), message.headers, message.routing_key) == (
            {"order": 1}, {"tenant": "a"}, "order.created.eu",
        )  # fmt: skip


def test_a_consumer_over_http_sees_the_routing_key(service, mail):
    publish(service, "order.paid")
    (message,) = service.post("/v1/queues/audit/leases", json={}).json()["messages"]
    assert message["routing_key"] == "order.paid"


def test_bytes_and_events_are_published_as_they_are_enqueued(service, mail):
    raw = service.post("/v1/topics/order.paid/messages", content=b"\xff\x00", headers={"reliq-delay": "0"})
    assert raw.status_code == 201
    assert only_message(mail, "audit").body == b"\xff\x00"
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"n": 1}}
    for _ in range(2):  # an event's id is not looked at: each queue would have to
        answer = service.post(
            "/v1/topics/order.paid/messages", json=event, headers={"content-type": "application/cloudevents+json"}
        )
        assert answer.status_code == 201
        assert only_message(mail, "audit").json() == {"n": 1}


def test_a_delayed_one_is_delayed_everywhere(service, mail):
    publish(service, "order.created.eu", {"body": 1, "delay": "1h"})
    assert [mail.queue(name).stats().delayed for name in ("audit", "mailer@welcome")] == [1, 1]


def test_what_nobody_is_bound_for_is_counted_and_said(service, mail):
    answer = publish(service, "user.created")
    assert (answer.status_code, answer.json()) == (200, {"queues": {}})
    assert problem(publish(service, "user.created", params={"mandatory": "true"})) == (422, "unroutable")
    assert publish(service, "order.paid", params={"mandatory": "true"}).status_code == 201
    assert service.get("/v1/topics").json()["unroutable"] == 1


def test_an_unroutable_message_goes_to_the_alternate_queue(service, mail):
    mail.topics.set_alternate("strays")
    assert list(publish(service, "user.created").json()["queues"]) == ["strays"]
    assert service.get("/v1/topics/user.created").json() == {
        "routing_key": "user.created", "queues": [], "alternate": "strays",
    }  # fmt: skip
    assert service.get("/v1/topics").json()["alternate"] == "strays"


def test_a_publish_is_refused_for_all_queues_if_one_is_full(service, mail):
    mail.queue("audit").configure(max_length=1)
    assert publish(service, "order.created.eu").status_code == 201
    answer = publish(service, "order.created.eu")
    assert problem(answer) == (429, "queue_full")
    assert "audit" in answer.json()["detail"]
    assert mail.queue("mailer@welcome").stats().ready == 1


def test_bindings_are_made_listed_and_ended(service, app):
    address = "/v1/queues/mailer/bindings/order.%23"
    made = {"queue": "mailer", "pattern": "order.#"}
    assert service.put(address).json() == {**made, "changed": True}
    assert service.put(address).json() == {**made, "changed": False}
    assert service.get("/v1/topics").json() == {"bindings": [made], "alternate": None, "unroutable": 0}
    assert service.get("/v1/topics/order.paid").json()["queues"] == ["mailer"]
    assert list(publish(service, "order.paid").json()["queues"]) == ["mailer"]
    assert service.delete(address).json() == {**made, "changed": True}
    assert service.delete(address).json() == {**made, "changed": False}
    assert service.get("/v1/topics/order.paid").json()["queues"] == []
    assert app.queue("mailer").stats().ready == 1


def test_trying_a_key_sends_nothing(service, mail):
    assert service.get("/v1/topics/order.created.eu").json()["queues"] == ["audit", "mailer@welcome"]
    assert mail.queue("audit").stats().ready == 0


# --- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["order.*", "order.%23", "order..eu", "a%20b", "%0a", "%ff", "%00", "a%7F", "x" * 256, "a.b%2Fc"]
)
@pytest.mark.parametrize("way", ["publish", "try"])
def test_keys_that_are_none(service, app, key, way):
    app.subscribe("audit", "#")
    answer = publish(service, key) if way == "publish" else service.get(f"/v1/topics/{key}")
    assert problem(answer)[1] in ("invalid_name", "invalid_request", "not_found")
    assert app.queue("audit").stats().ready == 0


@pytest.mark.parametrize("pattern", ["order.a*", "%23%23", "a..b", "a%20b", "%0a", "%00", "x" * 256, "", ".", "a%2Fb"])
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_patterns_that_are_none(service, app, pattern, method):
    answer = service.request(method, f"/v1/queues/orders/bindings/{pattern}")
    assert problem(answer)[1] in ("invalid_name", "invalid_request", "not_found", "method_not_allowed")
    assert app.topics.list() == []


@pytest.mark.parametrize(
    ("body", "options", "expected"),
    [
        ({"body": 1, "dedup_key": "k"}, {}, (422, "invalid_message")),
        ({"body": 1, "unknown": 1}, {}, (422, "invalid_message")),
        ({"body": "x" * 1_200_000}, {}, (413, "body_too_large")),
        ({"body": 1, "delay": -1}, {}, (422, "invalid_message")),
        ({"body": 1}, {"params": {"mandatory": "maybe"}}, (422, "invalid_request")),
        ({"body": 1}, {"params": [("mandatory", "true"), ("mandatory", "false")]}, (422, "invalid_request")),
        ({"body": 1}, {"headers": {"idempotency-key": "k"}}, (400, "invalid_header")),
        ({"body": 1}, {"headers": {"origin": "https://evil.example"}}, (403, "cross_site")),
    ],
)
def test_what_cannot_be_published(service, mail, body, options, expected):
    assert problem(publish(service, "order.paid", body, **options)) == expected
    assert mail.queue("audit").stats().counters == {}


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def key(mail):
    def make(*scopes, queues=("audit",)):
        text = mail.store.run(keyring.create("test", scopes, queues, None, 0.0))
        return {"authorization": f"Bearer {text}"}

    return make


def test_a_key_publishes_only_where_it_may_enqueue_everywhere(service, mail, key):
    some, both = key("enqueue"), key("enqueue", queues=("audit", "mailer@*"))
    other = key("consume", "operate", "metrics")
    assert publish(service, "order.paid", headers=some).status_code == 201
    answer = publish(service, "order.created.eu", headers=some)
    assert problem(answer) == (403, "forbidden")
    assert "mailer" not in answer.text
    assert mail.queue("audit").stats().ready == 1
    assert publish(service, "order.created.eu", headers=both).status_code == 201
    assert problem(publish(service, "order.paid", headers=other)) == (403, "forbidden")
    assert problem(publish(service, "order.paid")) == (401, "unauthorized")


def test_the_alternate_queue_needs_the_right_too(service, mail, key):
    mail.topics.set_alternate("strays")
    assert problem(publish(service, "user.created", headers=key("enqueue"))) == (403, "forbidden")
    assert mail.queue("strays").stats().ready == 0


@pytest.fixture
def settled_routes(service):
    """Make the service believe for good that the bindings that it knows are fresh."""

    def settle():
        service.app.state.reliq._topics._looked_at = float("inf")

    return settle


def test_the_routes_that_are_checked_are_those_of_the_send(service, mail, key, settled_routes):
    """The holder of a key publishes, binds its queue with another process, and publishes again."""
    mail.topics.set_alternate("strays")
    mine = key("enqueue")
    assert publish(service, "order.paid", headers=mine).status_code == 201
    settled_routes()
    mail.subscribe("audit", "user.created")
    assert problem(publish(service, "user.created", headers=mine)) == (403, "forbidden")
    assert [mail.queue(name).stats().ready for name in ("strays", "audit")] == [0, 1]


def test_a_binding_that_has_gone_elsewhere_is_checked_while_it_is_used(service, mail, key, settled_routes):
    mine = key("enqueue")
    assert publish(service, "order.paid", headers=mine).status_code == 201
    settled_routes()
    mail.unsubscribe("mailer@welcome", "order.created.*")
    assert problem(publish(service, "order.created.eu", headers=mine)) == (403, "forbidden")
    assert [mail.queue(name).stats().ready for name in ("mailer@welcome", "audit")] == [0, 1]


def test_a_binding_that_is_not_used_yet_is_not_checked_yet(service, mail, key, settled_routes):
    """The message goes by the bindings of half a second ago, all of whose queues the key has."""
    mine = key("enqueue")
    assert publish(service, "order.paid", headers=mine).status_code == 201
    settled_routes()
    mail.subscribe("secret", "order.paid")
    assert publish(service, "order.paid", headers=mine).json()["queues"].keys() == {"audit"}
    assert mail.queue("secret").stats().ready == 0


def test_to_operate_a_queue_is_not_to_read_what_others_publish(service, mail, key):
    """A binding to `#` would bring the queue all bodies, and forbid publishers without a right to it to publish."""
    others, topics = key("operate", "consume", "enqueue", "metrics"), key("topics")
    refused = service.put("/v1/queues/audit/bindings/%23", headers=others)
    assert problem(refused) == (403, "forbidden")
    assert ("audit", "#") not in mail.topics.list()
    assert service.put("/v1/queues/audit/bindings/%23", headers=topics).json()["changed"]


def test_a_key_sees_and_binds_its_own_queues_only(service, mail, key):
    mail.topics.set_alternate("strays")
    look, operate = key("metrics"), key("operate", "topics")
    listed = service.get("/v1/topics", headers=look).json()
    assert (listed["bindings"], listed["alternate"]) == ([{"queue": "audit", "pattern": "order.#"}], None)
    assert service.get("/v1/topics/order.created.eu", headers=look).json()["queues"] == ["audit"]
    assert service.get("/v1/topics/user.created", headers=look).json()["alternate"] is None
    assert problem(service.put("/v1/queues/audit/bindings/x", headers=look)) == (403, "forbidden")
    assert problem(service.put("/v1/queues/mailer@welcome/bindings/x", headers=operate)) == (404, "queue_not_found")
    assert service.put("/v1/queues/audit/bindings/x", headers=operate).json()["changed"]
    assert mail.store.call(command("HEXISTS", "reliq:topics", "mailer@welcome x")) == 0
