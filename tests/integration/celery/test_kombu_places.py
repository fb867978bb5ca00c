"""kombu's transport on a cluster, and on a master that its sentinel knows."""

import kombu
import pytest

import reliq.contrib.kombu  # noqa: F401  registers the transport
from tests.integration.client.test_cluster import cluster_url, nodes  # noqa: F401
from tests.integration.client.test_sentinel import master, replica, sentinel_url  # noqa: F401


@pytest.mark.parametrize("place", ["cluster_url", "sentinel_url"])
def test_queues_and_exchanges(place: str, request: pytest.FixtureRequest) -> None:
    news = kombu.Exchange("news", type="fanout")
    queues = [kombu.Queue(f"queue-{number}", exchange=news) for number in range(6)]
    queues.append(kombu.Queue("passing", exchange=news, auto_delete=True))
    received = []

    def take(body: int, message: kombu.Message) -> None:
        received.append(body)
        message.ack()

    with kombu.Connection(f"reliq+{request.getfixturevalue(place)}") as connection:
        producer = kombu.Producer(connection)
        with kombu.Consumer(connection, queues, callbacks=[take], prefetch_count=4):
            for number in range(3):
                producer.publish(number, exchange=news)
                producer.publish(number, routing_key="queue-2")
            while len(received) < 3 * 8:
                connection.drain_events(timeout=10)
    assert sorted(received) == sorted([0, 1, 2] * 8)
