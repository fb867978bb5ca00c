"""What an object keeps: to see that it does not grow with what is over."""

import gc
import logging
import threading
from collections import deque
from types import FunctionType, ModuleType
from typing import Any

_ELSEWHERE = (type, ModuleType, logging.Logger, threading.Thread)  #: lead to what the object does not keep


def kept_by(root: object) -> int:
    """Return how many items the containers have that an object leads to."""
    gc.collect()
    seen, todo, items = set[int](), [root], 0
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, _ELSEWHERE):
            continue
        seen.add(id(one))
        if isinstance(one, (dict, list, set, deque)):
            items += len(one)
        todo += _parts(one)
    return items


def _parts(one: object) -> list[Any]:
    """Return what an object leads to; of a function not the names of its module."""
    return [one.__closure__, one.__defaults__] if isinstance(one, FunctionType) else gc.get_referents(one)
