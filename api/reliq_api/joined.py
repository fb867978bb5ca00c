"""Calls to Redis that come while another one about the same is under way: they go together, in the next call.

A call without others goes at once. Where many come at a time, Redis and the process need a fraction of the time for
each.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from reliq.errors import OutcomeUnknown, QueueFull, ReliqError
from reliq_api.background import Background

T = TypeVar("T")
R = TypeVar("R")

_MOST = 250  #: items of calls that go together
_BYTES = 1024 * 1024  #: of these items

Act = Callable[[list[T]], Awaitable[Sequence[R]]]  #: carries out a call; returns a result for each item


class _Waiting:
    """A call that waits for its turn."""

    def __init__(self, items: list[Any], size: int) -> None:
        self.items = items
        self.size = size
        self.done: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()

    def answer(self, results: Sequence[Any]) -> None:
        if not self.done.done():  # its caller may have been cancelled
            self.done.set_result(results)

    def refuse(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Joined:
    """The calls of a process, by what they are about; at most one of each is under way."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._waiting: dict[object, list[_Waiting]] = {}  #: by what calls are about, while one is under way

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    async def run(self, about: object, items: list[T], act: Act[T, R], size: int = 0) -> Sequence[R]:
        """Return the results of items. `size`: their bytes.

        Raises the errors of `act`; OutcomeUnknown if a call that had others in it was broken off.
        """
        waiting = self._waiting.get(about)
        if waiting is not None:
            one = _Waiting(items, size)
            waiting.append(one)
            return await one.done
        self._waiting[about] = []
        try:
            return await act(items)
        finally:
            if self._waiting[about]:
                self._background.start("calls", partial(self._others, about, act))
            else:
                del self._waiting[about]

    async def _others(self, about: object, act: Act[Any, Any]) -> None:
        """Carry out what came meanwhile, until nothing more has come."""
        while some := _first(self._waiting[about]):
            await _together(some, act)
        del self._waiting[about]


def _first(waiting: list[_Waiting]) -> list[_Waiting]:
    """Take the calls that go together next: as many as have room, at least one if there is one."""
    count = size = end = 0
    for one in waiting:
        count, size = count + len(one.items), size + one.size
        if end and (count > _MOST or size > _BYTES):
            break
        end += 1
    some, waiting[:] = waiting[:end], waiting[end:]
    return some


async def _together(some: list[_Waiting], act: Act[Any, Any]) -> None:
    """Carry out calls as one. Where that is too much for the queue, those that did not get in are carried out alone."""
    try:
        results = await act([item for one in some for item in one.items])
        answers = [(one, [results[place] for place in places]) for one, places in _places(some)]
    except ReliqError as error:
        await _in_part(some, error, act)
    except BaseException as error:
        for one in some:
            one.refuse(OutcomeUnknown(f"the call was broken off: {type(error).__name__}"))
        raise
    else:
        for one, answer in answers:
            one.answer(answer)


async def _in_part(some: list[_Waiting], error: ReliqError, act: Act[Any, Any]) -> None:
    """Answer calls of which some were carried out before an error."""
    results: Mapping[int, Any] = error.enqueued
    for one, places in _places(some):
        if results.keys() >= set(places):
            one.answer([results[place] for place in places])
        elif isinstance(error, QueueFull) and len(some) > 1 and results.keys().isdisjoint(places):
            await _together([one], act)
        else:
            one.refuse(error)


def _places(some: list[_Waiting]) -> list[tuple[_Waiting, range]]:
    """Return where the items of each call stand among those of all."""
    found, start = list[tuple[_Waiting, range]](), 0
    for one in some:
        found.append((one, range(start, start := start + len(one.items))))
    return found
