"""Results over HTTP: given at once, or awaited without polling."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

import reliq
from reliq.model.keys import QueueKeys
from tests.integration.api.serving import own_process, problem, serving, terminated
from tests.support.workers import eventually, working


@pytest.fixture
def result(service, name):
    """Ask for the result of a message."""

    def ask(identity, **query):
        return service.get(f"/v1/queues/{name}/messages/{identity}/result", params=query)

    return ask


def doubling(app, name, **options):
    app.handler(name, result="1h", **options)(lambda message: {"double": 2 * message.json()})


def asking(service, name):
    """How many requests wait for results of the queue."""
    read, _ = service.app.state.reliq.store._shared_reads.get(QueueKeys(name).answers, (None, None))
    return sum(map(len, read._waiting.values())) if read else 0


def awaited(client, name):
    """Whether a request has looked for a result of the queue, and waits for it now."""
    return client.exists(QueueKeys(name).awaited)


def connections(client):
    """The connections on which results are awaited."""
    return [one["id"] for one in client.client_list() if one["cmd"] == "xread" and "b" in one["flags"]]


def test_any_number_of_requests_await_results_by_one_connection(service, app, name, orders, result, client):
    doubling(app, name)
    ids = orders.send_many(range(40))
    with ThreadPoolExecutor(41) as pool:
        answers = [pool.submit(result, one, wait=60) for one in [*ids, ids[0]]]
        eventually(lambda: asking(service, name) == 41 and len(connections(client)) == 1)
        with working(app):
            numbers = [answer.result().json()["result"]["double"] for answer in answers]
    assert numbers == [*range(0, 80, 2), 0]
    again = result(ids[3])
    assert (again.status_code, again.json()) == (200, {"result": {"double": 6}, "encoding": "json"})
    eventually(lambda: not connections(client))


def test_the_connection_of_those_who_wait_lasts_as_long_as_they_do(service, app, name, orders, result, client):
    doubling(app, name)
    one = orders.send(1)
    client.config_resetstat()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(result, one, wait=60)
        first = eventually(lambda: connections(client))
        eventually(lambda: client.info("commandstats").get("cmdstat_xread", {"calls": 0})["calls"] >= 3)
        assert eventually(lambda: connections(client)) == first
        with working(app):
            assert answer.result().json()["result"] == {"double": 2}


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (b"\x00\xff", {"result": "AP8=", "encoding": "base64"}),
        (b"[1]", {"result": "WzFd", "encoding": "base64"}),
        ("text", {"result": "text", "encoding": "json"}),
        (None, {"result": None, "encoding": "json"}),
        (2**60 + 1, {"result": 2**60 + 1, "encoding": "json"}),
    ],
)
def test_a_result_is_json_or_base64(app, name, orders, result, value, answer):
    app.handler(name, result="1h")(lambda message: value)
    one = orders.send("x")
    with working(app):
        assert result(one, wait=30).json() == answer


def test_without_a_result_the_answer_is_404_after_the_wait(result, orders):
    one = orders.send("x")
    assert problem(result(one)) == (404, "no_result")
    assert problem(result(one, wait=0.2)) == (404, "no_result")
    assert problem(result("unknown")) == (404, "no_result")
    for wait in ("61", "-1", "nan", "x"):
        assert problem(result(one, wait=wait)) == (422, "invalid_request")
    assert problem(result("a b")) == (400, "invalid_name")


def test_a_queue_that_does_not_exist_has_no_results(service, name):
    assert problem(service.get(f"/v1/queues/{name}/messages/x/result?wait=5")) == (404, "queue_not_found")


def test_a_dead_letter_answers_its_error_at_once(app, name, orders, result, client):
    def fail(message):
        raise reliq.Dead("no such item")

    app.handler(name, result="1h")(fail)
    one = orders.send("x")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(result, one, wait=60)
        eventually(lambda: awaited(client, name))
        with working(app):
            answer = asked.result()
    assert problem(answer) == (409, "handler_failed")
    assert (answer.json()["reason"], answer.json()["error"]) == ("rejected", "no such item")
    assert problem(result(one)) == (409, "handler_failed")


def test_a_skipped_duplicate_is_answered_at_once(app, name, orders, result):
    doubling(app, name, once="order")
    first, second = (orders.send(number, headers={"order": "1"}) for number in (1, 2))
    with working(app):
        assert result(first, wait=60).json()["result"] == {"double": 2}
        answer = result(second, wait=60)
    assert problem(answer) == (404, "no_result")
    assert "skipped as a duplicate" in answer.text


def test_a_cancelled_message_is_answered_at_once(app, name, orders, result, client):
    doubling(app, name)
    one = orders.send(1)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(result, one, wait=60)
        eventually(lambda: awaited(client, name))
        with orders.consumer() as consumer:
            (message,) = consumer.claim()
            client.hset(QueueKeys(name).results, one, "c")
            client.xadd(QueueKeys(name).answers, {"ids": one})
            assert "was cancelled" in asked.result().json()["detail"]
            consumer.ack(message)


def test_many_who_wait_leave_the_pooled_connections_to_others(app, url, name, orders):
    one = orders.send(1)
    with serving(url, connections=1) as service, ThreadPoolExecutor(20) as pool:
        path = f"/v1/queues/{name}/messages/{one}/result?wait=60"
        asked = [pool.submit(service.get, path) for _ in range(20)]
        eventually(lambda: asking(service, name) == 20)
        assert service.get(f"/v1/queues/{name}", timeout=10).is_success
        assert not any(answer.done() for answer in asked)
        doubling(app, name)
        with working(app):
            assert {answer.result().json()["result"]["double"] for answer in asked} == {2}


def test_one_who_goes_away_no_longer_waits(service, name, orders):
    path = f"/v1/queues/{name}/messages/{orders.send(1)}/result?wait=60"
    with socket.create_connection(("127.0.0.1", service.base_url.port)) as one:
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        eventually(lambda: asking(service, name) == 1)
    eventually(lambda: asking(service, name) == 0)


def test_a_stop_answers_those_who_wait(url, name, orders, client):
    one = orders.send(1)
    with own_process(url) as (child, service), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(service.get, f"/v1/queues/{name}/messages/{one}/result?wait=60")
        eventually(lambda: awaited(client, name))
        assert terminated(child) == 0
        assert problem(asked.result()) == (404, "no_result")


def test_a_result_that_came_between_two_connections_is_not_missed(app, name, orders, result, client):
    """The connection that waits is lost, and a result comes meanwhile."""
    doubling(app, name)
    one = orders.send(4)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(result, one, wait=60)
        eventually(lambda: awaited(client, name))
        for connection in connections(client):
            client.client_kill_filter(_id=connection)
        with working(app):
            assert asked.result().json()["result"] == {"double": 8}


def test_a_dead_letter_that_was_removed_is_no_result(app, name, orders, client):
    orders.send("x", id="1")
    client.hset(QueueKeys(name).results, "1", "d")
    with pytest.raises(reliq.NoResult, match="has no result"):
        orders.result("1", wait=0.1)
