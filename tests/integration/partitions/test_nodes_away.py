"""One node of three is away: operators see the rest, learn which node it is, and what their calls have done."""

import contextlib
import json
import os
import signal

import httpx
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

import reliq
from reliq import ops
from reliq.cli.main import main
from reliq.contract import values
from reliq.errors import DoneInPart, RedisUnavailable
from reliq.features.tracking.model import Cancellation
from reliq.model.found import Place
from reliq.model.keys import API_KEYS, QUEUES, QueueKeys
from reliq.model.partitions import bucket_of_key
from reliq.observability.prometheus import Exporter
from reliq.ops.topology import slot_of
from reliq.protocol.stats import stats_of
from reliq.transport import server as server_module
from reliq.transport.errors import ConnectionLost
from reliq.transport.server import Server
from reliq.transport.store import Store
from reliq_api.access import auth, keyring
from reliq_monitor import MonitorThread
from tests.integration.api.serving import serving
from tests.integration.partitions.test_surfaces import half_moved
from tests.support.crash import crash
from tests.support.workers import eventually

COUNT = 6  #: partitions, two on each node
PLAIN = [f"plain{number}" for number in range(9)]
BY_MONITOR, REPEAT = "a monitor finishes it", "repeat it to finish it"
DONE = f"done in {COUNT - 2} of {COUNT} partitions, not in "


@pytest.fixture
def app(emptied):
    with reliq.Reliq(emptied.url, send_timeout=0.2) as app:
        yield app


@pytest.fixture
def orders(app):
    orders = app.queue("orders")
    orders.configure(partitions=COUNT)
    orders.send_many(["body"] * 100 * COUNT)
    return orders


@pytest.fixture
def names(app, orders):
    return app.store.call(ops.layout(QueueKeys("orders"))).every("orders")


@pytest.fixture
def victim(cluster):
    """The node that has neither the layout of the queue nor the list of all queues."""
    return next(one for one in cluster.masters() if one not in (cluster.master_of("orders"), cluster.master_of(QUEUES)))


@pytest.fixture
def gone(cluster, names, victim):
    return {name for name in names if cluster.master_of(name) is victim}


@contextlib.contextmanager
def away(cluster, server):
    """The node is away until the end of the context."""
    crash(server)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        back(cluster, server)


def back(cluster, server):
    server.start()
    eventually(cluster.whole, timeout=60)


def command(cluster, capsys, *arguments):
    """Run the command line; return its exit status, output and errors."""
    status = main([*arguments, "--url", cluster.url])
    return status, *capsys.readouterr()


@pytest.fixture
def service(cluster, app):
    with serving(cluster.url) as service:
        yield service


# --- what was done ----------------------------------------------------------------------------------------------------


def test_a_purge_says_what_it_has_removed_in_which_partition_and_its_repetition_finishes_it(
    cluster, service, orders, names, gone, victim
):
    with away(cluster, victim) as node:
        answer = service.post("/v1/queues/orders/purge", json={"confirm": "orders"})
        said = answer.json()
        assert (answer.status_code, said["code"], answer.headers["retry-after"]) == (503, "incomplete", "5")
        assert said["done"] == {name: 100 for name in names if name not in gone}
        assert said["missing"].keys() == gone
        assert all(node in why for why in said["missing"].values())
        assert "is not finished (400 so far), repeat it to finish it" in said["detail"]
    rest = eventually(lambda: repeated(ACTS["purge"], service))
    assert rest.json() == {"removed": 200}
    assert orders.stats().ready == 0


def test_a_purge_is_not_finished_by_a_monitor_as_it_could_not_tell_what_was_sent_since(
    cluster, app, orders, names, gone, victim
):
    with away(cluster, victim), pytest.raises(DoneInPart, match=f"{REPEAT}; {DONE}"):
        orders.purge()
    sent = {name: orders.send("later", key=key_of(app, name)) for name in names}
    monitor = MonitorThread(app.store)
    monitor.start()
    due = app.queue("soon").send("body", delay=0.1)
    eventually(lambda: app.queue("soon").find(due).place is Place.READY)  # the monitor is at work
    stats = {name: app.store.run(stats_of(QueueKeys(name))).ready for name in names}
    monitor.stop()
    assert stats == {name: 101 if name in gone else 1 for name in names}
    assert all(orders.find(one) for one in sent.values())


def repeated(act, service):
    """Repeat a change; return its answer unless it is not finished."""
    return (answer := act(service)).status_code == 200 and answer


ACTS = {
    "purge": lambda service: service.post("/v1/queues/orders/purge", json={"confirm": "orders"}),
    "pause": lambda service: service.post("/v1/queues/orders/pause"),
    "resume": lambda service: service.post("/v1/queues/orders/resume"),
    "policy": lambda service: service.patch("/v1/queues/orders", json={"max_length": 6000}),
    "breaker": lambda service: service.put("/v1/queues/orders/breaker", json={"state": "open", "seconds": 60}),
    "dead letters": lambda service: service.post("/v1/queues/orders/dead/purge", json={"all": True}),
    "redrive": lambda service: service.post("/v1/queues/orders/dead/redrive", json={}),
    "cancel": lambda service: service.post("/v1/queues/orders/cancel", json={"key": "nobody's"}),
}


def test_each_change_says_in_which_partitions_it_is_made(cluster, service, orders, names, gone, victim):
    with away(cluster, victim) as node:
        for what, act in ACTS.items():
            answer = act(service)
            assert (answer.status_code, answer.json()["code"]) == (503, "incomplete"), (what, answer.text)
            assert answer.json()["done"].keys() == {*names} - gone, what
            assert answer.json()["missing"].keys() == gone, what
            assert node in answer.json()["detail"], what
            assert DONE in answer.json()["detail"], what
    for what, act in ACTS.items():
        assert eventually(lambda: repeated(act, service), what=what)  # noqa: B023
    with reliq.Reliq(cluster.url) as app:
        limits = [app.store.call(ops.read_hash(QueueKeys(name).config))["max_length"] for name in names]
    assert limits == ["1000"] * COUNT


def test_each_change_says_so_too_while_a_slot_is_half_moved(cluster, service, orders, names, gone):
    half = min(gone)
    with half_moved(cluster, half) as why:
        answers = {what: act(service) for what, act in ACTS.items()}
    for what, answer in answers.items():
        if answer.status_code != 200:  # some need no key of the other node
            assert (answer.status_code, answer.json()["code"]) == (503, "incomplete"), (what, answer.text)
            assert answer.json()["missing"].keys() == {half}, what
            assert any(one in answer.json()["detail"] for one in why), what
    assert answers["purge"].status_code == 503
    for what, act in ACTS.items():
        assert eventually(lambda: repeated(act, service), what=what)  # noqa: B023
    assert orders.stats().ready == 0


def test_the_library_raises_an_error_with_what_was_done(cluster, orders, names, gone, victim):
    with away(cluster, victim) as node:
        with pytest.raises(DoneInPart, match="the pause of queue 'orders' is not finished, a monitor finishes it"):
            orders.pause()
        with pytest.raises(DoneInPart) as raised:
            orders.pause()
        assert raised.value.done == {name: True for name in names if name not in gone}
        assert raised.value.missing.keys() == gone
        assert raised.value.node == node
        assert f"{BY_MONITOR}; {DONE}" in str(raised.value)
    orders.pause()
    assert orders.config().paused


def test_a_monitor_finishes_a_pause_and_a_change_of_the_policy(cluster, app, orders, names, gone, victim):
    with away(cluster, victim):
        with pytest.raises(DoneInPart, match="the change of the policy of queue 'orders' is not finished, a monitor"):
            orders.configure(max_length=6000)
        with pytest.raises(DoneInPart):
            orders.pause()
    monitor = MonitorThread(app.store)
    monitor.start()

    def configs():
        found = [app.store.call(ops.read_hash(QueueKeys(name).config)) for name in names]
        return [(one.get("paused"), one.get("max_length")) for one in found]

    eventually(lambda: configs() == [("1", "1000")] * COUNT, timeout=60)
    monitor.stop()
    eventually(lambda: app.store.call(ops.unfinished_change(QueueKeys("orders"))) is None)


def test_the_command_line_says_what_was_done(cluster, capsys, orders, gone, victim):
    with away(cluster, victim) as node:
        status, out, error = command(cluster, capsys, "purge", "orders", "--yes")
    assert (status, out) == (1, "")
    assert error.startswith("reliq: the purge of queue 'orders' is not finished (400 so far), repeat it to finish it")
    assert node in error
    assert all(name in error for name in gone)


COMMANDS = {  # the last one deletes the queue
    "queue pause orders": BY_MONITOR,
    "queue resume orders": BY_MONITOR,
    "queue config orders max_length=6000": BY_MONITOR,
    "queue breaker orders open --for 60s": REPEAT,
    "queue breaker orders close": REPEAT,
    "message cancel orders --key nobodys": REPEAT,
    "delayed run orders --all": REPEAT,
    "dead redrive orders --all": REPEAT,
    "dead purge orders --all --yes": REPEAT,
    "queue purge orders --yes": REPEAT,
    "queue delete orders --force --yes": REPEAT,
}


def test_each_command_that_changes_something_says_where_it_is_done_and_what_to_do(
    cluster, capsys, orders, gone, victim
):
    with away(cluster, victim) as node:
        for line, then in COMMANDS.items():
            status, out, error = command(cluster, capsys, *line.split())
            assert (status, out) == (1, ""), line
            there = DONE if "delete" not in line else DONE.replace(str(COUNT - 2), str(COUNT - 3), 1)
            assert f"{then}; {there}" in error, line
            assert all(name in error for name in gone), line
            assert node in error, line


FORMS = {
    "pause": ({}, BY_MONITOR),
    "resume": ({}, BY_MONITOR),
    "policy": ({"max_length": "6000"}, BY_MONITOR),
    "breaker/open": ({}, REPEAT),
    "breaker/close": ({}, REPEAT),
    "delayed/run": ({"all": "1"}, REPEAT),
    "dead/redrive": ({}, REPEAT),
    "dead/purge": ({"confirm": "orders"}, REPEAT),
    "purge": ({"confirm": "orders"}, REPEAT),
}


@pytest.fixture
def browser(service):
    headers = {"Sec-Fetch-Site": "same-origin"}
    with httpx.Client(base_url=service.base_url, headers=headers, timeout=30, follow_redirects=True) as browser:
        yield browser


def test_each_form_that_changes_something_says_where_it_is_done_and_what_to_do(cluster, browser, orders, gone, victim):
    with away(cluster, victim) as node:
        for form, (fields, then) in FORMS.items():
            page = browser.post(f"/queues/orders/{form}", data=fields)
            if form == "dead/redrive":  # its page shows how it goes on
                address = page.url
                page = eventually(lambda: DONE in (shown := browser.get(address)).text and shown)  # noqa: B023
            assert f"{then}; {DONE}" in page.text, form
            assert all(name in page.text for name in gone), form
            assert node in page.text, form


def test_the_cancellation_of_chosen_messages_says_how_many_are_cancelled(cluster, app, browser, gone, victim, names):
    orders = app.queue("orders")
    ids = [orders.send("body", delay=3600, key=key_of(app, name)) for name in names]
    with away(cluster, victim) as node:
        page = browser.post("/queues/orders/delayed/cancel", data={"id": ids})
        said = "4 messages are cancelled, 2 of those chosen may not be, repeat it to finish it"
        assert (page.status_code, said in page.text, node in page.text) == (503, True, True), page.text
        again = browser.post("/queues/orders/delayed/cancel", data={"id": ids})
        assert (again.status_code, "nothing was changed" in again.text) == (503, True)
    page = browser.post("/queues/orders/delayed/cancel", data={"id": ids})
    assert (page.status_code, "Messages cancelled: 2." in page.text) == (200, True), page.text
    assert orders.stats().delayed == 0


def test_an_unforced_deletion_says_that_it_deleted_nothing(cluster, capsys, app, orders, victim):
    with away(cluster, victim) as node:
        status, _, error = command(cluster, capsys, "queue", "delete", "orders", "--yes")
    assert status == 1
    assert node in error
    assert "nothing of queue 'orders' was deleted" in error
    assert orders.stats().ready == 100 * COUNT


def test_a_deletion_is_finished_by_its_repetition(cluster, capsys, app, orders, victim):
    with away(cluster, victim):
        status, _, error = command(cluster, capsys, "queue", "delete", "orders", "--force", "--yes")
        assert status == 1
        assert "the deletion of queue 'orders' is not finished" in error
        assert "; orders: it is deleted after all others" in error
    status, out, _ = command(cluster, capsys, "queue", "delete", "orders", "--force", "--yes")
    assert (status, out) == (0, "orders is deleted; it had 300 ready\n"), out
    assert "orders" not in app.queues()


def test_a_message_that_can_be_seen_is_found_and_cancelled_and_others_are_not_said_to_be_nowhere(
    cluster, service, app, names, gone, victim
):
    there = next(name for name in names if name not in gone)
    sent = app.queue("orders").send("body", delay=3600, key=key_of(app, there))
    with away(cluster, victim) as node:
        assert service.get(f"/v1/queues/orders/messages/{sent}").json()["place"] == Place.DELAYED
        answer = service.delete(f"/v1/queues/orders/messages/{sent}")
        assert (answer.status_code, answer.json()) == (200, {"result": "cancelled"})
        for method in ("GET", "DELETE"):
            answer = service.request(method, "/v1/queues/orders/messages/unknown")
            assert (answer.status_code, answer.json()["code"]) == (503, "redis_unavailable"), answer.text
            assert answer.json()["node"] == node
        with pytest.raises(RedisUnavailable, match=node):
            app.queue("orders").cancel("unknown")
    assert app.queue("orders").cancel("unknown") is Cancellation.UNKNOWN


def key_of(app, home):
    """Return a key with its home in this partition."""
    layout = app.store.call(ops.layout(QueueKeys("orders")))
    return next(key for key in map(str, range(1000)) if layout.homes("orders", bucket_of_key(key))[-1] == home)


# --- what is seen -----------------------------------------------------------------------------------------------------


@pytest.fixture
def plain(app, cluster, victim):
    """Queues on all nodes; the names of those that the node has."""
    for name in PLAIN:
        app.queue(name).send("body")
    return {name for name in PLAIN if cluster.master_of(name) is victim}


def test_the_service_shows_the_rest_and_names_the_node(cluster, service, orders, gone, plain, victim):
    assert service.get("/readyz").json() == {"status": "ready"}
    with away(cluster, victim) as node:
        ready = service.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert f"1 of 3 do not answer: {node}" in ready.json()["missing"][0]
        listed = service.get("/v1/queues").json()
        ready_by_queue = {one["queue"]: one["ready"] for one in listed["queues"]}
        assert ready_by_queue == {"orders": 400, **{name: 1 for name in PLAIN if name not in plain}}
        unseen = {one["what"] for one in listed["missing"]}
        assert unseen == {*(f"partition {name}" for name in gone), *(f"queue {name}" for name in plain)}
        assert {one["node"] for one in listed["missing"]} == {node}
        for path in ("", "/partitions", "/dead", "/delayed"):
            answer = service.get(f"/v1/queues/orders{path}")
            assert answer.status_code == 200, answer.text
            assert {one["what"] for one in answer.json()["missing"]} == {f"partition {name}" for name in gone}
            assert answer.json().get("next") is None, path
    assert "missing" not in eventually(lambda: (said := service.get("/v1/queues").json())["queues"] and said)


def test_the_dashboard_shows_the_rest_and_names_the_node(cluster, service, orders, plain, victim):
    with away(cluster, victim) as node, httpx.Client(base_url=service.base_url, timeout=30) as browser:
        for path in ("/", "/queues/orders", "/queues/orders/dead", "/jobs"):
            shown = eventually(lambda: (page := browser.get(path)) and "do not answer" in page.text and page)  # noqa: B023
            assert shown.status_code == 200, path
            assert node in shown.text, path


def test_metrics_have_the_queues_that_answer_with_all_their_partitions(cluster, app, orders, plain, victim):
    exporter = Exporter(Store(cluster.url))
    exporter.render()
    with away(cluster, victim) as node:
        body, _ = exporter.render()
    found = {family.name: family.samples for family in text_string_to_metric_families(body.decode())}
    assert [one.value for one in found["reliq_redis_up"]] == [1]
    assert [one.labels for one in found["reliq_redis_node_away"]] == [{"node": node}]
    assert {one.labels["queue"] for one in found["reliq_queue_messages"]} == {*PLAIN} - plain
    assert {one.labels["queue"] for one in found["reliq_queue_unreadable"]} == {"orders", *plain}


def test_the_command_line_shows_the_rest_and_names_the_node(cluster, capsys, app, orders, gone, plain, victim):
    identity = app.queue("plain0").send("body", delay=60)
    with away(cluster, victim) as node:
        status, out, error = command(cluster, capsys, "stats", "--json")
        assert (status, {one["queue"]: one["ready"] for one in json.loads(out)}["orders"]) == (1, 400)
        assert node in error
        assert all(name in error for name in (*gone, *plain))
        status, out, error = command(cluster, capsys, "audit")
        assert status == 1
        assert "2 of its partitions did not answer" in out
        assert node in error
        status, out, error = command(cluster, capsys, "dead", "list", "orders", "--json")
        assert (status, json.loads(out)["letters"]) == (1, [])
        assert node in error
        if "plain0" not in plain:
            assert command(cluster, capsys, "find", identity)[0] == 0
        status, out, error = command(cluster, capsys, "find", "unknown")
        assert (status, out) == (1, "")
        assert node in error
        assert "it was handled, removed, or never sent" not in error
        status, out, _ = command(cluster, capsys, "doctor")
        assert status == 2
        assert f"1 of 3 do not answer: {node}" in out
        assert "Nothing can be sent" not in out
        status, out, _ = command(cluster, capsys, "top", "--once", "--interval", "0.1")
        assert (status, node in out) == (1, True)
        status, _, error = command(cluster, capsys, "top", "--json", "--interval", "0.1")
        assert (status, node in error) == (1, True)


@pytest.mark.long
def test_a_node_that_hangs_is_waited_for_once(cluster, capsys, orders, plain, victim, monkeypatch):
    waits: list[Exception] = []

    def note_failure(self, node, error, noted=Server.note_failure):
        if isinstance(error, ConnectionLost) and not error.given_up:
            waits.append(error)
        noted(self, node, error)

    monkeypatch.setattr(values, "SOCKET_MARGIN", 0.5)
    monkeypatch.setattr(server_module, "_SILENT", 60.0)
    monkeypatch.setattr(Server, "note_failure", note_failure)
    os.kill(victim.pid, signal.SIGSTOP)
    try:
        for arguments in (("stats",), ("audit",), ("find", "unknown"), ("dead", "list", "orders"), ("doctor",)):
            waits.clear()
            _, out, error = command(cluster, capsys, *arguments)
            assert f"127.0.0.1:{victim.port}" in out + error, arguments
            assert len(waits) == 1, arguments
        with serving(cluster.url) as service:
            for path in ("/v1/queues", "/v1/queues/orders"):
                assert "missing" in service.get(path).json(), path
            waits.clear()
            assert "missing" in service.get("/v1/queues/orders").json()
            assert not waits
    finally:
        os.kill(victim.pid, signal.SIGCONT)
        eventually(cluster.whole, timeout=60)


@contextlib.contextmanager
def hung(cluster, server):
    """The node accepts connections and does not answer until the end of the context."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        os.kill(server.pid, signal.SIGCONT)
        eventually(cluster.whole, timeout=60)


@pytest.mark.long
def test_a_probe_is_answered_in_its_time_while_a_node_hangs(cluster, service, victim):
    """After 0.8 s, as the answer says; Kubernetes waits 3 s for it (deploy/kubernetes/api.yaml)."""

    def probed():
        answer = service.get("/readyz")
        assert answer.status_code == 200
        return answer.json()

    assert probed() == {"status": "ready"}
    with hung(cluster, victim) as node:
        late = probed()
        assert late["status"] == "degraded"
        assert late["missing"][-1].startswith("Redis did not answer within 0.8 s; this was seen ")
        named = eventually(lambda: (said := probed()) and node in str(said) and said, timeout=60)
        assert f"1 of 3 do not answer: {node}" in named["missing"][0]
    eventually(lambda: probed() == {"status": "ready"}, timeout=60)


def test_a_service_that_never_saw_redis_is_not_ready_while_a_look_lasts(cluster, victim):
    with hung(cluster, victim) as node, serving(cluster.url) as service:
        first = service.get("/readyz")
        assert (first.status_code, first.json()["detail"]) == (503, "Redis did not answer within 0.8 s")
        eventually(lambda: node in service.get("/readyz").text, timeout=60)


@pytest.fixture
def keeper(cluster):
    """The node that has the API keys."""
    return cluster.master_of(API_KEYS)


@pytest.fixture
def key(app):
    return app.store.run(keyring.create("shop", ("enqueue",), ("*",), None, 0.0))


@pytest.fixture
def elsewhere(cluster, keeper):
    """The address for messages of a queue on another node."""
    return next(f"/v1/queues/{name}/messages" for name in PLAIN if cluster.master_of(name) is not keeper)


def as_owner(service, key):
    service.headers["authorization"] = f"Bearer {key}"
    return service


def test_the_keys_that_were_read_last_are_valid_while_the_node_that_has_them_hangs(
    cluster, app, key, keeper, elsewhere, monkeypatch
):
    reads: list[auth.Guard] = []

    def read(self, read=auth.Guard._read):
        reads.append(self)
        return read(self)

    monkeypatch.setattr(values, "SOCKET_MARGIN", 0.5)
    monkeypatch.setattr(auth, "KEYS_EVERY", 0.01)
    monkeypatch.setattr(auth.Guard, "_read", read)
    with serving(cluster.url, no_auth=False) as service:
        sent = [as_owner(service, key).post(elsewhere, json={"body": 1}).status_code]
        with hung(cluster, keeper):
            reads.clear()
            sent += [service.post(elsewhere, json={"body": 1}).status_code for _ in range(50)]
            assert service.post(elsewhere, json={}, headers={"authorization": "Bearer no.key"}).status_code == 401
        assert sent == [201] * 51
        assert len(reads) < 10, "the node is not asked for each request"
        assert app.store.run(keyring.revoke(key.partition(".")[0]))
        assert eventually(lambda: service.post(elsewhere, json={"body": 1}).status_code == 401)


@pytest.mark.parametrize("settings", [{"no_auth": False}, {"no_auth": True}], ids=["with keys", "without"])
def test_a_service_that_has_read_no_key_names_the_node_that_has_them(cluster, keeper, elsewhere, monkeypatch, settings):
    monkeypatch.setattr(values, "SOCKET_MARGIN", 0.5)
    with hung(cluster, keeper) as node, serving(cluster.url, **settings) as service:
        for _ in range(3):
            answer = service.post(elsewhere, json={"body": 1})
            assert (answer.status_code, answer.json()["code"]) == (503, "redis_unavailable"), answer.text
            assert answer.json()["node"] == node


def test_the_keys_that_were_read_last_are_not_valid_for_ever(cluster, key, keeper, elsewhere, monkeypatch):
    monkeypatch.setattr(values, "SOCKET_MARGIN", 0.5)
    monkeypatch.setattr(auth, "KEYS_EVERY", 0.01)
    monkeypatch.setattr(auth, "KEYS_KEPT", 0.0)
    with serving(cluster.url, no_auth=False) as service:
        assert as_owner(service, key).post(elsewhere, json={"body": 1}).status_code == 201
        with hung(cluster, keeper) as node:
            refused = eventually(lambda: (said := service.post(elsewhere, json={"body": 1})).is_error and said)
            assert (refused.status_code, refused.json()["node"]) == (503, node)


def test_a_slot_that_is_half_moved_hides_only_what_is_in_it(cluster, service, orders, names, gone, victim):
    """Only its own partition: Redis refuses there what needs keys of both nodes."""
    half = min(gone)
    target = next(one for one in cluster.masters() if one is not victim)
    slot = slot_of(half)
    with redis.Redis(port=victim.port) as old, redis.Redis(port=target.port) as new:
        mine, theirs = old.execute_command("CLUSTER", "MYID"), new.execute_command("CLUSTER", "MYID")
        new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", mine)
        old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", theirs)
        try:
            assert service.get("/readyz").json() == {"status": "ready"}
            listed = service.get("/v1/queues").json()
            assert [one["ready"] for one in listed["queues"]] == [500]
            assert [one["what"] for one in listed["missing"]] == [f"partition {half}"]
            assert "its slots are moving" in listed["missing"][0]["why"]
        finally:
            for client in (old, new):
                client.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")


def test_without_the_list_of_queues_those_that_were_known_are_shown(cluster, app, service):
    keeper = cluster.master_of(QUEUES)
    for name in PLAIN:
        app.queue(name).send("body")
    there = {name for name in PLAIN if cluster.master_of(name) is not keeper}
    service.get("/v1/queues")
    with away(cluster, keeper) as node:
        listed = service.get("/v1/queues").json()
        assert {one["queue"] for one in listed["queues"]} == there
        assert {"what": "the list of all queues", "node": node} in [
            {"what": one["what"], "node": one["node"]} for one in listed["missing"]
        ]
        assert service.get(f"/v1/queues/{min(there)}").json()["ready"] == 1
        assert service.get("/readyz").json()["status"] == "degraded"


def test_a_queue_whose_first_partition_is_away_is_read_by_the_layout_that_was_read_before(cluster, app, orders, names):
    assert orders.stats().ready == 600
    home = cluster.master_of("orders")
    there = [name for name in names if cluster.master_of(name) is not home]
    with serving(cluster.url) as service:
        service.get("/v1/queues/orders/partitions")
        with away(cluster, home):
            answer = service.get("/v1/queues/orders/partitions").json()
            assert {one["name"] for one in answer["partitions"]} == set(there)
    assert sum(app.store.run(stats_of(QueueKeys(name))).ready for name in there) == 400


def test_operators_go_on_in_the_other_partitions_while_the_first_one_hangs(cluster, app, orders, names, monkeypatch):
    monkeypatch.setattr(values, "SOCKET_MARGIN", 0.5)
    home = cluster.master_of("orders")
    gone = {name for name in names if cluster.master_of(name) is home}
    key = app.store.run(keyring.create("operator", keyring.SCOPES, ("*",), None, 0.0))
    with serving(cluster.url, no_auth=False) as service:
        assert as_owner(service, key).get("/v1/queues/orders").json()["config"]["partitions"] == COUNT
        service.post("/login", data={"key": key})
        assert "Limit of messages" in service.get("/queues/orders").text
        with hung(cluster, home) as node:
            shown = service.get("/v1/queues/orders").json()
            assert (shown["ready"], shown["config"]) == (400, None)
            unseen = {one["what"] for one in shown["missing"]}
            assert unseen == {"policy of queue orders", *(f"partition {name}" for name in gone)}
            for path in ("/dead", "/delayed", "/partitions"):
                assert service.get(f"/v1/queues/orders{path}").status_code == 200, path
            page = service.get("/queues/orders")
            assert (page.status_code, "has the policy does not answer" in page.text) == (200, True)
            for what in ("pause", "purge", "cancel"):
                answer = ACTS[what](service)
                assert (answer.status_code, answer.json()["code"]) == (503, "incomplete"), (what, answer.text)
                assert answer.json()["done"].keys() == {*names} - gone, what
                assert answer.json()["missing"].keys() == gone, what
                assert node in answer.json()["detail"], what
