"""Calls to Redis that come while another one about the same is under way: they go together, in the next call.

A call without others goes at once. Where many come at a time, Redis and the process need a fraction of the time for
each.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from reliq.errors import OutcomeUnknown, QueueFull, ReliqError
from reliq.model.outgoing import NewMessage
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

    def refuse(self, error: BaseException) -> None:
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
        results = await act(_offered(some))
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
    """Answer calls of which some items were carried out before an error."""
    for one, places in _places(some):
        results = {at: error.enqueued[place] for at, place in enumerate(places) if place in error.enqueued}
        if len(results) == len(places):
            one.answer(list(results.values()))
        elif isinstance(error, QueueFull) and len(some) > 1:
            await _alone(one, results, act)
        else:
            one.refuse(error)


async def _alone(one: _Waiting, results: dict[int, Any], act: Act[Any, Any]) -> None:
    """Carry out what is left of a call, and answer it. `results`: of its other items, by their places."""
    left = [at for at in range(len(one.items)) if at not in results]
    rest = _Waiting([one.items[at] for at in left], 0)
    try:
        await _together([rest], act)
    finally:  # it has an answer, also if the call was broken off
        if error := rest.done.exception():
            one.refuse(error)
        else:
            results.update(zip(left, rest.done.result(), strict=True))
            one.answer([results[at] for at in range(len(one.items))])


def _offered(some: list[_Waiting]) -> list[Any]:
    """Return the items of calls. A refusal of several is not counted: then each is offered again alone."""
    items = [item for one in some for item in one.items]
    for item in items:
        if isinstance(item, NewMessage):
            item.offered = len(some) > 1
    return items


def _places(some: list[_Waiting]) -> list[tuple[_Waiting, range]]:
    """Return where the items of each call stand among those of all."""
    found, start = list[tuple[_Waiting, range]](), 0
    for one in some:
        found.append((one, range(start, start := start + len(one.items))))
    return found
