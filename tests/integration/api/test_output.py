"""Output over HTTP: emitted by a lease, read as JSON and as Server-Sent Events."""

import json
import threading

import httpx
import pytest

import reliq
from reliq.features.output.waiting import Streams
from reliq.model.keys import QueueKeys
from reliq_api.access import keyring
from tests.integration.api.serving import problem, serving
from tests.integration.api.test_leases import leased
from tests.support.workers import eventually

SSE = {"accept": "text/event-stream"}


def address(queue: reliq.Queue, identity: str) -> str:
    return f"/v1/queues/{queue.name}/messages/{identity}/output"


class Stream:
    """A client of a stream, which reads in a thread."""

    def __init__(self, service: httpx.Client, path: str, **headers: str) -> None:
        self.events: list[dict[str, str]] = []
        self._path, self._headers = path, {**SSE, **headers}
        self._address = service.base_url
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        with (
            httpx.Client(base_url=self._address, timeout=30) as client,
            client.stream("GET", self._path, headers=self._headers) as response,
        ):
            assert response.headers["content-type"].startswith("text/event-stream")
            event: dict[str, str] = {}
            for line in response.iter_lines():
                if not line and event:
                    self.events.append(event)
                    event = {}
                name, _, value = line.partition(": ")
                if name:
                    event[name] = value

    @property
    def values(self) -> list[object]:
        return [json.loads(one["data"]).get("value") for one in list(self.events) if "id" in one]


def test_a_lease_emits_and_a_client_follows_and_goes_on_behind_a_chunk(service, post, orders):
    one = orders.send("x")
    lease, _ = leased(post)
    stream = Stream(service, address(orders, one))
    assert post(f"leases/{lease}/emit", {"id": one, "chunk": "a"}).json() == {"id": one}
    eventually(lambda: stream.values == ["a"])
    for _ in range(2):  # as after a lost answer
        assert post(f"leases/{lease}/emit", {"id": one, "chunk": {"b": 1}, "token": "t"}).status_code == 200
    eventually(lambda: stream.values == ["a", {"b": 1}])
    post(f"leases/{lease}/settle", {"ack": [one]})
    stream.thread.join(30)
    assert [one.get("event") for one in stream.events] == [None, None, "end"]
    again = Stream(service, address(orders, one), **{"last-event-id": stream.events[0]["id"]})
    again.thread.join(30)
    assert again.events == stream.events[1:]
    late = post(f"leases/{lease}/emit", {"id": one, "chunk": "late"})
    assert problem(late) == (409, "lease_lost")


def test_output_is_read_by_pages(service, orders):
    one = orders.send("x")
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        for number in range(101):
            message.emit(number)
        message.emit(b"\xff")
        first = service.get(address(orders, one)).json()
        rest = service.get(address(orders, one), params={"after": first["chunks"][-1]["id"]}).json()
        assert ([chunk["value"] for chunk in first["chunks"]], first["more"]) == ([*range(100)], True)
        assert [(chunk["value"], chunk["encoding"]) for chunk in rest["chunks"]] == [(100, "json"), ("/w==", "base64")]
        assert rest["more"]
        consumer.ack(message)
    rest = service.get(address(orders, one), params={"after": first["chunks"][-1]["id"]}).json()
    assert not rest["more"]


def test_a_message_without_output_has_an_empty_page_and_what_is_no_chunk_is_refused(service, orders):
    one = orders.send("x")
    assert service.get(address(orders, one)).json() == {"chunks": [], "more": False}
    for wrong in ({"params": {"after": "x"}}, {"headers": {"last-event-id": "x"}}):
        assert problem(service.get(address(orders, one), **wrong)) == (422, "invalid_request")
    assert problem(service.get("/v1/queues/nothing/messages/x/output", headers=SSE)) == (404, "queue_not_found")


def test_a_service_limits_its_streams_and_ends_them_when_it_stops(app, client, url, monkeypatch):
    monkeypatch.setattr("reliq.features.output.waiting.MOST_STREAMS", 1)
    queue = app.queue("streams")
    one = queue.send("x")
    with queue.consumer() as consumer, serving(url) as service:
        (message,) = consumer.claim()
        message.emit("a")
        stream = Stream(service, address(queue, one))
        eventually(lambda: stream.values == ["a"])
        assert problem(service.get(address(queue, one), headers=SSE)) == (503, "overloaded")
        assert service.app.state.listeners[Streams]._open == 1
    stream.thread.join(30)
    assert [one.get("event") for one in stream.events] == [None]  # it may go on, with another process


def test_a_stream_ends_soon_after_its_key_is_revoked_though_chunks_come(app, client, url):
    queue = app.queue("streams")
    one = queue.send("x")
    key = app.store.run(keyring.create("test", ("operate",), ("*",), None, 0.0))
    with queue.consumer() as consumer, serving(url) as service:
        (message,) = consumer.claim()
        message.emit(0)
        stream = Stream(service, address(queue, one), authorization=f"Bearer {key}")
        eventually(lambda: stream.values == [0])
        app.store.run(keyring.revoke(key.partition(".")[0]))
        for number in range(1, 200):
            message.emit(number)
            stream.thread.join(0.1)
            if not stream.thread.is_alive():
                break
    assert not stream.thread.is_alive()
    assert stream.events[-1].get("event") is None


@pytest.mark.parametrize("text", ["<b>bold</b>", "plain"])
def test_the_page_of_the_output_shows_each_run(service, client, orders, text):
    one = orders.send("x")
    page = f"/queues/{orders.name}/output"
    assert "no output" in service.get(page, params={"id": one}).text
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        message.emit(text)
        message.emit([1, 2])
        assert f"{page}?id={one}" in service.get(f"/queues/{orders.name}/message", params={"id": one}).text
        consumer.release(message)
        (message,) = consumer.claim()
        message.emit("again")
        shown = service.get(page, params={"id": one}).text
        consumer.ack(message)
    assert "Run 1" in shown
    assert "Run 2" in shown
    assert text.replace("<", "&lt;").replace(">", "&gt;") + "[1, 2]" in shown
    assert client.exists(QueueKeys(orders.name).output(one))
