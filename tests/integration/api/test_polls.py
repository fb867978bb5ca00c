"""Long polls: cheap while they wait, nothing lost when they end in whatever way."""

import asyncio
import contextlib
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.ops import announce, command
from tests.integration.api.serving import own_process, problem, serving, sever, terminated
from tests.support.proxy import Proxy
from tests.support.turns import Monitor
from tests.support.workers import eventually


@pytest.fixture(autouse=True)
def _existing(app, name):
    """The queue was there before: a poll creates none."""
    app.store.call(announce(name))


@pytest.fixture
def stranger(name):
    """The name of a queue that there is not."""
    return f"{name}-made-up"


def test_a_poll_of_a_queue_that_is_not_there_creates_nothing(service, app, stranger, url):
    keys = app.store.call(command("KEYS", "*"))
    for wanted in ({}, {"wait": 0.3}):
        assert service.post(f"/v1/queues/{stranger}/leases", json=wanted).json()["messages"] == []
    service.get(f"/v1/queues/{stranger}")
    service.get(f"/queues/{stranger}")
    service.get("/metrics", params={"queue": stranger, "name[]": stranger})
    assert sorted(app.store.call(command("KEYS", "*"))) == sorted(keys)
    assert stranger not in service.get("/metrics").text


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("verb", ["ack", "release"])
def test_what_a_waiting_poll_gets_is_counted_as_claimed_once(service, app, name, verb, partitions):
    queue = app.queue(name)
    if partitions > 1:
        queue.configure(partitions=partitions)
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(service.post, f"/v1/queues/{name}/leases", json={"wait": 20})
        eventually(lambda: partitions > 1 or queue.stats().consumers)
        queue.send("m")
        lease = poll.result().json()
    assert queue.stats().counters == {"enqueued": 1, "claimed": 1}
    given = [lease["messages"][0]["id"]]
    service.post(f"/v1/queues/{name}/leases/{lease['lease']}/settle", json={verb: given})
    done = {"ack": "acked", "release": "released"}[verb]
    assert queue.stats().counters == {"enqueued": 1, "claimed": 1, done: 1}


@pytest.mark.parametrize("way", ["send", "LPUSH"])
def test_a_poll_that_came_before_its_queue_gets_the_first_message(service, app, stranger, way):
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(service.post, f"/v1/queues/{stranger}/leases", json={"wait": 20})
        eventually(lambda: not poll.done())
        if way == "send":
            app.queue(stranger).send("first")
        else:
            element = NewMessage("first").element(1)
            app.store.call(command("LPUSH", QueueKeys(stranger).messages, element))
        assert [message["body"] for message in poll.result().json()["messages"]] == ["first"]
    assert app.queue(stranger).stats().processing == 1
    assert stranger in app.queues()


def test_a_poll_is_answered_when_a_message_comes(post, orders):
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, "leases", {"wait": 20})
        eventually(lambda: orders.stats().consumers == 1)
        started = time.monotonic()
        identity = orders.send("x")
        answer = waiting.result()
    assert time.monotonic() - started < 10
    assert [message["id"] for message in answer.json()["messages"]] == [identity]


def test_a_poll_ends_empty_when_its_time_is_over(post, orders):
    started = time.monotonic()
    assert post("leases", {"wait": 0.3}).json()["messages"] == []
    assert 0.3 <= time.monotonic() - started < 20
    eventually(lambda: orders.stats().consumers == 0)


def test_a_delayed_start_of_a_queue_is_no_error(service, name):
    assert service.post(f"/v1/queues/{name}/leases", json={"wait": 0.05}).json()["messages"] == []


def test_a_paused_queue_gives_nothing_until_it_goes_on(post, orders):
    orders.pause()
    orders.send("x")
    assert post("leases", {"wait": 0.2}).json()["messages"] == []
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, "leases", {"wait": 20})
        eventually(lambda: orders.stats().consumers == 1)
        orders.resume()
        assert len(waiting.result().json()["messages"]) == 1


def test_every_message_goes_to_one_of_many_polls(url, app, orders):
    async def scene(address):
        given = []
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:

            async def poll():
                answer = await client.post(f"/v1/queues/{orders.name}/leases", json={"wait": 30, "limit": 2})
                given.append(answer.json())

            polls = [asyncio.create_task(poll()) for _ in range(60)]
            await asyncio.to_thread(eventually, lambda: orders.stats().consumers == 1)
            await asyncio.to_thread(orders.send_many, range(50))
            await asyncio.to_thread(eventually, lambda: sum(len(one["messages"]) for one in given) == 50)
            for task in polls:
                task.cancel()
            return given

    with serving(url) as service:
        given = asyncio.run(scene(str(service.base_url)))
    ids = [message["id"] for answer in given for message in answer["messages"]]
    assert len(ids) == len(set(ids)) == 50
    assert len({answer["lease"] for answer in given}) == len(given)
    assert all(1 <= len(answer["messages"]) <= 2 for answer in given)


@pytest.fixture
def many_files():
    """Room for a thousand sockets: the usual soft limit is 1,024 of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_waiting_polls_hold_one_connection_to_redis_and_acks_stay_quick(url, app, orders, many_files):
    polls, acks = 1000, 100
    app.queue("done").send_many(range(acks))
    redis_port = int(url.rpartition(":")[2].partition("/")[0])
    with own_process(url, fresh=True) as (child, service), contextlib.ExitStack() as waiting:  # it inherits the limit
        server = psutil.Process(child.pid)
        for _ in range(polls):
            waiting.enter_context(open_poll(service, orders.name))
        eventually(lambda: open_connections(server, service.base_url.port) >= polls)
        given = service.post("/v1/queues/done/leases", json={"limit": acks}).json()
        took = []
        for message in given["messages"]:
            started = time.monotonic()
            service.post(f"/v1/queues/done/leases/{given['lease']}/settle", json={"ack": [message["id"]]})
            took.append(time.monotonic() - started)
        assert orders.stats().consumers == 1
        assert open_connections(server, redis_port) <= 64 + 2  # Settings.connections, and one that blocks
    assert app.queue("done").stats().counters["acked"] == acks
    assert sorted(took)[acks // 2] < 0.5  # the machine is shared: the figure itself is for bench/http_service.py


def open_connections(process, port):
    return sum(
        one.status == psutil.CONN_ESTABLISHED and port in (one.laddr.port, one.raddr.port)
        for one in process.net_connections()
    )


def test_a_client_that_goes_away_in_a_poll_loses_nothing(service, orders):
    gone = open_poll(service, orders.name)
    eventually(lambda: orders.stats().consumers == 1)
    gone.close()
    eventually(lambda: orders.stats().consumers == 0)  # what is sent before is claimed for it, and comes back later
    identity = orders.send("x")
    answer = service.post(f"/v1/queues/{orders.name}/leases", json={"wait": 10}).json()
    assert [message["id"] for message in answer["messages"]] == [identity]
    assert answer["messages"][0]["deliveries"] == 0
    assert orders.stats().processing == 1


def test_clients_that_go_away_just_when_messages_come_lose_none(service, app, orders):
    gone = [open_poll(service, orders.name) for _ in range(20)]
    eventually(lambda: orders.stats().consumers == 1)
    for connection in gone:
        orders.send("x")
        connection.close()
    monitor = Monitor(app.store)  # for answers that were under way: their leases end after a second
    eventually(lambda: monitor.scan() and orders.stats().ready == 20 and orders.stats().consumers == 0)


def open_poll(service, name):
    connection = socket.create_connection(("127.0.0.1", service.base_url.port))
    body = b'{"wait": 30, "limit": 5, "lease": 1}'
    connection.sendall(
        f"POST /v1/queues/{name}/leases HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return connection


def test_sigterm_answers_the_running_polls(url, orders):
    with own_process(url) as (child, service), contextlib.ExitStack() as stack:
        polls = [stack.enter_context(open_poll(service, orders.name)) for _ in range(4)]
        eventually(lambda: orders.stats().consumers == 1)
        httpx.get(f"{service.base_url}/healthz")  # whoever came before has been read
        started = time.monotonic()
        assert terminated(child) == 0
        assert time.monotonic() - started < 20
        for connection in polls:
            answer = connection.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert b'"messages":[]' in answer
    assert orders.stats().consumers == 0


def test_a_poll_outlasts_a_break_of_redis(redis_server, url, app, orders):
    with Proxy(redis_server.port) as proxy, serving(proxy.url) as service, ThreadPoolExecutor() as pool:
        waiting = pool.submit(service.post, f"/v1/queues/{orders.name}/leases", json={"wait": 20})
        eventually(lambda: orders.stats().consumers == 1)
        sever(proxy)
        identity = orders.send("x")
        assert [message["id"] for message in waiting.result().json()["messages"]] == [identity]


def test_a_poll_that_cannot_reach_redis_any_more_says_so(name):
    with EmbeddedRedis() as server, serving(server.url, send_timeout=0.3) as service, ThreadPoolExecutor() as pool:
        with contextlib.closing(reliq.Reliq(server.url)) as app:
            app.store.call(announce(name))
            waiting = pool.submit(service.post, f"/v1/queues/{name}/leases", json={"wait": 2})
            eventually(lambda: app.queue(name).stats().consumers == 1)
        server.stop()
        assert problem(waiting.result())[0] in (503, 504)


@pytest.mark.parametrize(
    "wanted",
    [
        {"limit": 0}, {"limit": 1001}, {"limit": "5"}, {"limit": 1.5}, {"limit": True}, {"wait": -1}, {"wait": 31},
        {"lease": 0.5}, {"lease": 50_000}, {"lease": "15 parsecs"}, {"lease": "500ms"}, {"lease": True},
        {"lease": 10**400}, {"wait": "31s"}, {"wait": ""},
        {"lease": [15]}, {"lease": "9" * 41}, {"encoding": "hex"}, {"max": 5}, [], "x", None, 5,
    ],
)  # fmt: skip
def test_what_cannot_be_leased(service, orders, wanted):
    orders.send("x")
    answer = service.post(f"/v1/queues/{orders.name}/leases", json=wanted)
    assert problem(answer) == (422, "invalid_request")
    assert orders.stats().ready == 1
