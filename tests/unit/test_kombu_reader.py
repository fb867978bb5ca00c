"""The reader of one queue of kombu's transport, with an exchange that fails."""

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from reliq.contract import values
from reliq.contrib.kombu.consuming import Reader
from reliq.errors import RedisUnavailable


class Credit:
    """Has room for one message, then for none, then its reader is stopped."""

    def __init__(self) -> None:
        self.reader: Any = None
        self._rooms = [1, 0, 0]

    def reserve(self, stopping: threading.Event) -> int:
        if not self._rooms:
            self.reader.stop()
            return 0
        return self._rooms.pop(0)

    def give_back(self, count: int) -> None:
        pass

    def changed(self) -> None:
        pass


def test_a_reader_without_room_does_not_say_that_its_queue_works_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(values, "RECONNECT_PAUSE", 0.01)

    def claim(room: int) -> list[Any]:
        raise RedisUnavailable("the node is away")

    exchange = SimpleNamespace(steps=SimpleNamespace(consumer="c"), settle_and_claim=claim)
    credit: Any = Credit()
    credit.reader = reader = Reader(SimpleNamespace(queue="q", exchange=exchange), None, credit, None, lambda: None)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        reader.run()
    assert [one.getMessage() for one in caplog.records] == ["reading q: the node is away"]
