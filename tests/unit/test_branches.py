"""Branches of a durable handler, in threads and tasks: what they share is made once, and one at a time works on it."""

import asyncio
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from reliq.features.steps.driving import driven, driven_async
from reliq.features.steps.model import Entry, Recorded
from reliq.features.steps.steps import Hand
from reliq.model.keys import QueueKeys
from reliq.protocol.lives import Lives

BRANCHES = 3
RECORDED = Recorded(0, tuple(Entry("s", number + 1, f"b/{number}", b"j1") for number in range(200)))

_pool = ThreadPoolExecutor(BRANCHES)


@pytest.fixture
def hasty():
    """Threads that take turns after few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(branch: Any) -> list[Any]:
    """Run branches that begin at the same moment; return what they have returned."""
    barrier = threading.Barrier(BRANCHES)

    def begin(number: int) -> Any:
        barrier.wait()
        return branch(number)

    return list(_pool.map(begin, range(BRANCHES)))


def hands(was_started: bool) -> list[Hand]:
    """Calls of one message, one of each branch."""
    message: Any = SimpleNamespace(id="a", element=b"a", was_started=was_started, headers={}, enqueued_at=1)
    consumer: Any = SimpleNamespace(lives=Lives(QueueKeys("q")), keys=QueueKeys("q"))
    return at_once(lambda _: Hand(consumer, message))


def hand(was_started: bool) -> Hand:
    return hands(was_started)[0]


def test_branches_share_one_record(hasty):
    for _ in range(300):
        books = [one.book for one in hands(was_started=False)]
        assert len(set(map(id, books))) == 1
        assert books[0].is_read


def test_one_at_a_time_talks_to_redis(hasty):
    together, inside = 0, threading.Semaphore(1)

    def run(act: Any) -> None:
        nonlocal together
        if not inside.acquire(blocking=False):
            together += 1
            return
        time.sleep(0)
        inside.release()

    def doing() -> Any:
        yield from [iter(())] * 5

    for _ in range(1000):
        book = hand(was_started=False).book
        at_once(lambda _, book=book: driven(run, book, doing()))
    assert together == 0


def test_each_finds_what_an_earlier_run_has_recorded(hasty):
    def run(act: Any) -> Any:
        try:
            next(act)
            act.send(RECORDED)
        except StopIteration as end:
            return end.value

    count = len(RECORDED.entries)
    for _ in range(50):
        one = hand(was_started=True)

        def branch(number: int, one: Hand = one) -> Entry:
            return driven(run, one.book, one.entry(f"b/{count - 1 - number}", count - number))

        assert [entry.kind for entry in at_once(branch)] == ["s"] * BRANCHES
        assert one.book.size == 2 * count


def test_the_next_one_waits_for_what_a_cancelled_one_stores():
    did: list[str] = []

    async def run(act: Any) -> None:
        did.append(f"begin {act}")
        await asyncio.sleep(0.02)
        did.append(f"end {act}")

    def doing(name: str) -> Any:
        yield name

    async def story() -> None:
        book = hand(was_started=False).book
        first, second = (asyncio.create_task(driven_async(run, book, doing(name))) for name in "ab")
        await asyncio.sleep(0.01)
        first.cancel()
        second.cancel()  # it has not begun
        await asyncio.gather(first, second, return_exceptions=True)
        await driven_async(run, book, doing("c"))

    asyncio.run(story())
    assert did == ["begin a", "end a", "begin c", "end c"]
