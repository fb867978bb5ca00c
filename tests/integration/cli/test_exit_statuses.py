"""Exit statuses of the services, as real processes: 130 after Ctrl-C, 0 after SIGTERM, and not 0 on a used port."""

import json
import signal
import socket
from contextlib import closing

import pytest

from tests.support.workers import eventually, process

HANDLER = """
import reliq
app = reliq.Reliq()

@app.handler("q")
def work(message): ...
"""
SERVICES = [
    (("worker", "shop"), b"started worker="),
    (("worker", "shop", "--processes", "2"), b"started worker="),
    (("worker", "shop", "--reload"), b"started worker="),
    (("monitor",), b"monitor started"),
    (("api", "--port", "0"), b"Application startup complete"),
]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize(("command", "started"), SERVICES, ids=[" ".join(one) for one, _ in SERVICES])
def test_a_service_that_is_stopped(app, tmp_path, command, started, number, status):
    (tmp_path / "shop.py").write_text(HANDLER)
    with process(*command, folder=tmp_path, RELIQ_URL=app.url) as child:
        eventually(lambda: started in child.stderr.readline())
        child.send_signal(number)
        assert child.wait(60) == status
        assert b"Traceback" not in child.stderr.read()


def test_the_log_of_a_worker_begins_with_who_it_is(app, tmp_path):
    (tmp_path / "shop.py").write_text(HANDLER)
    with process("worker", "shop", "--log-json", folder=tmp_path, RELIQ_URL=app.url) as child:
        line = eventually(lambda: next((line for line in [child.stderr.readline()] if b"started worker=" in line), b""))
        said = json.loads(line)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    assert (said["pid"], said["host"]) == (child.pid, socket.gethostname())
    assert said["title"] == "reliq worker shop"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_service_on_a_used_port_says_so_and_does_not_say_that_it_serves(url, host):
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = str(other.getsockname()[1])
        with process("api", "--url", url, "--host", host, "--port", port) as child:
            assert child.wait(60) == 2
            printed = child.stderr.read().decode()
    says = (
        f"reliq: HTTP cannot be served on {host}, port {port}: Address already in use; choose another --host or --port"
    )
    assert printed.splitlines()[-1] == says
    assert "serving" not in printed


def test_a_service_on_a_free_port_says_which(url):
    with process("api", "--url", url, "--port", "0") as child:
        printed: list[bytes] = []
        while not printed or (printed[-1] and b"serving http://127.0.0.1:" not in printed[-1]):
            printed.append(child.stderr.readline())
    assert printed[-1], f"it ended: {printed}"
    assert int(printed[-1].rpartition(b":")[2]) > 0
