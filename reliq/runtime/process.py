"""The process that runs this, as people know it: its host, its number, its title."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from reliq._version import __version__
from reliq.model.worker import Process

_named = ""  #: what the process has been named
_this: Process | None = None


def name_process(title: str) -> None:
    """Give this process a title; without one it is that of setproctitle, else the name of its program."""
    global _named, _this
    _named, _this = title, None


def this_process(title: str = "") -> Process:
    """Return this process, under another title if one is given; a fork is another one."""
    global _this
    if _this is None or _this.pid != os.getpid():
        import socket

        _this = Process(socket.gethostname(), os.getpid(), _title(), int(time.time() * 1000), __version__)
    return replace(_this, title=title) if title else _this


def _title() -> str:
    """Return the title; never the arguments of a program, which may have passwords among them."""
    setproctitle = sys.modules.get("setproctitle")
    if _named or setproctitle is None:
        program = Path(sys.argv[0] if sys.argv else "")
        return _named or (program.parent.name if program.name == "__main__.py" else program.name)
    return str(setproctitle.getproctitle())
