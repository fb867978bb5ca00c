"""Keys on the dashboard: which queues a viewer sees, and which actions are allowed."""

import base64

import httpx
import pytest

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.model.worker import NO_WORKER, Doing, Process, encoded
from reliq_api.access import keyring
from tests.integration.ui.dying import bury
from tests.support.workers import eventually

MESSAGES = (
    "dead",
    "dead/letter?id=1",
    "dead/body?id=1",
    "dead/redrive",
    "dead/purge",
    "purge",
    "dead/redrives/1",
    "policy",
    "message?id=1",
    "message/cancel?id=1",
    "search?text=x",
    "send",
    "dead/edit?id=1",
)
FORMS = (
    "pause",
    "resume",
    "purge",
    "policy",
    "dead/purge",
    "dead/redrive",
    "dead/redrives/1/stop",
    "message/cancel",
    "send",
    "dead/edit",
)


@pytest.fixture
def holding(app, address):
    """A client with a key of these rights; the queues `orders` and `secret` have a dead letter and a ready message."""
    clients = []
    for queue in ("orders", "secret"):
        bury(app, queue, [b"a body"])
        app.queue(queue).send(b"another body")

    def client(scope: str, queues: str = "orders", *more: str) -> httpx.Client:
        key = app.store.run(keyring.create("test", (scope, *more), (queues,), None, 0.0))
        identity, _, secret = key.partition(".")
        clients.append(httpx.Client(base_url=address, auth=(identity, secret), headers={"Origin": address}))
        return clients[-1]

    yield client
    for one in clients:
        one.close()


def test_without_a_key_a_browser_is_asked_for_one(holding, address):
    holding("operate")
    for path in ("/", "/queues/orders", "/queues/orders/dead"):
        answer = httpx.get(address + path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Basic realm="reliq"'
        assert "log in: the user is the id of a key, the password its secret" in answer.text
        assert "a body" not in answer.text


def test_a_wrong_secret_is_no_key(holding, address):
    client = holding("operate")
    assert client.get("/").status_code == 200
    assert httpx.get(address, auth=("nobody", "wrong")).status_code == 401


def test_a_queue_of_somebody_else_is_not_there(holding):
    client = holding("operate")
    assert "/queues/secret" not in client.get("/").text
    assert client.get("/queues/secret").status_code == 404
    for path in FORMS:
        assert client.post(f"/queues/secret/{path}", data={"confirm": "secret"}).status_code == 404


def test_totals_are_of_the_queues_one_may_see(holding):
    one, all_queues = holding("metrics"), holding("metrics", "*")
    assert one.get("/").text.count("<b><span>1</span></b>") == 2
    assert all_queues.get("/").text.count("<b><span>2</span></b>") == 2


def test_workers_are_those_of_the_queues_one_may_see(holding, app):
    keys, about = {name: QueueKeys(name) for name in ("orders", "secret")}, Process("vm-7", 42, "the shop", 1, "1.2.3")
    for name, one in keys.items():
        text = encoded(about, 15.0, Doing(running=f"message-{name}", since=1))
        app.store.call(ops.register(one, f"h{name}", 15.0, about=text))
    clients = {scope: holding(scope) for scope in ("metrics", "operate")}
    looks = {scope: client.get("/workers").text for scope, client in clients.items()}
    for text in looks.values():
        assert "vm-7" in text and "the shop" in text and "1.2.3" in text and "/queues/orders" in text
        assert "secret" not in text
    assert ["message-orders" in looks[scope] for scope in ("metrics", "operate")] == [False, True]


WORKER = encoded(Process("vm-7", 42, "the shop", 1, "1.2.3"), 15.0, Doing())


def test_a_consumer_by_hand_is_told_nothing(holding, app):
    app.store.call(ops.register(QueueKeys("orders"), "h1", 15.0))
    client = holding("operate")
    page = client.get("/workers/h1").text
    assert "Pause" not in page and NO_WORKER in page
    assert client.post("/workers/h1/pause").status_code == 404
    assert app.store.call(ops.told(QueueKeys("orders"))) == ()


def test_a_worker_is_told_by_who_may_operate_all_of_its_queues(holding, app):
    for name, owners in (("orders", ("h1", "h2")), ("secret", ("h2",))):
        for owner in owners:
            app.store.call(ops.register(QueueKeys(name), owner, 15.0, about=WORKER))
    one, every, looking = holding("operate"), holding("operate", "*"), holding("metrics")
    assert "Pause" in one.get("/workers/h1").text
    told = one.post("/workers/h1/pause")
    assert (told.status_code, told.headers["location"]) == (303, "/workers/h1?notice=told-pause")
    assert app.store.call(ops.told(QueueKeys("orders")))[0][0] == " pause 1"
    page = one.get("/workers/h2").text
    assert "secret" not in page and "Pause" not in page
    assert [client.post("/workers/h2/stop").status_code for client in (one, every)] == [403, 303]
    assert looking.post("/workers/h1/stop").status_code == 403
    assert every.get("/workers/gone").status_code == 404


@pytest.mark.parametrize("path", ["/batches", "/flows"])
def test_batches_and_flows_are_for_keys_of_all_queues(holding, path):
    clients = [holding("operate"), holding("enqueue", "*"), holding("metrics", "*")]
    assert [client.get(path).status_code for client in clients] == [403, 403, 200]


def test_who_may_look_sees_numbers_but_no_message(holding):
    client = holding("metrics")
    answer = client.get("/queues/orders")
    assert answer.status_code == 200
    assert "another body" not in answer.text
    assert "Pause" not in answer.text
    for path in MESSAGES:
        assert client.get(f"/queues/orders/{path}").status_code == 403


def test_who_may_look_changes_nothing(app, holding):
    client = holding("metrics")
    for path in FORMS:
        assert client.post(f"/queues/orders/{path}", data={"confirm": "orders", "max_length": "1"}).status_code == 403
    stats = app.queue("orders").stats()
    assert (stats.ready, stats.dead, stats.paused) == (1, 1, False)
    assert app.queue("orders").config().max_length is None


@pytest.mark.parametrize("scope", ["enqueue", "consume"])
def test_keys_without_a_scope_for_the_dashboard_see_no_queue(holding, scope):
    client = holding(scope)
    assert "/queues/orders" not in client.get("/").text
    assert client.get("/queues/orders").status_code == 404


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_who_may_only_operate_sends_nothing(app, holding, method):
    """Neither by the form, nor as a dead letter with another body."""
    client = holding("operate")
    (letter,) = app.queue("orders").dead.list()
    for path in ("send", "dead/edit"):
        form = {"id": letter.id, "tag": letter.tag, "body": "forged", "headers": ""}
        answer = client.request(method, f"/queues/orders/{path}", params={"id": letter.id}, data=form)
        assert answer.status_code == 403
    assert "Send…" not in client.get("/queues/orders").text
    assert "Edit and redrive…" not in client.get(f"/queues/orders/dead/letter?id={letter.id}").text
    assert (app.queue("orders").stats().ready, app.queue("orders").stats().dead) == (1, 1)


@pytest.mark.parametrize(("queues", "status"), [("orders", 403), ("*", 303)])
def test_dead_letters_go_only_to_a_queue_of_the_key(app, holding, queues, status):
    answer = holding("operate", queues).post("/queues/orders/policy", data={"dead_to": "secret"})
    assert answer.status_code == status
    assert app.queue("orders").config().dead_to == ("secret" if status == 303 else None)


def test_who_may_operate_and_enqueue_sends(app, holding):
    client = holding("operate", "orders", "enqueue")
    assert "Send…" in client.get("/queues/orders").text
    assert client.post("/queues/orders/send", data={"body": "x"}).status_code == 303
    assert app.queue("orders").stats().ready == 2


def user_of(client: httpx.Client) -> str:
    """Return the id of the key with which the client asks."""
    sent = client.get("/").request.headers["authorization"].removeprefix("Basic ")
    return base64.b64decode(sent).decode().partition(":")[0]


def test_a_redrive_ends_when_its_key_is_revoked(app, holding):
    bury(app, "orders", [b"1", b"2", b"3", b"4"])
    client, other = holding("operate"), holding("operate")
    started = client.post("/queues/orders/dead/redrive", data={"rate": "0.01"})
    page = started.headers["location"]
    eventually(lambda: app.queue("orders").stats().ready >= 2)
    assert app.store.run(keyring.revoke(user_of(client)))
    eventually(lambda: "stopped" in other.get(page).text)
    assert "is no longer valid" in other.get(page).text
    assert 0 < app.queue("orders").stats().dead < 5


def test_a_redrive_without_a_key_ends_when_there_is_one(app, client, address):
    bury(app, "orders", [b"1", b"2", b"3", b"4"])
    page = client.post("/queues/orders/dead/redrive", data={"rate": "0.01"}).headers["location"]
    key = app.store.run(keyring.create("test", ("operate",), ("*",), None, 0.0))
    identity, _, secret = key.partition(".")
    eventually(lambda: "stopped" in client.get(page, auth=(identity, secret)).text)
    assert app.queue("orders").stats().dead > 0


def test_who_may_operate_does(app, holding):
    client = holding("operate")
    assert "another body" in client.get("/queues/orders").text
    assert client.post("/queues/orders/pause").status_code == 303
    assert app.queue("orders").stats().paused
