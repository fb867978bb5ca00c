"""Calls to Redis that come while another one of their kind is under way: they go together, in the next call."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from reliq.errors import QueueFull, ReliqError

T = TypeVar("T")
R = TypeVar("R")

_MOST = 100  #: items of calls that go together
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
    """The calls of a process, by what they are about.

    Without others a call goes at once. Where many come at a time, Redis and this process need a fraction of the time
    for each.
    """

    def __init__(self) -> None:
        self._waiting: dict[object, list[_Waiting]] = {}  #: by what calls are about, while one is under way
        self._tasks = set[asyncio.Task[None]]()

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    async def run(self, about: object, items: list[T], act: Act[T, R], size: int = 0) -> Sequence[R]:
        """Return the results of items; raises the errors of `act`. `size`: their bytes."""
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
                task = asyncio.get_running_loop().create_task(self._others(about, act))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
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
    error: Exception | None = None
    try:
        results: Mapping[int, Any] = dict(enumerate(await act([item for one in some for item in one.items])))
    except ReliqError as raised:
        results, error = raised.enqueued, raised
    except Exception as raised:  # noqa: BLE001  each caller gets it
        results, error = {}, raised
    start = 0
    for one in some:
        places = range(start, start + len(one.items))
        start = places.stop
        if results.keys() >= set(places):
            one.answer([results[place] for place in places])
        elif isinstance(error, QueueFull) and results.keys().isdisjoint(places):
            await _alone(one, act)
        else:
            one.refuse(error or RuntimeError("a call has returned fewer results than it got items"))


async def _alone(one: _Waiting, act: Act[Any, Any]) -> None:
    try:
        one.answer(await act(one.items))
    except Exception as error:  # noqa: BLE001  the caller gets it
        one.refuse(error)
