"""Output of messages, read over HTTP by clients that go on where they were, and what it must be."""

import contextlib
import json
import threading
import time
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


class Client(threading.Thread):
    """Reads the output of a message to its end, as the EventSource of a browser does."""

    def __init__(self, url: str, identity: str, patience: float) -> None:
        super().__init__(daemon=True)
        self.identity = identity
        self.found: list[tuple[str, int, Any]] = []  #: id, run and value of each chunk
        self.connections = 0  #: that were answered
        self.resumed = 0  #: those of them that asked for what is behind a chunk
        self.has_ended = False
        self._path = f"{url}/v1/queues/output/messages/{identity}/output"
        self._until = time.monotonic() + patience
        self.start()

    @property
    def is_between(self) -> bool:
        """Whether it has got chunks, and waits for more."""
        return bool(self.found) and not self.has_ended

    def run(self) -> None:
        while not self.has_ended and time.monotonic() < self._until:
            headers = {"accept": "text/event-stream"}
            if self.found:
                headers["last-event-id"] = self.found[-1][0]
            with contextlib.suppress(httpx.TransportError), httpx.stream("GET", self._path, headers=headers) as answer:
                if answer.is_success:
                    self.connections += 1
                    self.resumed += bool(self.found)
                    self._read(answer)
            time.sleep(0.05)

    def _read(self, answer: httpx.Response) -> None:
        event, identity, data = "message", "", ""
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "id":
                identity = value
            elif name == "data":
                data = value
            elif not line and event == "end":
                self.has_ended = True
            elif not line and data:
                chunk = json.loads(data)
                self.found.append((identity, chunk["run"], chunk["value"]))
                data = ""


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
