"""Tables on the terminal: columns that do not shift, however long what is in them, and of which nothing is cut."""

import shutil
import sys
from collections.abc import Sequence

_UNBOUNDED = 1 << 16  #: width of a file or a pipe


def columns(rows: Sequence[Sequence[object]], *least: int) -> list[str]:
    """Return a line for each row. `least`: the least width of each column, below 0 for text to the left.

    A cell behind the last column is appended as it is. On a terminal that is too narrow, columns are as narrow as their
    cells; if that is not enough, the first cell of each row has a line of its own.
    """
    lines = _lines(rows, least)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _UNBOUNDED
    if _fits(lines, width):
        return lines
    lines = _lines(rows, [-1 if one < 0 else 1 for one in least])
    if _fits(lines, width):
        return lines
    rest = _lines([row[1:] for row in rows], [-1 if one < 0 else 1 for one in least[1:]])
    return [line for row, others in zip(rows, rest, strict=True) for line in (str(row[0]), f"    {others}")]


def _fits(lines: Sequence[str], width: int) -> bool:
    return all(len(line) <= width for line in lines)


def _lines(rows: Sequence[Sequence[object]], least: Sequence[int]) -> list[str]:
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max([abs(one), *(len(row[place]) for row in texts)]) for place, one in enumerate(least)]
    lines = []
    for row in texts:
        cells = (
            cell.ljust(width) if one < 0 else cell.rjust(width)
            for cell, width, one in zip(row, widths, least, strict=False)
        )
        lines.append(" ".join([*cells, *row[len(least) :]]).rstrip())
    return lines
