"""The standard streams of a command: one that it was started without, one that cannot be written any more."""

import io
import os
import sys

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_closed() -> None:
    """Open each stream that was closed, as by `2>&-`, on nothing: Python has None for it.

    It gets its own number again, the lowest that is free, which else the first connection would get.
    """
    for name, mode in _MODES.items():
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)  # noqa: FBT003  as the streams of the processes that a command starts
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def print_whole_lines() -> None:
    """Write each printed line at once and in one piece, into a pipe or file too.

    Python keeps what a handler prints back until there are 8 KiB, which the death of the process loses. With
    PYTHONUNBUFFERED it writes each word apart, so that the lines of several processes mix.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, write_through=False)


def write_no_more() -> None:
    """Drop what is printed from now on, and at Python's exit: the reader of standard output is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
