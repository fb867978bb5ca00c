"""A service that lives for months remembers the queues of now, however many there were."""

import asyncio

from reliq import aio
from reliq_api.background import Background
from reliq_api.consume import polls as consume
from reliq_api.consume.homes import remembered_homes
from reliq_api.consume.polls import Poll, Polls


def test_polls_know_a_queue_that_came_after_very_many(app, url, monkeypatch):
    monkeypatch.setattr(consume, "_KNOWN_MOST", 2)

    async def never():
        await asyncio.Event().wait()

    async def known_last():
        async with Background() as background, aio.Reliq(url) as asking:
            polls, homes_of = Polls(asking.store, background), remembered_homes()
            for name in ("first", "second", "third"):
                app.queue(name).send("x")
                await polls.take(Poll(homes_of(name), 1, 15.0, 0.0), never)
            return polls._known

    assert asyncio.run(known_last()) == {"third"}
