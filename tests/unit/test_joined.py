"""Calls that come while another one is under way go together, and each one gets what it would have got alone."""

import asyncio

import pytest

from reliq.errors import QueueFull, RedisUnavailable
from reliq_api.background import Background
from reliq_api.joined import Joined


def told(story):
    """Run a story that is given the calls of a process."""

    async def scene():
        async with Background() as background:
            await story(Joined(background))

    asyncio.run(scene())


class Redis:
    """Carries out calls when it is told to; doubles each item."""

    def __init__(self, room=10**9):
        self.calls = []
        self.done = 0
        self.room = room
        self.goes_on = asyncio.Event()

    async def double(self, items):
        self.calls.append(items)
        await self.goes_on.wait()
        if self.done + len(items) > self.room:
            raise QueueFull("no room")
        self.done += len(items)
        return [item * 2 for item in items]


async def gathered(joined, redis, *calls, size=0):
    """Begin calls one after another, let them be carried out, and return what each one got."""
    tasks = []
    for items in calls:
        tasks.append(asyncio.ensure_future(joined.run("q", items, redis.double, size)))
        await asyncio.sleep(0)
    redis.goes_on.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_what_comes_while_a_call_is_under_way_goes_together():
    async def story(joined):
        redis = Redis()
        assert await gathered(joined, redis, [1], [2], [3, 4], [5]) == [[2], [4], [6, 8], [10]]
        assert redis.calls == [[1], [2, 3, 4, 5]]

    told(story)


def test_a_call_without_others_goes_at_once_and_leaves_nothing():
    async def story(joined):
        redis = Redis()
        redis.goes_on.set()
        for item in range(3):
            assert await joined.run("q", [item], redis.double) == [item * 2]
        assert redis.calls == [[0], [1], [2]]
        assert not joined.busy

    told(story)


def test_what_is_about_something_else_does_not_wait():
    async def story(joined):
        waits, goes = Redis(), Redis()
        goes.goes_on.set()
        first = asyncio.ensure_future(joined.run("a", [1], waits.double))
        await asyncio.sleep(0)
        assert await joined.run("b", [2], goes.double) == [4]
        waits.goes_on.set()
        assert await first == [2]
        assert not joined.busy

    told(story)


@pytest.mark.parametrize(
    ("items", "size", "groups"),
    [([1] * 150, 0, [150, 150, 150]), ([1], 600_000, [1, 1, 1]), ([1], 500_000, [1, 2])],
    ids=["items", "bytes", "both"],
)
def test_a_call_does_not_grow_without_limit(items, size, groups):
    async def story(joined):
        redis = Redis()
        await gathered(joined, redis, items, items, items, size=size)
        assert [len(call) for call in redis.calls] == groups

    told(story)


def test_where_a_queue_has_room_for_some_they_get_in():
    async def story(joined):
        redis = Redis(room=4)
        one, two, three, four = await gathered(joined, redis, [1], [2], [3, 4, 5], [6])
        assert (one, two, four) == ([2], [4], [12])
        assert isinstance(three, QueueFull)

    told(story)


def test_what_was_enqueued_is_not_sent_again_and_the_rest_of_a_call_goes_alone():
    async def story(joined):
        redis = Redis()

        async def half(items):
            if len(redis.calls) == 1:
                redis.calls.append(items)
                error = QueueFull("full")
                error.enqueued = {0: "a", 1: "b"}
                raise error
            return await redis.double(items)

        first = asyncio.ensure_future(joined.run("q", [1], half))
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(joined.run("q", items, half)) for items in ([2], [3, 4])]
        await asyncio.sleep(0)
        redis.goes_on.set()
        assert await asyncio.gather(first, *others) == [[2], ["a"], ["b", 8]]
        assert redis.calls == [[1], [2, 3, 4], [4]]

    told(story)


def test_an_error_is_that_of_each_call():
    async def story(joined):
        calls, goes_on = [], asyncio.Event()

        async def fails(items):
            calls.append(items)
            await goes_on.wait()
            raise RedisUnavailable("away")

        tasks = []
        for item in range(3):
            tasks.append(asyncio.ensure_future(joined.run("q", [item], fails)))
            await asyncio.sleep(0)
        goes_on.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in answers] == [RedisUnavailable] * 3
        assert calls == [[0], [1, 2]]
        assert not joined.busy

    told(story)


def test_a_caller_that_is_cancelled_takes_nothing_from_the_others():
    async def story(joined):
        redis = Redis()
        tasks = []
        for items in ([1], [2], [3]):
            tasks.append(asyncio.ensure_future(joined.run("q", items, redis.double)))
            await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
        await asyncio.sleep(0)
        redis.goes_on.set()
        assert await tasks[2] == [6]

    told(story)
