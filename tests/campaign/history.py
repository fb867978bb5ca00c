"""Histories: what a process asked for and what it was answered, one JSON object a line, one file a process.

`f` is the function, `s` its state: `invoke` before the call, then `ok`, `fail` (nothing was done) or `unknown`; `t` is
CLOCK_MONOTONIC, which all processes of a machine share. Each line is written by one call, so a killed process leaves
whole lines, and the line before a call is in the file when the call begins.
"""

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

SUFFIX = ".history"


class Call:
    """A call that was noted and has not ended."""

    def __init__(self, history: "History", function: str, number: int) -> None:
        self._history = history
        self._function = function
        self._number = number

    def ends(self, state: str, **fields: Any) -> None:
        """Note its end: `ok`, `fail` or `unknown`."""
        self._history.note(self._function, state, call=self._number, **fields)


class History:
    """The history of one process. Thread-safe."""

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self._file = os.open(folder / f"{process}{SUFFIX}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._calls = itertools.count()
        self._encode = msgspec.json.Encoder().encode

    def note(self, function: str, state: str, **fields: Any) -> None:
        """Write one line."""
        os.write(self._file, self._encode({"t": monotonic(), "f": function, "s": state, **fields}) + b"\n")

    def invoke(self, function: str, **fields: Any) -> Call:
        """Note that a call begins; its end is noted by `Call.ends`."""
        number = next(self._calls)
        self.note(function, "invoke", call=number, thread=threading.get_ident(), **fields)
        return Call(self, function, number)

    @contextmanager
    def during(self, function: str, **fields: Any) -> Iterator[None]:
        """Note a call that answers nothing."""
        call = self.invoke(function, **fields)
        yield
        call.ends("ok")

    def close(self) -> None:
        os.close(self._file)
