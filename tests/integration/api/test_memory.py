"""The memory of the service stays bounded, whatever strangers and scrapes do to it. RSS is the measure.

By command, with the figure printed:  pytest tests/integration/api/test_memory.py -s
"""

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.api.serving import own_process

MIB = 1024 * 1024
NDJSON = {"content-type": "application/x-ndjson"}
GROWTH_MOST = 60 * 1024 * 1024  #: bytes; what Python's allocator keeps after the first load is part of it


def rss(child):
    return psutil.Process(child.pid).memory_info().rss


def connections(port, count, data):
    """Clients that send this and then fall silent."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            with contextlib.suppress(OSError):
                one.sendall(data)


def test_strangers_and_scrapes_do_not_fill_the_memory(url, app):
    post = b"POST /v1/queues/a/messages HTTP/1.1\r\nhost: localhost\r\n"
    with own_process(url, fresh=True) as (child, service):
        service.get("/metrics")
        before = rss(child)
        for number in range(300):
            service.get(f"/v1/queues/made-up-{number}", headers={"authorization": f"Bearer made{number}.up"})
            service.post(f"/v1/queues/made-up-{number}/leases", json={})
            service.post(f"/v1/queues/made-up-{number}/leases/h0123456789abcdef0123/settle", json={"ack": ["x"]})
            service.request(f"M{number}", f"/metrics/{number}")
        connections(service.base_url.port, 200, post + b"x-a: " + b"a" * 50_000)
        connections(service.base_url.port, 100, post + b"content-length: 2000000\r\n\r\n" + b"x" * 100_000)
        connections(service.base_url.port, 50, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2000)
        grown = rss(child) - before
        text = service.get("/metrics").text
    print(f"RSS {before >> 20} MiB, grown by {grown >> 20} MiB")
    assert grown < GROWTH_MOST
    assert "made-up" not in text
    assert 'method="M' not in text
    assert app.queues() == []


def largest_rss_during(child, call):
    """How far the memory of a process grew above what it had before, at its peak."""
    before = rss(child)
    Path(f"/proc/{child.pid}/clear_refs").write_text("5")  # the peak counts from here on
    answer = call()
    lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return answer, peak - before


@pytest.mark.parametrize("form", ["raw", "text", "lines"])
def test_a_large_body_is_in_memory_twice_as_it_came_and_as_the_element(url, form):
    size, path = 16 * MIB, "/v1/queues/q/messages"
    message = b'{"body": "' + b"x" * size + b'"}'
    calls: dict[str, dict[str, Any]] = {
        "raw": {"url": path, "content": os.urandom(MIB) * 16},
        "text": {"url": path, "content": message, "headers": {"content-type": "application/json"}},
        "lines": {"url": f"{path}/batch", "content": message + b'\n{"body": 1}', "headers": NDJSON},
    }
    with own_process(url, "--max-body", "64MiB", fresh=True) as (child, service):
        service.post(path, content=b"x")
        for _ in range(3):
            answer, grown = largest_rss_during(child, lambda: service.post(timeout=60, **calls[form]))
            print(f"{form}: grown by {grown / size:.2f} bodies, kept {(rss(child)) >> 20} MiB")
            assert answer.is_success
            assert grown < 2.3 * size
