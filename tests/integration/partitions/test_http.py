"""A queue with partitions over HTTP: clients name the queue, and get and settle messages of all partitions."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from reliq import ops
from reliq.errors import RedisUnavailable
from reliq.features.results.steps import result_of
from reliq.model.keys import QueueKeys
from reliq.model.partitions import bucket_of_key, home_by_bucket
from reliq.protocol.claiming import Failing, ready_counts
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.homes import QueueHomes
from reliq.protocol.producer import ProducerPool
from reliq.protocol.stats import stats_of
from reliq.transport.aiostore import AioStore
from tests.integration.api.serving import serving
from tests.support.hooked import beginning, hooked
from tests.support.losing_proxy import LosingProxy, scripts_of
from tests.support.workers import eventually, working

NAMES = ["orders", *(f"orders@partition.{number}" for number in range(1, 4))]


@pytest.fixture
def service(url):
    with serving(url) as client:
        yield client


@pytest.fixture
def post(service):
    def send(call, body=None):
        answer = service.post(f"/v1/queues/orders/{call}", json=body or {})
        assert answer.status_code < 300, answer.text
        return answer.json()

    return send


def held_by_partition(app) -> dict[str, int]:
    return {name: app.store.run(stats_of(QueueKeys(name))).processing for name in NAMES}


def one_of_each_partition(post) -> dict[str, dict]:
    """Lease one message after another until there is a lease of every partition; return them by partition."""
    found: dict[str, dict] = {}
    while len(found) < len(NAMES):
        given = post("leases", {"limit": 1})
        found[f"orders{given['lease'][21:]}"] = given
    return found


def test_polls_take_the_messages_of_all_partitions(app, orders, post):
    sent = orders.send_many(["body"] * 400)
    assert [app.store.run(stats_of(QueueKeys(name))).ready for name in NAMES] == [100] * 4
    given = [post("leases", {"limit": 100}) for _ in range(4)]
    assert sorted(one["id"] for lease in given for one in lease["messages"]) == sorted(sent)
    assert held_by_partition(app) == dict.fromkeys(NAMES, 100)
    assert post("leases") == {"lease": None, "lease_seconds": 15.0, "messages": []}


def test_what_a_client_does_with_a_lease_reaches_its_partition(app, orders, post):
    for _ in range(80):
        orders.send({"n": 1})
    for name, given in one_of_each_partition(post).items():
        lease, (message,) = given["lease"], given["messages"]
        assert held_by_partition(app)[name] > 0
        assert post(f"leases/{lease}/extend", {"lease": 90}) == {
            "lease": lease, "lease_seconds": 90, "cancelled": [],
        }  # fmt: skip
        post(f"leases/{lease}/progress", {"id": message["id"], "progress": 0.5})
        assert orders.find(message["id"]).progress.fraction == 0.5
        settled = {"results": [{"id": message["id"], "code": "done"}]}
        assert post(f"leases/{lease}/settle", {"ack": [message["id"]]}) == settled
        settled["results"][0]["code"] = "already"
        assert post(f"leases/{lease}/settle", {"ack": [message["id"]]}) == settled
    assert orders.stats().counters["acked"] == 4


@pytest.mark.parametrize(
    ("verb", "place"), [({"retry": ("delay", 60)}, "delayed"), ({"dead": ()}, "dead"), ({"release": ()}, "ready")]
)
def test_what_is_put_back_stays_in_its_partition(app, orders, post, verb, place):
    for _ in range(40):
        orders.send("body")
    given = one_of_each_partition(post)
    before = Counter({name: getattr(app.store.run(stats_of(QueueKeys(name))), place) for name in NAMES})
    ((name, option),) = verb.items()
    for lease in given.values():
        message = {"id": lease["messages"][0]["id"], **dict([option] if option else [])}
        post(f"leases/{lease['lease']}/settle", {name: [message]})
    after = Counter({name: getattr(app.store.run(stats_of(QueueKeys(name))), place) for name in NAMES})
    assert after - before == Counter(NAMES)


def test_another_process_of_the_service_settles_by_the_id_alone(url, orders, post):
    for _ in range(40):
        orders.send("body")
    given = one_of_each_partition(post)
    with serving(url) as other:
        for lease in given.values():
            ids = [lease["messages"][0]["id"]]
            answer = other.post(f"/v1/queues/orders/leases/{lease['lease']}/settle", json={"ack": ids})
            assert [one["code"] for one in answer.json()["results"]] == ["done"]


def test_a_waiting_poll_gets_a_message_of_whichever_partition(app, orders, service):
    with ThreadPoolExecutor(8) as pool:
        body = {"wait": 30}
        polls = [pool.submit(service.post, "/v1/queues/orders/leases", json=body, timeout=40) for _ in range(8)]
        eventually(lambda: app.store.run(_has_pollers()), timeout=10)
        sent = [orders.send("body", key=f"key-{number}") for number in range(8)]
        given = [poll.result().json() for poll in polls]
    assert sorted(one["id"] for lease in given for one in lease["messages"]) == sorted(sent)
    assert len({lease["lease"][21:] for lease in given}) > 1


def _has_pollers():
    clients = yield ops.command("CLIENT", "LIST")
    return b"name=reliq-poll" in (clients if isinstance(clients, bytes) else str(clients).encode())


def test_a_poll_follows_a_queue_that_gets_partitions_while_it_waits(app, service):
    queue = app.queue("orders")
    queue.configure(max_length=1000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.post, "/v1/queues/orders/leases", json={"wait": 30}, timeout=40)
        eventually(lambda: queue.stats().consumers == 1)
        queue.configure(partitions=4)
        far = next(key for key in map(str, range(100)) if _home(app, key) != "orders")
        queue.send("body", key=far)
        given = waiting.result().json()
    assert len(given["messages"]) == 1
    assert "@partition." in given["lease"]


def _home(app, key: str) -> str:
    """Return the partition of a key among four."""
    return NAMES[home_by_bucket(4)[bucket_of_key(key)]]


FORGED = ["@partition.9", "@partition.77zz", "@partition.1"]


@pytest.mark.parametrize("suffix", FORGED)
def test_a_lease_of_a_partition_that_is_not_there_is_unknown(orders, service, suffix):
    lease = f"/v1/queues/orders/leases/h{'0' * 20}{suffix}"
    answer = service.post(f"{lease}/settle", json={"ack": ["m"]})
    assert answer.json() == {"results": [{"id": "m", "code": "lost"}]}
    assert service.post(f"{lease}/extend", json={"lease": 60}).json()["code"] == "lease_lost"


def test_a_lease_id_reaches_no_other_queue(app, orders, service):
    app.queue("other").configure(partitions=2)
    app.queue("other").send_many(["body"] * 200)
    given = [service.post("/v1/queues/other/leases", json={}).json() for _ in range(20)]
    lease = next(one for one in given if "@" in one["lease"])
    wanted = {"ack": [lease["messages"][0]["id"]]}
    answer = service.post(f"/v1/queues/orders/leases/{lease['lease']}/settle", json=wanted)
    assert [one["code"] for one in answer.json()["results"]] == ["lost"]
    long = "q" * 120  # no name of a partition has room
    answer = service.post(f"/v1/queues/{long}/leases/{lease['lease']}/settle", json=wanted)
    assert [one["code"] for one in answer.json()["results"]] == ["lost"]


def test_clients_name_the_queue_and_no_partition(orders, service):
    for call in ("leases", f"leases/h{'0' * 20}/extend", "messages"):
        answer = service.post("/v1/queues/orders@partition.1/" + call, json={"body": 1})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_name")


def test_a_partition_that_fails_hides_no_other(app, orders, service, monkeypatch):
    orders.send_many(["body"] * 400)
    failing = "orders@partition.1"
    claim = ConsumerSteps.claim

    def refused(steps, limit):
        if steps.keys.queue == failing:
            raise RedisUnavailable("its slot is moving")
        return (yield from claim(steps, limit))

    monkeypatch.setattr(ConsumerSteps, "claim", refused)
    got = 0
    while messages := service.post("/v1/queues/orders/leases", json={"limit": 100}).json()["messages"]:
        got += len(messages)
    assert got == 300
    assert held_by_partition(app) == {name: 100 * (name != failing) for name in NAMES}


@pytest.mark.long
@pytest.mark.parametrize("wait", [0, 0.3], ids=["at once", "waiting"])
def test_a_partition_whose_answers_are_lost_hides_no_other(app, orders, redis_server, wait):
    orders.send_many(["body"] * 400)
    silent = NAMES[1]
    with LosingProxy(redis_server.port, scripts_of(silent)) as proxy, serving(proxy.url) as service:
        proxy.armed = True
        got: set[str] = set()
        while True:
            answer = service.post("/v1/queues/orders/leases", json={"limit": 100, "wait": wait})
            assert answer.status_code == 200
            if not (messages := answer.json()["messages"]):
                break
            got |= {message["id"] for message in messages}
        assert proxy.lost
    assert len(got) == 300
    assert {name: count for name, count in held_by_partition(app).items() if name != silent} == dict.fromkeys(
        [name for name in NAMES if name != silent], 100
    )


def test_partitions_that_cannot_be_read_are_left_out_and_one_of_them_is_tried_again(monkeypatch):
    names = ["orders", "orders@partition.1", "orders@partition.2"]
    there, *out = (QueueKeys(name) for name in names)
    failing, away = Failing(), RedisUnavailable("its node is away")

    def look(*answers):
        """Answer the requests in turn; return the counts."""
        steps, left = ready_counts([there, *out], failing), list(answers)
        request = next(steps)
        while True:
            answer = left.pop(0)
            try:
                request = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
            except StopIteration as stop:
                assert not left
                return stop.value
            assert request

    assert look(away, [{"orders": 5}, away, away]) == {"orders": 5}
    assert look([7]) == {"orders": 7}
    monkeypatch.setattr(failing, "_next_try", 0.0)
    assert sum(look([7], [{out[0].queue: 0}]).values()) == 7
    assert look([7, 1, 2]) == {"orders": 7, "orders@partition.1": 1, "orders@partition.2": 2}
    with pytest.raises(RedisUnavailable):
        look(away, [away, away, away])


def test_results_are_read_from_whichever_partition_has_them(app, orders, service):
    app.handler("orders", result="1h")(lambda message: {"n": int(message.body)})
    ids = [orders.send(str(number)) for number in range(8)]
    with working(app):
        for number, identity in enumerate(ids):
            answer = service.get(f"/v1/queues/orders/messages/{identity}/result", params={"wait": 20})
            assert answer.json() == {"result": {"n": number}, "encoding": "json"}
    assert service.get("/v1/queues/orders/messages/none/result").json()["code"] == "no_result"


def test_one_who_waits_for_a_result_learns_that_its_handler_failed(app, orders, service):
    identity = orders.send("body", key=next(key for key in map(str, range(100)) if _home(app, key) != "orders"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            service.get, f"/v1/queues/orders/messages/{identity}/result", params={"wait": 30}, timeout=40
        )
        with orders.consumer() as consumer:
            (message,) = consumer.claim(wait=5)
            consumer.dead(message, "broken")
        assert waiting.result().json()["code"] == "handler_failed"


@pytest.fixture
def change(app):
    """Change the number of partitions, and let a message be handled in the new home of its key."""

    def made(before: int, after: int) -> None:
        key = next(key for key in map(str, range(100)) if _place(key, before) != _place(key, after))
        app.handler("prices", result="1h")(lambda message: message.body.decode())
        app.queue("prices").configure(partitions=after)
        app.queue("prices").send("25", id="m", key=key)
        with working(app):
            eventually(lambda: app.queue("prices").stats().counters.get("acked"))

    return made


def _place(key: str, count: int) -> int:
    return home_by_bucket(count)[bucket_of_key(key)]


CHANGES = [(1, 2), (2, 4), (2, 1)]


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_one_who_waits_gets_a_result_from_a_partition_that_has_come_meanwhile(app, change, before, after):
    app.queue("prices").configure(partitions=before)
    steps = result_of(QueueHomes("prices", ProducerPool()), "m", 20)
    assert app.store.run(hooked(steps, 2, lambda: change(before, after))) == "25"


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_an_http_client_that_waits_gets_a_result_from_a_new_partition(app, change, service, monkeypatch, before, after):
    app.queue("prices").configure(partitions=before)
    waits = threading.Event()
    beginning(monkeypatch, AioStore, "run_apart", waits.set)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.get, "/v1/queues/prices/messages/m/result", params={"wait": 20}, timeout=40)
        assert waits.wait(10)
        change(before, after)
        assert waiting.result().json() == {"result": "25", "encoding": "json"}
