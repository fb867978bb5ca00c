"""The picture of a flow: a column for each layer, a box for each message, a line for each that it waits for."""

from collections.abc import Sequence
from dataclasses import dataclass

from reliq.features.flows.model import FlowMember, FlowProgress

MOST = 200  #: messages that are drawn
WIDTH, HEIGHT = 190, 44  #: of a box
_RIGHT, _DOWN, _EDGE = 60, 14, 8


@dataclass(frozen=True, slots=True)
class Box:
    """A message, by its upper left corner."""

    member: FlowMember
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes, and lines between their middles."""

    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[tuple[int, int, int, int]]


def drawing(flow: FlowProgress) -> Drawing | None:
    """Return the picture of a flow; None: it has too many messages."""
    if len(flow.members) > MOST:
        return None
    layers = flow.layers()
    tallest = max(map(len, layers), default=0)
    boxes: dict[int, Box] = {}
    for column, layer in enumerate(layers):
        above = (tallest - len(layer)) * (HEIGHT + _DOWN) // 2
        for row, one in enumerate(layer):
            x, y = _EDGE + column * (WIDTH + _RIGHT), _EDGE + above + row * (HEIGHT + _DOWN)
            boxes[one.number] = Box(one, x, y)
    lines = [
        (boxes[other].x + WIDTH, boxes[other].y + HEIGHT // 2, box.x, box.y + HEIGHT // 2)
        for box in boxes.values()
        for other in box.member.after
    ]
    width = 2 * _EDGE + len(layers) * (WIDTH + _RIGHT) - _RIGHT
    return Drawing(width, 2 * _EDGE + tallest * (HEIGHT + _DOWN) - _DOWN, [*boxes.values()], lines)
