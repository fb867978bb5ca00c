"""Tables on the terminal: columns that do not shift, however long what is in them."""

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[object]], *least: int) -> list[str]:
    """Return a line for each row. `least`: the least width of each column, below 0 for text to the left.

    A cell behind the last column is appended as it is.
    """
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
