"""Commands of `reliq` in this process: what they print and how they end, without starting Python for each."""

import contextlib
import io
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

import reliq
from reliq.cli import main
from reliq.transport.store import Store


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat calls for a tenth of a second: without a Redis, a command waits for the whole time."""
    made: Any
    for made, name in ((Store.__init__, "timeout"), (reliq.Reliq.__init__, "send_timeout")):
        monkeypatch.setitem(made.__kwdefaults__, name, 0.1)


def run(*arguments: str, input: str | None = None, url: str | None = None) -> Done:
    """Run a command with this standard input, on this Redis."""
    given, out, errors = (_stream(text) for text in (input or "", "", ""))
    with mock.patch.object(sys, "stdin", given), contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = main.main([*arguments, *(["--url", url] if url else [])])
        except SystemExit as end:  # argparse, and a command that is not confirmed
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Done(status, _text(out), _text(errors))


def _stream(text: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
