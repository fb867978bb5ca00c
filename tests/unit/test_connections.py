"""When a monitor reads the names of a server's connections again."""

from types import SimpleNamespace
from typing import Any

import pytest

from reliq import ops
from reliq.errors import RedisUnsuitable
from reliq_monitor.connections import SHARE, Connections
from reliq_monitor.known import SLOW_LOOK

ANN, BOB = frozenset({"reliq:cann"}), frozenset({"reliq:cann", "reliq:cbob"})


class Server:
    """Tells of its connections, on a clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.connected_at = 1.0
        self.received, self.names = 7, ANN
        self.takes = 0.0  #: seconds for CLIENT LIST
        self.refuses: set[str] = set()
        self.listed = 0

    @property
    def closed(self) -> int:
        return self.received - len(self.names)

    def look(self, one: Connections, missing: bool = False) -> frozenset[str] | None:
        steps = one.look(missing)
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._answer(request)
                except RedisUnsuitable as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            return end.value

    def _answer(self, request: Any) -> Any:
        command = (request if isinstance(request, ops.Op) else request[0]).command
        if command[0] in self.refuses:
            raise RedisUnsuitable("NOPERM")
        if command[0] == "INFO":
            counts = {"total_connections_received": str(self.received), "connected_clients": str(len(self.names))}
            return [counts, counts]
        self.listed += 1
        self.now += self.takes
        return b"".join(b"id=1 addr=x name=%b age=1\n" % name.encode() for name in self.names)


@pytest.fixture
def server(monkeypatch):
    server = Server()
    monkeypatch.setattr("reliq_monitor.connections.time", SimpleNamespace(monotonic=lambda: server.now))
    return server


@pytest.fixture
def one(server):
    return Connections(several=False, connected_at=lambda: server.connected_at)


def test_names_are_read_again_only_when_the_server_has_closed_a_connection(server, one):
    assert [server.look(one) for _ in range(3)] == [ANN, ANN, ANN]
    server.received, server.names = 8, BOB  # who has come is missing until they are read again
    assert (server.look(one), server.listed) == (ANN, 1)
    assert (server.look(one, missing=True), server.listed) == (BOB, 2)
    server.received, server.names = 9, ANN  # one went, another one came and went
    assert (server.look(one), server.listed) == (ANN, 3)


@pytest.mark.parametrize("attribute", ["connected_at", "now"])
def test_names_are_read_again_from_another_server_and_after_a_while(server, one, attribute):
    server.look(one)
    server.names = frozenset({"reliq:ceve"})
    assert server.look(one) == ANN
    setattr(server, attribute, getattr(server, attribute) + SLOW_LOOK)
    assert server.look(one) == frozenset({"reliq:ceve"})


def test_reading_them_takes_a_small_part_of_the_time(server, one):
    server.takes = 0.1
    assert server.look(one) == ANN
    server.received += 1
    server.names = BOB
    assert (server.look(one, missing=True), server.listed) == (None, 1)
    server.now += 1.01 * server.takes / SHARE
    assert (server.look(one, missing=True), server.listed) == (BOB, 2)


def test_a_server_that_counts_nothing_is_asked_each_time(server, one):
    server.refuses = {"INFO"}
    assert [server.look(one) for _ in range(3)] == [ANN, ANN, ANN]
    assert server.listed == 3


def test_a_server_that_lists_nothing_is_asked_no_more(server, one):
    server.refuses = {"CLIENT"}
    assert server.look(one) is None
    server.refuses = set()
    assert (server.look(one), server.listed) == (None, 0)
