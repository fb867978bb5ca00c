"""Connections to Redis are reset while clients enqueue and poll: whatever that raises, every request is answered."""

import contextlib
import random
import socket
import struct
import threading
import time

import httpx

from tests.integration.api.serving import own_process
from tests.support.proxy import Proxy

_RESET = struct.pack("ii", 1, 0)


def reset(proxy):
    """Break one connection of the service in the hard way: with a RST, as a firewall or a dying host does."""
    pairs = list(proxy._pairs[-64:])
    if pairs:
        client, server = random.choice(pairs)
        with contextlib.suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        for one in (client, server):
            with contextlib.suppress(OSError):
                one.close()


class Clients:
    """Threads that enqueue into a few queues, and others that take from them, until they are told to end."""

    def __init__(self, address, queues):
        self.statuses: dict[int, int] = {}
        self.enqueued: list[tuple[str, str]] = []
        self.silent: list[str] = []
        self._address, self._queues = address, queues
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(16)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive(), "a request got no answer"

    def _run(self, number):
        queue = self._queues[number % len(self._queues)]
        with httpx.Client(base_url=self._address, timeout=20) as client:
            while not self._over.is_set():
                try:
                    self._note(queue, client.post(f"/v1/queues/{queue}/messages", json={"body": number}))
                except httpx.TimeoutException:
                    self.silent.append(queue)
                    return

    def _note(self, queue, answer):
        self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
        if answer.status_code == 201:
            self.enqueued.append((queue, answer.json()["id"]))


def test_every_enqueue_is_answered_while_connections_are_reset(redis_server, url, app, name):
    random.seed(1)
    queues = [f"{name}-{number}" for number in range(2)]
    with Proxy(redis_server.port) as proxy, own_process(proxy.url) as (child, service):
        with Clients(str(service.base_url), queues) as clients:
            until = time.monotonic() + 4
            while time.monotonic() < until:
                reset(proxy)
                time.sleep(random.random() * 0.02)
        assert clients.silent == []
        assert set(clients.statuses) <= {201, 503, 504}, clients.statuses
        for queue in queues:
            assert service.post(f"/v1/queues/{queue}/messages", json={"body": "afterwards"}).status_code == 201
        assert service.get("/healthz").is_success
        assert service.get("/readyz").is_success
        child.terminate()
        said = child.stderr.read().decode()
    assert "never retrieved" not in said
    assert "Traceback" not in said
    ready = {(queue, message.id) for queue in queues for message in everything(app, queue)}
    assert set(clients.enqueued) <= ready


def everything(app, queue):
    from reliq.model.keys import QueueKeys
    from reliq.model.message import Message
    from reliq.ops import command

    elements = app.store.call(command("LRANGE", QueueKeys(queue).messages, 0, -1))
    return [Message.decode(queue, element) for element in elements]
