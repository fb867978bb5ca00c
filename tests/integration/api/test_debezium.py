"""Changes of a database, as the HTTP sink of Debezium Server sends them with `debezium.format.value=cloudevents`.

Debezium Server itself does not run here: the events have the form of its documentation, and the requests the headers of
its client, that of Java, which offers HTTP/2.
"""

import base64
import http.client
import json
from urllib.parse import urlsplit

import pytest

HEADERS = {
    "Connection": "Upgrade, HTTP2-Settings",
    "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    "Upgrade": "h2c",
    "User-Agent": "Java-http-client/21.0.4",
    "content-type": "application/cloudevents+json",
    "X-DEBEZIUM-SOURCE": base64.b64encode(b"shop").decode(),
}


def change(lsn: int, op: str, before: dict | None, after: dict | None) -> str:
    known = {
        "version": "3.0.0.Final", "connector": "postgresql", "name": "shop", "tsms": "1578923739738", "db": "postgres",
        "snapshot": "false", "schema": "s1", "table": "orders", "lsn": str(lsn), "xmin": None, "txid": "565", "op": op,
    }  # fmt: skip
    return json.dumps(
        {
            "id": f"name:shop;lsn:{lsn};txId:565", "source": "/debezium/postgresql/shop", "specversion": "1.0",
            "type": "io.debezium.connector.postgresql.DataChangeEvent", "time": "2020-01-13T13:55:39.738Z",
            "datacontenttype": "application/json", **{f"iodebezium{name}": value for name, value in known.items()},
            "data": {"before": before, "after": after},
        }
    )  # fmt: skip


CHANGES = [
    change(1, "c", None, {"pk": 1, "state": "new"}),
    change(2, "u", {"pk": 1, "state": "new"}, {"pk": 1, "state": "paid"}),
    change(3, "d", {"pk": 1, "state": "paid"}, None),
]


@pytest.fixture
def sink(service, name):
    """Sends events to the queue one by one, on one connection; each has to be answered with a success."""
    address = urlsplit(str(service.base_url))
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)

    def send(*events: str) -> list[bool]:
        answers = []
        for event in events:
            connection.request("POST", f"/v1/queues/{name}/messages", event.encode(), HEADERS)
            with connection.getresponse() as answer:
                body = json.loads(answer.read())
                assert 200 <= answer.status < 300, body
            answers.append(body["deduplicated"])
        return answers

    yield send
    connection.close()


def test_changes_become_messages_in_their_order(sink, orders):
    assert sink(*CHANGES) == [False, False, False]
    with orders.consumer() as consumer:
        messages = consumer.claim(10)
        consumer.ack(*messages)
    assert [message.headers["ce-iodebeziumop"] for message in messages] == ["c", "u", "d"]
    assert [message.json()["after"] for message in messages] == [
        {"pk": 1, "state": "new"},
        {"pk": 1, "state": "paid"},
        None,
    ]
    assert {message.headers["ce-iodebeziumtable"] for message in messages} == {"orders"}


def test_what_debezium_sends_again_after_a_restart_is_enqueued_once(sink, orders):
    sink(*CHANGES[:2])
    assert sink(*CHANGES) == [True, True, False]
    assert orders.stats().ready == 3
