"""Who follows new dead letters keeps nothing of queues that it does not follow any more."""

import logging
from typing import Any

import pytest

from reliq.contrib.new_deaths import DeathReader
from reliq.model.keys import QueueKeys
from reliq.runtime import failures


class Reader(DeathReader):
    def look(self) -> None: ...

    def _letters(self, *_: Any) -> Any:
        return iter(())


@pytest.fixture
def reader() -> Reader:
    return Reader("reader", logging.getLogger("reliq.tests"), lambda _: True)


class Server:
    def call(self, _: Any) -> int:
        return 1_000_000


def test_queues_that_are_not_followed_any_more_are_forgotten(reader: Reader) -> None:
    server: Any = Server()
    for number in range(5):
        reader.look_at_all(server, [QueueKeys(f"q{number}")], lambda _: True)
    assert set(reader._since) == set(reader._seen) == {"q4"}


def test_the_reader_says_how_many_lines_it_has_left_out(
    reader: Reader, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "LINES", 0)
    monkeypatch.setattr(failures, "WINDOW", 0.0)
    monkeypatch.setattr(failures, "_FLUSH_EVERY", 0.0)
    reader._failures.write(logging.ERROR, ("not_finished", "q", "OSError"), "not_finished")
    reader.stop()
    reader.run()
    assert not reader._failures._windows
    assert "left_out=1" in caplog.text
