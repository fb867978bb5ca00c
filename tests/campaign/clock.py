"""A clock of a process that the campaign moves: the wall clock alone, as an operator or a time server would."""

import mmap
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

_OFFSET = struct.Struct("d")  #: seconds


class Clock:
    """How far the clock of one process is ahead, in a file that the process and the campaign share."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_OFFSET.pack(0.0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _OFFSET.size)

    def move(self, seconds: float) -> None:
        """Set the clock so far ahead of the true one, or behind it."""
        _OFFSET.pack_into(self._shared, 0, seconds)

    @property
    def ahead(self) -> float:
        return float(_OFFSET.unpack_from(self._shared, 0)[0])

    def rule(self) -> None:
        """Make it the clock of this process, also of modules that have a name of their own for it."""
        true_time, true_time_ns = time.time, time.time_ns
        moved: dict[object, Callable[[], float]] = {
            true_time: lambda: true_time() + self.ahead,
            true_time_ns: lambda: true_time_ns() + int(self.ahead * 1e9),
        }
        reliq = [module for name, module in list(sys.modules.items()) if name.startswith("reliq")]
        for module in (time, *reliq):
            for name, value in list(vars(module).items()):
                if value is true_time or value is true_time_ns:
                    setattr(module, name, moved[value])
