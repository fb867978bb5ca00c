"""Taking all items out of a deque that several threads use."""

from collections import deque
from typing import Any


def drained(items: deque[Any]) -> list[Any]:
    """Empty the deque and return its items; an item that another thread takes meanwhile belongs to that thread."""
    taken = []
    while True:
        try:
            taken.append(items.popleft())
        except IndexError:
            return taken
