"""Many tasks use one reliq.aio.Reliq at the same time: it has few connections, and each call comes to its end."""

import asyncio
import time
from contextlib import suppress

import psutil

import reliq
from reliq.aio import Reliq
from reliq.contract import values
from reliq.embedded import EmbeddedRedis
from reliq.errors import RedisUnavailable
from reliq.ops import command

BURST = 600


def connections_to(url: str) -> int:
    port = int(url.rpartition(":")[2].partition("/")[0])
    return sum(bool(one.raddr) and one.raddr.port == port for one in psutil.Process().net_connections())


def test_a_burst_of_sends_has_few_connections(url):
    async def burst():
        async with Reliq(url) as app:
            ids = await asyncio.gather(*(app.queue("orders").send(number) for number in range(BURST)))
            return len(set(ids)), (await app.queue("orders").stats()).ready, connections_to(url)

    before = connections_to(url)
    distinct, ready, after = asyncio.run(burst())
    assert (distinct, ready) == (BURST, BURST)
    assert after - before <= values.CALLS_AT_ONCE


def test_calls_that_wait_for_something_stop_no_others(url):
    """As many calls as have places wait for a result; others go to several partitions, and send from a hook."""

    class Audit(reliq.Middleware[reliq.Sending]):
        async def before(self, sending):
            if sending.destination == "orders":
                await app.queue("audit").send(sending.messages[0].body)

    async def calls():
        async with app:
            await orders.configure(partitions=3)
            one = await app.queue("prices").send(1)
            results = [app.queue("prices").result(one, wait=30) for _ in range(values.CALLS_AT_ONCE)]
            waiting = asyncio.gather(*results)
            await asyncio.sleep(0.5)
            async with asyncio.timeout(20):
                await asyncio.gather(*(orders.send(n) for n in range(200)), *(orders.stats() for _ in range(200)))
            waiting.cancel()
            await asyncio.wait((waiting,))
            return (await orders.stats()).ready, (await app.queue("audit").stats()).ready

    app = Reliq(url)
    app.middleware(sends=Audit())
    orders = app.queue("orders")
    assert asyncio.run(calls()) == (200, 200)


def test_a_send_that_is_cancelled_while_it_waits_leaves_its_place_to_others(url):
    async def cancelled():
        async with Reliq(url) as app:
            queue = app.queue("orders")
            for _ in range(5):
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.005):
                        await asyncio.gather(*(queue.send(number) for number in range(BURST)))
            async with asyncio.timeout(10):
                return len(set(await asyncio.gather(*(queue.send(number) for number in range(BURST)))))

    assert asyncio.run(cancelled()) == BURST


def test_a_burst_fails_soon_when_redis_is_away():
    async def refused(url):
        async with Reliq(url, send_timeout=1) as app:
            began = time.monotonic()
            ends = await asyncio.gather(*(app.queue("orders").send(n) for n in range(BURST)), return_exceptions=True)
            return {type(end) for end in ends}, {str(end) for end in ends}, time.monotonic() - began

    with EmbeddedRedis() as server:
        url = server.url
    kinds, texts, took = asyncio.run(refused(url))
    assert kinds == {RedisUnavailable}
    assert all(text.startswith(f"Redis at {url} cannot be reached (") for text in texts)
    assert took < 4


def test_a_burst_waits_for_a_slow_redis(url):
    """Calls before it get their answers: a send waits for its turn, for longer than a call is repeated."""

    async def slow():
        async with Reliq(url, send_timeout=0.2) as app, Reliq(url) as other:
            queue = app.queue("orders")
            await queue.send("first")
            ends = asyncio.gather(*(queue.send(number) for number in range(BURST)))
            for _ in range(4):
                await other.store.run(pause_server(400))
                await asyncio.sleep(0.45)
            return len(set(await ends))

    def pause_server(milliseconds):
        return (yield command("CLIENT", "PAUSE", str(milliseconds), "ALL"))

    assert asyncio.run(slow()) == BURST
