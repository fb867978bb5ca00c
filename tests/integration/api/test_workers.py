"""Workers over HTTP: who they are; pause, resume, stop."""

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.model.worker import Doing, Process, encoded
from tests.integration.api.serving import problem


def test_workers_are_listed_and_told_what_to_do(service, app):
    text = encoded(Process("vm-7", 42, "the shop", 1000, "1.2.3"), 15.0, Doing(7, 0.5, "a-message", 2000, paused=True))
    app.store.call(ops.announce("orders"))
    app.store.call(ops.register(QueueKeys("orders"), "cab12", 15.0, about=text))
    (one,) = service.get("/v1/workers").json()["workers"]
    assert one.pop("last_heartbeat") > 0
    assert one == {
        "id": "cab12", "host": "vm-7", "pid": 42, "title": "the shop", "started": 1000, "version": "1.2.3",
        "queues": ["orders"], "processing": 0, "messages_per_second": 0.5, "paused": True,
        "running": {"queue": "orders", "id": "a-message", "since": 2000},
    }  # fmt: skip
    for told in ("pause", "resume", "stop"):
        assert service.post(f"/v1/workers/cab12/{told}").json() == {"id": "cab12", "told": told}
    fields = {name for name, _ in app.store.call(ops.told(QueueKeys("orders")))}
    assert fields == {" pause ab12", " resume ab12", " stop ab12"}
    assert problem(service.post("/v1/workers/cother/pause")) == (404, "worker_not_found")
    assert problem(service.post("/v1/workers/cab12/dance"))[0] == 422


def test_a_consumer_by_hand_follows_no_instructions(service, app):
    app.store.call(ops.announce("orders"))
    app.store.call(ops.register(QueueKeys("orders"), "cab12", 15.0))
    assert problem(service.post("/v1/workers/cab12/pause")) == (404, "worker_not_found")
    assert app.store.call(ops.told(QueueKeys("orders"))) == ()
