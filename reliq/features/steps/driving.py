"""Run the calls of durable handlers, in threads and in asyncio."""

import contextlib
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, TypeVar

from reliq.features.steps.model import Book, Span
from reliq.ops import Steps
from reliq.runtime.origin import itself

T = TypeVar("T")


class Call(NamedTuple):
    """A call of a user's function."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Until(NamedTuple):
    """Wait for the end of a span, for LOOK seconds at most."""

    span: Span


LOOK = 1.0  #: seconds between two looks whether a message that waits for a branch is still here

Doing = Generator[Steps[Any] | Call | Until, Any, T]

FIRST = threading.Lock()  #: held while what all branches of a handler share is made; they may be in threads


def driven(run: Callable[[Steps[Any]], Any], book: Book, doing: Doing[T]) -> T:
    turn = _turn(book, threading)
    advance: Callable[[], Any] = functools.partial(next, doing)
    while True:
        try:
            act = advance()
        except StopIteration as end:
            result: T = end.value
            return result
        except RuntimeError as error:
            raised = itself(error)
            break
        try:
            if isinstance(act, Call):
                done = _not_async(act, act.function(*act.arguments))
            elif isinstance(act, Until):
                done = act.span.over.wait(LOOK)
            else:
                with turn:
                    done = run(act)
            advance = functools.partial(doing.send, done)
        except BaseException as error:  # noqa: BLE001  the generator raises it, or goes on
            advance = functools.partial(doing.throw, error)
    raise raised


async def driven_async(run: Callable[[Steps[Any]], Awaitable[Any]], book: Book, doing: Doing[T]) -> T:
    import asyncio  # only programs that use it load it

    turn = _turn(book, asyncio)

    def release(_: object) -> None:
        turn.release()

    advance: Callable[[], Any] = functools.partial(next, doing)
    while True:
        try:
            act = advance()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            if isinstance(act, Call):
                done = act.function(*act.arguments)
                done = await done if inspect.isawaitable(done) else done
            elif isinstance(act, Until):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(act.span.over.wait(), LOOK)
                done = None
            else:
                await turn.acquire()
                call = asyncio.ensure_future(run(act))
                call.add_done_callback(release)
                done = await asyncio.shield(call)  # if it is cancelled, the next call waits for what this one stores
            advance = functools.partial(doing.send, done)
        except BaseException as error:  # noqa: BLE001  a cancellation too
            advance = functools.partial(doing.throw, error)


def _turn(book: Book, kind: Any) -> Any:
    """Return the lock of a book; `kind`: asyncio or threading, whose locks and events its branches use."""
    with FIRST:
        if book.turn is None:
            book.turn, book.event = kind.Lock(), kind.Event
        return book.turn


def _not_async(call: Call, returned: T) -> T:
    if inspect.iscoroutine(returned):
        returned.close()
        raise TypeError(f"step function {call.function!r} is async, and the handler is not: make both async")
    return returned
