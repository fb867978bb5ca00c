"""What handlers print: whole lines, at once."""

import io
import sys
from typing import Any

import pytest

from reliq.cli.streams import print_whole_lines
from tests.support.workers import process

APP = """
import os, signal
import reliq
app = reliq.Reliq()

@app.handler("q")
def handle(message: reliq.Message) -> None:
    print("handled", message.body.decode())
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Pipe(io.RawIOBase):
    """What a program prints into, write by write."""

    def __init__(self):
        self.writes = []

    def writable(self):
        return True

    def write(self, text):
        self.writes.append(bytes(text))
        return len(text)


@pytest.mark.parametrize("unbuffered", [False, True], ids=["buffered", "PYTHONUNBUFFERED"])
def test_each_line_is_written_at_once_and_in_one_piece(monkeypatch, unbuffered):
    pipe = Pipe()
    file: Any = pipe if unbuffered else io.BufferedWriter(pipe)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file, write_through=unbuffered))
    print_whole_lines()
    print("shipped", "part", 7)
    print("shipped", "part", 8, flush=True)
    assert pipe.writes == [b"shipped part 7\n", b"shipped part 8\n"]


def test_what_a_handler_printed_survives_kill_9_of_its_process(app, tmp_path):
    (tmp_path / "shop.py").write_text(APP)
    app.queue("q").send("a parcel")
    with process("worker", "shop:app", "--url", app.url, folder=tmp_path) as worker:
        assert worker.wait(60) == -9
        assert worker.stdout.read() == b"handled a parcel\n"
