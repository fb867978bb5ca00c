"""One of three nodes is away: queues that cannot be read grant no right; only keys for all queues see their names."""

import pytest

import reliq
from reliq import ops
from reliq.model.keys import API_KEYS, QUEUES, QueueKeys
from reliq.model.worker import Doing, Process, encoded
from reliq_api.access import keyring
from tests.integration.api.serving import serving
from tests.support.crash import crash
from tests.support.workers import eventually

NAMES = [f"plain{number}" for number in range(20)]


@pytest.fixture
def app(emptied):
    with reliq.Reliq(emptied.url, send_timeout=0.2) as app:
        yield app


def test_a_key_of_one_queue_tells_no_worker_of_others_what_to_do_and_learns_no_name(cluster, app):
    needed = {cluster.master_of(key).port for key in (QUEUES, API_KEYS)}
    victim = next(one for one in cluster.masters() if one.port not in needed)
    hidden = next(name for name in NAMES if cluster.master_of(name).port == victim.port)
    shown = next(name for name in NAMES if cluster.master_of(name).port != victim.port)
    text = encoded(Process("vm-7", 42, "the shop", 1000, "1.2.3"), 15.0, Doing(7, 0.5, "", 0, paused=False))
    for name in (hidden, shown):
        app.store.call(ops.announce(name))
        app.store.call(ops.register(QueueKeys(name), "cab12", 60.0, about=text))
    of_one = app.store.run(keyring.create("one", ("operate",), (shown,), None, 0.0))
    of_all = app.store.run(keyring.create("all", ("operate",), ("*",), None, 0.0))

    with serving(cluster.url) as service:

        def told(key, path="/v1"):
            headers = {"authorization": f"Bearer {key}"}
            return service.post(f"{path}/workers/cab12/stop", headers=headers).status_code

        def first_page(key):
            return service.get("/", headers={"authorization": f"Bearer {key}"}).text

        assert (told(of_one), told(of_one, "")) == (403, 403)
        crash(victim)
        try:
            assert (told(of_one), told(of_one, "")) == (503, 503)
            page = service.get("/workers/cab12", headers={"authorization": f"Bearer {of_one}"})
            assert page.status_code == 503
            assert hidden not in page.text
            # The sampler reads all queues. The first page names what is missing of those that the viewer may see.
            eventually(lambda: f"queue {hidden}" in first_page(of_all))
            assert shown in first_page(of_one)
            assert hidden not in first_page(of_one)
            assert (told(of_all), told(of_all, "")) == (200, 303)
        finally:
            victim.start()
            eventually(cluster.whole, timeout=60)
