"""Reads that tasks of one event loop share."""

import asyncio

import pytest

from reliq.errors import RedisUnavailable
from reliq.ops.mention import mention
from reliq.transport.shared_reads import SharedRead


def wanted(name, since=b"0-0", seconds=1.0):
    return mention("stream", since, name, seconds, lambda fields: [])


class Server:
    """A stream, read by hand."""

    def __init__(self):
        self.asked = []
        self.answers: asyncio.Queue[object] = asyncio.Queue()

    async def read(self, mention):
        self.asked.append(mention.since)
        answer = await self.answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def shared(steps):
    """Run steps with a read that the first of them has begun."""

    async def run():
        server, read = Server(), SharedRead(wanted("a"))
        waiting = [asyncio.create_task(read.wait(wanted("a")))]
        await asyncio.sleep(0)
        reading = asyncio.create_task(read.run(server.read))
        await asyncio.sleep(0)
        await steps(server, read, waiting)
        for one in waiting:
            one.cancel()
        server.answers.put_nowait(None)
        await asyncio.wait_for(reading, 5)
        return server

    return asyncio.run(run())


def test_a_task_is_told_of_its_own_names_only():
    async def steps(server, read, waiting):
        waiting.append(asyncio.create_task(read.wait(wanted("b"))))
        await asyncio.sleep(0)
        server.answers.put_nowait((b"3-0", ["x", "b"]))
        assert await waiting[1] == (b"3-0", ["b"])
        assert not waiting[0].done()
        server.answers.put_nowait((b"4-1", ["a"]))
        assert await waiting[0] == (b"4-1", ["a"])

    assert shared(steps).asked == [b"0-0", b"3-0"]


def test_one_who_comes_after_its_entry_was_read_is_told_at_once():
    async def steps(server, read, waiting):
        server.answers.put_nowait((b"3-0", ["late"]))
        await asyncio.sleep(0.01)
        assert await read.wait(wanted("late", b"2-9")) == (b"3-0", ["late"])
        assert await read.wait(wanted("late", b"3-0", 0.01)) is None  # it has looked after that entry came

    shared(steps)


def test_one_who_has_looked_before_what_is_remembered_looks_again(monkeypatch):
    monkeypatch.setattr("reliq.transport.shared_reads._REMEMBERED", 2)

    async def steps(server, read, waiting):
        for number in range(1, 5):
            server.answers.put_nowait((b"%d-0" % number, ["x"]))
        await asyncio.sleep(0.01)
        assert await read.wait(wanted("late", b"1-0")) == (b"4-0", ["late"])
        assert await read.wait(wanted("late", b"2-0", 0.01)) is None

    shared(steps)


def test_all_get_the_error_of_a_read():
    async def steps(server, read, waiting):
        waiting.append(asyncio.create_task(read.wait(wanted("b"))))
        await asyncio.sleep(0)
        server.answers.put_nowait(RedisUnavailable("away"))
        for one in waiting:
            with pytest.raises(RedisUnavailable, match="away"):
                await one

    shared(steps)


def test_all_get_an_error_if_the_task_that_reads_is_cancelled():
    async def run():
        server, read = Server(), SharedRead(wanted("a"))
        waiting = asyncio.create_task(read.wait(wanted("a")))
        await asyncio.sleep(0)
        reading = asyncio.create_task(read.run(server.read))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(RedisUnavailable, match="was cancelled"):
            await waiting
        assert reading.cancelled()

    asyncio.run(run())
