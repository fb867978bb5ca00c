"""kombu's transport on a cluster, on a master that its sentinel knows, and over TLS."""

import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import kombu
import pytest

import reliq.contrib.kombu  # noqa: F401  registers the transport
from reliq.errors import RedisUnavailable
from tests.integration.celery.workers import APP, environment, working
from tests.integration.client.test_cluster import cluster_url, nodes  # noqa: F401
from tests.integration.client.test_sentinel import master, replica, sentinel_url  # noqa: F401
from tests.integration.security.test_tls import folder, port  # noqa: F401
from tests.integration.security.test_tls import url as tls_url
from tests.support.workers import eventually

pytestmark = pytest.mark.celery


def exchange_messages(broker: str, **options: Any) -> None:
    """Declare queues, send through an exchange and to a queue, and receive all of it, under a guard."""
    news = kombu.Exchange("news", type="fanout")
    queues = [kombu.Queue(f"queue-{number}", exchange=news) for number in range(6)]
    queues.append(kombu.Queue("passing", exchange=news, auto_delete=True))
    received = []

    def take(body: int, message: kombu.Message) -> None:
        received.append(body)
        message.ack()

    with kombu.Connection(broker, transport_options={"guard": True}, **options) as connection:
        producer = kombu.Producer(connection)
        with kombu.Consumer(connection, queues, callbacks=[take], prefetch_count=4):
            for number in range(3):
                producer.publish(number, exchange=news)
                producer.publish(number, routing_key="queue-2")
            while len(received) < 3 * 8:
                connection.drain_events(timeout=10)
    assert sorted(received) == sorted([0, 1, 2] * 8)


@pytest.mark.parametrize("place", ["cluster_url", "sentinel_url"])
def test_queues_and_exchanges(place: str, request: pytest.FixtureRequest) -> None:
    exchange_messages(f"reliq+{request.getfixturevalue(place)}")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cluster_url", "sentinel_url"])
def test_a_killed_worker_of_celery(place: str, url: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Its guard finds the node, or the master, and returns the task to another worker."""
    broker, path = f"reliq+{request.getfixturevalue(place)}", tmp_path / "notes"
    more = {"TEST_BACKEND": url, "TEST_OPTIONS": '{"lease": 60, "reconnect_grace": 60}'}
    code = f"from {APP} import note; note.delay({str(path)!r}, 'task', 3.0)"
    with working(broker, "-c", "1", **more) as one:
        subprocess.run([sys.executable, "-c", code], env=environment(broker, **more), check=True)
        eventually(lambda: path.exists() and path.read_text())
        one.process.kill()
    with working(broker, "-c", "1", name="two", **more):
        eventually(lambda: path.read_text().count("end") == 1, timeout=40)
    assert path.read_text().splitlines() == ["begin task", "begin task", "end task"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
class TestTLS:
    """A server that asks for client certificates."""

    @pytest.fixture
    def options(self, folder: Path) -> dict[str, Any]:  # noqa: F811
        return {
            "ssl_ca_certs": f"{folder}/ca.pem", "ssl_certfile": f"{folder}/client.pem",
            "ssl_keyfile": f"{folder}/client.key", "ssl_cert_reqs": ssl.CERT_REQUIRED,
        }  # fmt: skip

    def test_options_in_the_url(self, folder: Path, port: int) -> None:  # noqa: F811
        exchange_messages(f"reliq+{tls_url(folder, port)}")

    @pytest.mark.parametrize("scheme", ["redis", "rediss"])
    def test_options_of_celery(self, port: int, options: dict[str, Any], scheme: str) -> None:  # noqa: F811
        exchange_messages(f"reliq+{scheme}://worker:p%2Fw%401@localhost:{port}/0", ssl=options)

    def test_without_a_certificate_there_is_no_connection(self, port: int, options: dict[str, Any]) -> None:  # noqa: F811
        del options["ssl_certfile"], options["ssl_keyfile"]
        connection = kombu.Connection(f"reliq+rediss://worker:p%2Fw%401@localhost:{port}/0", ssl=options)
        with pytest.raises(RedisUnavailable) as caught:
            connection.connect()
        assert "p/w@1" not in str(caught.value)
