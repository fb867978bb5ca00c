"""The service for tests: in a thread of this process, or as a process of its own."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
from fastapi import FastAPI

from reliq_api.app import create_app
from reliq_api.server import server_for
from reliq_api.settings import Settings
from tests.support.ports import free_port
from tests.support.proxy import Proxy
from tests.support.workers import Child, eventually, process

JSON = {"content-type": "application/json"}


#: Applications that no service uses now. Making one, and its first request, take 0.2 s; its state is made anew with
#: every service.
_unused: deque[tuple[Settings, FastAPI]] = deque(maxlen=8)


class Service(httpx.Client):
    """A client for a service of this process."""

    app: FastAPI  #: for tests of what no answer tells


@contextlib.contextmanager
def application(settings: Settings) -> Iterator[FastAPI]:
    """An application of the service with these settings."""
    anywhere = replace(settings, port=0)
    found = next((one for one in _unused if one[0] == anywhere), None) or (anywhere, create_app(settings))
    if found in _unused:
        _unused.remove(found)
    yield found[1]
    _unused.append(found)


@contextlib.contextmanager
def serving(url: str, **settings: Any) -> Iterator[Service]:
    """The service on a free port, without keys unless the Redis has one; a client for it."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=2048))
        port = listener.getsockname()[1]
        asked = Settings(url=url, port=port, **{"no_auth": True, **settings})
        app = stack.enter_context(application(asked))
        server = server_for(app, asked)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        eventually(lambda: server.started or not thread.is_alive())
        try:
            with Service(base_url=f"http://127.0.0.1:{port}", timeout=30, verify=False) as client:
                # FastAPI builds its routes at the first request, which two services in one process must not do at once.
                client.get("/nothing")
                client.app = app
                yield client
        finally:
            server.should_exit = True
            thread.join(timeout=30)
            assert not thread.is_alive(), "the service did not stop"


@contextlib.contextmanager
def own_process(
    url: str, *arguments: str, no_auth: bool = True, fresh: bool = False, **environment: str
) -> Iterator[tuple[Child[bytes], httpx.Client]]:
    """`reliq api` as a process, and a client for it; without keys, unless the Redis has one."""
    arguments = ("--no-auth", *arguments) if no_auth else arguments
    port = free_port()
    arguments = ("api", "--url", url, "--port", str(port), "--quiet", *arguments)
    with (
        process(*arguments, folder=None, fresh=fresh, **environment) as child,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, verify=False) as client,
    ):
        eventually(lambda: answers(client))
        yield child, client


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").is_success
    except httpx.TransportError:
        return False


def terminated(child: "subprocess.Popen[bytes]", timeout: float = 60.0) -> int:
    child.send_signal(signal.SIGTERM)
    return child.wait(timeout=timeout)


def sever(proxy: Proxy) -> None:
    """Break every connection that goes through the proxy."""
    for pair in list(proxy._pairs):
        for one in pair:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an answer that is an error, after looking at its form."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    members = answer.json()
    assert members["status"] == answer.status_code
    assert members["type"] == f"urn:reliq:problem:{members['code']}"
    assert members["title"]
    assert members["detail"]
    assert not re.search(r"Traceback|File \"", answer.text)
    if answer.status_code in (429, 503):
        assert int(answer.headers["retry-after"]) >= 1
    return answer.status_code, members["code"]


def raw_exchange(client: httpx.Client, *parts: bytes, timeout: float = 30.0) -> tuple[int, dict[str, Any]]:
    """Send bytes that no HTTP library would, and read the answer."""
    port = client.base_url.port
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        with contextlib.suppress(ConnectionError):  # it may answer, and close, before it has read everything
            for part in parts:
                connection.sendall(part)
        received = b""
        while b"\r\n\r\n" not in received or not received.rstrip().endswith(b"}"):
            data = connection.recv(1 << 16)
            if not data:
                break
            received += data
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)
