"""Run rows against a real Redis of their own."""

import asyncio
import contextlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any
from unittest.mock import patch

import httpx
import kombu
import redis

import reliq
import reliq.contrib.kombu  # its transport
from reliq import aio
from reliq.embedded import EmbeddedRedis
from reliq.transport.store import Store
from reliq.worker.exchange import Exchange
from reliq_monitor.liveness import OUTAGE_GRACE
from tests.combine.rows import Row
from tests.combine.senders import QUEUE, Sending
from tests.combine.spark import Stream
from tests.combine.story import LASTS, Difference, Story
from tests.combine.takers import ByHand, Kombu, Lease, Receiver, Taker
from tests.combine.workers import Nobody, ProcessStory, WorkerStory
from tests.integration.api.serving import serving
from tests.reference import model
from tests.support.sync_adapter import Blocking
from tests.support.turns import Monitor
from tests.support.workers import eventually


class Runner:
    """Runs rows one after another. They share a server, the HTTP service, and an event loop."""

    def __init__(self, url: str, stack: contextlib.ExitStack) -> None:
        self.url = url
        self._stack = stack
        self.client: Any = stack.enter_context(redis.Redis.from_url(url))
        self._loop = stack.enter_context(asyncio.Runner())
        self._broker: kombu.Connection | None = None

    @cached_property
    def service(self) -> httpx.Client:
        return self._stack.enter_context(serving(self.url))

    def _taker(self, row: Row, app: reliq.Reliq, stack: contextlib.ExitStack) -> Taker:
        match row["face"]:
            case "consumer":
                return ByHand(app)
            case "asyncio consumer":
                on_loop = aio.Reliq(self.url)
                stack.callback(lambda: self._loop.run(on_loop.close()))
                return ByHand(Blocking(on_loop, self._loop))
            case "lease":
                # To send flows, a service trusts for a minute the layout that it knows, of the story before.
                fresh = stack.enter_context(serving(self.url)) if row["deed"] in LASTS else None
                return Lease(lambda: fresh or self.service)
            case "receiver":
                return Receiver(app, 1 if row["outcome"] == "max_deliveries" else None)
            case "kombu":
                return Kombu(self.broker)
            case "spark":
                return Stream(self.url, QUEUE)
            case _:
                return Nobody()

    def broker(self) -> kombu.Connection:
        if self._broker is None:
            self._broker = kombu.Connection(f"reliq+{self.url}", transport_options={"monitor": False})
        return self._broker

    def run(self, row: Row) -> Story:
        """Run the story of a row, to its end; raises Difference at the first one from the model."""
        self.client.flushall()
        with contextlib.ExitStack() as stack:
            app = stack.enter_context(reliq.Reliq(self.url))
            store = Store(self.url)
            stack.callback(store.close)
            sending = Sending(app, model.System(), Monitor(store), lambda: self.service, self.broker, self.client)
            sending.on_failure = row["on_failure"]
            taker = self._taker(row, app, stack)
            stack.callback(self._end, taker)
            kind = {True: WorkerStory, False: Story}[isinstance(taker, Nobody)]
            story = (ProcessStory if row["face"] == "processes" else kind)(row, self.client, sending, taker)
            if isinstance(story, WorkerStory):
                story.handle(row["face"])
            try:
                story.tell()
            except Exception as error:
                raise Difference(f"{_text(row)}\nafter {story.told}:\n{type(error).__name__}: {error}") from error
            return story

    def _end(self, taker: Taker) -> None:
        with contextlib.suppress(Exception):
            taker.leave()
        if self._broker is not None:
            self._broker.release()
            self._broker = None


def _replicate(server: EmbeddedRedis, replica: EmbeddedRedis) -> None:
    """Let the second server have what the first one has: sends may ask for a replica."""
    with redis.Redis(port=server.port) as first, redis.Redis(port=replica.port) as second:
        first.config_set("repl-diskless-sync-delay", 0)
        second.replicaof("127.0.0.1", str(server.port))
        eventually(lambda: first.wait(1, 100) == 1)


def _text(row: Row) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items() if value != "-")


@contextlib.contextmanager
def running() -> Iterator[Runner]:
    with contextlib.ExitStack() as stack:
        server, replica = (stack.enter_context(EmbeddedRedis()) for _ in range(2))
        _replicate(server, replica)
        with redis.Redis(port=server.port) as client:  # old enough that a monitor judges leases at its first look
            eventually(lambda: client.info("server")["uptime_in_seconds"] > OUTAGE_GRACE)
        stack.enter_context(patch.object(Exchange, "wait", _wait_briefly))
        yield Runner(server.url, stack)


def _wait_briefly(exchange: Exchange, limit: int, seconds: float = 0.05, wait: Any = Exchange.wait) -> Any:
    """Wait for messages as an idle worker does, but not for the second that a stop would have to wait for, too."""
    return wait(exchange, limit, min(seconds, 0.05))
