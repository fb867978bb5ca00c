"""Plots as plain numbers, which the templates draw as SVG; independent of pages, queues and colours."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 300.0, 100.0


@dataclass(frozen=True, slots=True)
class Line:
    """One measure of a plot, in a box of WIDTH x HEIGHT; its right edge is now."""

    name: str
    latest: float
    highest: float
    path: str  #: of an SVG path element; empty without two points
    area: str  #: the path, closed along the bottom


@dataclass(frozen=True, slots=True)
class Chart:
    lines: tuple[Line, ...]
    top: float  #: the value at the upper edge; a round number
    span: float  #: seconds from the left edge to now

    @property
    def empty(self) -> bool:
        return not any(line.path for line in self.lines)


def chart(times: Sequence[float], columns: Mapping[str, Sequence[float]], span: float, now: float) -> Chart:
    """A plot of some measures that share one scale; `times` and `now` in seconds of one clock."""
    highest = max((max(column, default=0.0) for column in columns.values()), default=0.0)
    top = round_up(highest)
    return Chart(tuple(_line(name, times, column, top, span, now) for name, column in columns.items()), top, span)


def _line(name: str, times: Sequence[float], column: Sequence[float], top: float, span: float, now: float) -> Line:
    places = [
        (WIDTH * (1 - (now - at) / span), HEIGHT * (1 - value / top))
        for at, value in zip(times, column, strict=True)
        if now - at <= span
    ]
    path = area = ""
    if len(places) > 1:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        area = f"{path}L{places[-1][0]:.1f} {HEIGHT:.0f}L{places[0][0]:.1f} {HEIGHT:.0f}Z"
    return Line(name, column[-1] if column else 0.0, max(column, default=0.0), path, area)


def round_up(value: float) -> float:
    """Return the smallest of 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15 ... that is not smaller than the value."""
    if value <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value)
