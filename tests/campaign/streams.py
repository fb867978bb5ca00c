"""Output of messages, read over HTTP by clients that go on where they were, and what it must be."""

import contextlib
import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import httpx

import reliq
from tests.campaign.output_app import CHUNKS
from tests.support.ports import free_port
from tests.support.workers import process

READERS = 8


class Service:
    """The HTTP service, which is killed and started again on its port."""

    def __init__(self, stack: contextlib.ExitStack, url: str) -> None:
        self._stack = stack
        self._redis = url
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._start()

    def _start(self) -> None:
        arguments = ("api", "--no-auth", "--url", self._redis, "--port", str(self._port), "--quiet")
        self._process = self._stack.enter_context(process(*arguments))

    def kill(self) -> None:
        assert self._process.poll() is None, self._process.communicate()
        self._process.kill()
        self._process.communicate()
        self._start()


Chunks = list[tuple[str, int, Any]]  #: id, run and value of each chunk


class Client(threading.Thread):
    """Reads the output of one message after another to its end, as the EventSource of a browser does."""

    def __init__(self, url: str, ids: Sequence[str], patience: float) -> None:
        super().__init__(daemon=True)
        self.found: dict[str, Chunks] = {one: [] for one in ids}
        self.ended: set[str] = set()
        self.connections = 0  #: that were answered
        self.resumed = 0  #: those of them that asked for what is behind a chunk
        self.is_between = False  #: whether it has got chunks of a message, and waits for more
        self._url = url
        self._until = time.monotonic() + patience
        self.start()

    def run(self) -> None:
        with httpx.Client(base_url=self._url) as client:
            for identity, found in self.found.items():
                while identity not in self.ended and time.monotonic() < self._until:
                    with contextlib.suppress(httpx.TransportError):
                        self._connect(client, identity, found)
                    time.sleep(0.05)

    def _connect(self, client: httpx.Client, identity: str, found: Chunks) -> None:
        headers = {"accept": "text/event-stream", **({"last-event-id": found[-1][0]} if found else {})}
        path = f"/v1/queues/output/messages/{identity}/output"
        with client.stream("GET", path, headers=headers) as answer:
            if answer.is_success:
                self.connections += 1
                self.resumed += bool(found)
                self._read(answer, identity, found)

    def _read(self, answer: httpx.Response, identity: str, found: Chunks) -> None:
        event, chunk_id, data = "message", "", ""
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "id":
                chunk_id = value
            elif name == "data":
                data = value
            elif not line and event == "end":
                self.ended.add(identity)
                self.is_between = False
            elif not line and data:
                chunk = json.loads(data)
                found.append((chunk_id, chunk["run"], chunk["value"]))
                self.is_between, data = True, ""


def check_output(chunks: list[reliq.Chunk]) -> int:
    """Compare the output of a message with what its runs emit; return how many were broken off."""
    runs: dict[int, list[Any]] = {}
    for chunk in chunks:
        assert not runs or chunk.run in (max(runs), max(runs) + 1), "a former run has written"
        runs.setdefault(chunk.run, []).append(chunk.value)
    assert [*runs] == [*range(1, len(runs) + 1)]
    assert all(values == [*range(len(values))] for values in runs.values()), "a chunk is missing, or there twice"
    assert runs[len(runs)] == [*range(CHUNKS)]
    return len(runs) - 1
