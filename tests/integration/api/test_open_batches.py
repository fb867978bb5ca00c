"""Batches that have not ended, over HTTP."""

import pytest

from reliq.features.batches.steps import end
from reliq_api.access import keyring
from tests.integration.api.serving import problem, serving


@pytest.fixture
def batch(app, orders):
    """A batch of four messages: one is handled, one is dead, one is cancelled."""
    with app.batch() as batch:
        batch.send_many(orders.name, [1, 2, 3, 4])
    with orders.consumer() as consumer:
        done, dead = consumer.claim(limit=2)
        consumer.ack(done)
        consumer.dead(dead, "no")
        (third,) = consumer.claim()
        consumer.release(third)
    orders.cancel(third.id)
    return batch


def test_a_batch_is_shown_with_its_counts_until_it_ends(service, app, orders, batch):
    found = service.get(f"/v1/batches/{batch.id}").json()
    assert found.pop("opened_at") > 0
    assert found == {
        "id": batch.id, "state": "closed", "sent": 4, "handled": 1, "dead": 1, "cancelled": 1, "open": 1, "batches": 0,
    }  # fmt: skip
    assert batch.id in [one["id"] for one in service.get("/v1/batches?limit=1000").json()["batches"]]
    with orders.consumer() as consumer:
        consumer.ack(*consumer.claim())
    assert app.store.run(end(batch.id))
    assert problem(service.get(f"/v1/batches/{batch.id}")) == (404, "batch_not_found")
    assert service.get("/v1/batches").json()["batches"] == []


def test_what_a_lease_settles_is_counted_by_its_batch(app, post, orders):
    with app.batch() as batch:
        batch.send_many(orders.name, [1, 2, 3])
    lease = post("leases", {"limit": 3}).json()
    first, second, third = (message["id"] for message in lease["messages"])
    settled = {"ack": [first, second], "dead": [{"id": third, "reason": "no"}]}
    assert post(f"leases/{lease['lease']}/settle", settled).status_code == 200
    progress = batch.progress()
    assert (progress.handled, progress.dead, progress.open) == (2, 1, 0)


@pytest.mark.parametrize("path", ["batches?limit=0", "batches?limit=1001", "batches/x", "batches/0123456789a:"])
def test_requests_that_name_no_batch_are_refused(service, path):
    assert problem(service.get(f"/v1/{path}")) == (422, "invalid_request")


def test_batches_need_a_key_for_all_queues(app, url, batch):
    def key(scope, queue):
        return app.store.run(keyring.create("test", (scope,), (queue,), None, 0.0))

    keys = [key("metrics", "orders*"), key("enqueue", "*"), key("metrics", "*"), key("operate", "*")]
    with serving(url) as service:
        for path in ("batches", f"batches/{batch.id}"):
            assert service.get(f"/v1/{path}").status_code == 401
            answers = [service.get(f"/v1/{path}", headers={"authorization": f"Bearer {one}"}) for one in keys]
            assert [answer.status_code for answer in answers] == [403, 403, 200, 200]
