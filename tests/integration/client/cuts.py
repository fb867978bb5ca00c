"""A producer and a consumer that lose a share of the replies after the command ran; their results are noted.

The cut is made in the client, between the server's answer and its reader: the server has carried the command out, the
caller gets a connection that ended. A proxy would do the same with three more threads and sockets a connection.
"""

import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from redis import exceptions

import reliq
from reliq.errors import OutcomeUnknown
from reliq.transport.store import Store
from reliq.transport.target import Target


class Cutter:
    """Makes connections of a server; a share of their answers is lost, the same ones for the same seed."""

    def __init__(self, url: str, share: float, seed: int) -> None:
        self._share = share
        self._random = random.Random(seed)
        self.cuts: Counter[str] = Counter()
        self._make = Target(url).factory(aio=False)

    def store(self, url: str) -> Store:
        return Store(url, connect=self._connection)

    def _connection(self) -> Any:
        connection = self._make()
        read = connection.read_response

        def read_response(*arguments: Any, **options: Any) -> Any:
            answer = read(*arguments, **options)
            if self.doing and self._random.random() < self._share:
                self.cuts[self.doing] += 1
                connection.disconnect()
                raise exceptions.ConnectionError("cut after the command ran")
            return answer

        connection.read_response = read_response
        return connection

    doing = ""  #: the verb at work; nothing is cut while there is none

    @contextlib.contextmanager
    def at(self, verb: str):
        self.doing = verb
        try:
            yield
        finally:
            self.doing = ""


@dataclass
class Ledger:
    """What was answered."""

    sent: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)  #: sent to a second queue too
    withdrawn: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)
    acked: set[str] = field(default_factory=set)


VERBS = {"send", "send_many", "publish", "prepare", "commit", "rollback", "claim", "heartbeat", "settle"}


def rounds(url: str, cuts: int, share: float, seed: int, size: int) -> tuple[Cutter, Ledger]:
    """Every verb in turn with bodies of this size, until so many answers were cut, one of each verb; then drain."""
    body = b"x" * size
    cutter, ledger = Cutter(url, share, seed), Ledger()
    app = reliq.Reliq(url, store=cutter.store(url))
    queue = app.queue("q")
    app.subscribe("q", "both", "one")
    app.subscribe("r", "both")
    with queue.consumer(lease=3600) as consumer:
        while cutter.cuts.total() < cuts or set(cutter.cuts) != VERBS:
            _send(cutter, queue, ledger, body)
            _publish(cutter, app, ledger, body)
            _prepare(cutter, queue, ledger, body)
            _handle(cutter, consumer, ledger)
        while messages := consumer.claim(1000):
            ledger.received.update(message.id for message in messages)
            consumer.ack(*messages)
            ledger.acked |= {message.id for message in messages}
    app.close()
    return cutter, ledger


def _send(cutter: Cutter, queue: Any, ledger: Ledger, body: bytes) -> None:
    try:
        with cutter.at("send"):
            ledger.sent.add(queue.send(body))
        with cutter.at("send_many"):
            ledger.sent |= set(queue.send_many([body, body]))
    except OutcomeUnknown as error:
        ledger.unknown |= set(error.ids)


def _publish(cutter: Cutter, app: reliq.Reliq, ledger: Ledger, body: bytes) -> None:
    with cutter.at("publish"):
        both, one = app.publish("both", body), app.publish("one", body)
    ledger.sent |= {both["q"], one["q"]}
    ledger.elsewhere.add(both["r"])


def _prepare(cutter: Cutter, queue: Any, ledger: Ledger, body: bytes) -> None:
    with cutter.at("prepare"):
        committed, withdrawn = queue.prepare(body), queue.prepare(body)
    with cutter.at("commit"):
        assert committed.commit() == committed.commit() == committed.id
    with cutter.at("rollback"):
        withdrawn.rollback()
    ledger.sent.add(committed.id)
    ledger.withdrawn.add(withdrawn.id)


def _handle(cutter: Cutter, consumer: Any, ledger: Ledger) -> None:
    messages: list[reliq.Message] = []
    with cutter.at("claim"), contextlib.suppress(OutcomeUnknown):  # the next claim finds what this one moved
        messages = consumer.claim(3)
    ledger.received.update(message.id for message in messages)
    with cutter.at("heartbeat"):
        assert consumer.heartbeat()
    with cutter.at("settle"):
        consumer.ack(*messages)
    ledger.acked |= {message.id for message in messages}
