import asyncio
import pickle

import pytest

from reliq import aio
from reliq.embedded import EmbeddedRedis
from reliq.model.stats import Stats
from reliq_api.ui import sampler as sampler_module
from reliq_api.ui.sampler import COARSE_EVERY, FINE, LOOK, PERIOD, History, Ring, Sampler
from tests.support.workers import eventually


def stats(ready=0, **counters) -> Stats:
    return Stats(
        queue="orders", ready=ready, processing=0, delayed=0, dead=0, waiting=0, oldest_ready_age=0.0, consumers=0,
        paused=False, counters=counters,
    )  # fmt: skip


def test_a_ring_keeps_the_latest_rows_in_order():
    ring = Ring(length=3, width=2)
    for number in range(5):
        ring.append([number, -number])
    assert ring.column(0) == [2, 3, 4]
    assert ring.column(1) == [-2, -3, -4]


def test_a_ring_that_is_not_full_has_what_was_put_in():
    ring = Ring(length=3, width=1)
    ring.append([7])
    assert ring.column(0) == [7]


def test_rates_are_the_growth_of_the_counters_over_time():
    history = History()
    history.add(10.0, stats(enqueued=100, acked=90))
    history.add(12.0, stats(enqueued=130, acked=100, retried=2, reclaimed=1, dead_lettered=1))
    assert history.column("into") == [0, 15]
    assert history.column("out") == [0, 5]
    assert history.column("failed") == [0, 2]


def test_a_redis_that_was_emptied_makes_no_negative_rate():
    history = History()
    history.add(10.0, stats(enqueued=100))
    history.add(12.0, stats(enqueued=3))
    assert history.column("into") == [0, 0]


def test_the_coarse_history_has_every_fifteenth_sample_and_the_rate_between_them():
    history = History()
    for number in range(2 * COARSE_EVERY + 1):
        history.add(number * PERIOD, stats(ready=number, enqueued=4 * number * int(PERIOD)))
    assert history.column("ready", coarse=True) == [0, COARSE_EVERY, 2 * COARSE_EVERY]
    assert history.column("into", coarse=True) == [0, 4, 4]


def test_the_coarse_history_has_each_sample_that_was_taken_while_nobody_looked():
    history = History()
    for number in range(3):
        history.add(number * COARSE_EVERY * PERIOD, stats(ready=number))
    assert history.column("ready", coarse=True) == [0, 1, 2]


def test_a_history_takes_the_same_memory_however_long_it_runs():
    def grown(rounds: int) -> int:
        history = History()
        for number in range(rounds):
            history.add(number * PERIOD, stats())
        return len(pickle.dumps(history))

    assert grown(10 * FINE) < 1.1 * grown(FINE)  # one without bounds would be ten times as large
    assert grown(FINE) < 40_000


def test_the_sampler_reads_every_queue_and_forgets_those_that_are_gone(app, url):
    async def sampled() -> list[set[str]]:
        async with aio.Reliq(url) as reliq:
            sampler = Sampler(reliq.store)
            await sampler.sample()
            first = set(sampler.histories)
            await reliq.store.run(_forget("emails"))
            await sampler.sample()
            return [first, set(sampler.histories)]

    app.queue("orders").send(1)
    app.queue("emails").send(1)
    assert asyncio.run(sampled()) == [{"orders", "emails"}, {"orders"}]


def _forget(queue: str):
    from reliq import ops
    from reliq.model.keys import QUEUES

    return ops.one(ops.command("SREM", QUEUES, queue))


def test_the_sampler_says_that_redis_is_away_and_goes_on_when_it_is_back():
    async def watched(server: EmbeddedRedis) -> list[bool]:
        async with aio.Reliq(server.url, send_timeout=0.05) as reliq:
            await reliq.queue("orders").send(1)
            async with Sampler(reliq.store, period=0.01) as sampler:
                seen = [await until(lambda: bool(sampler.histories))]
                server.kill()
                seen.append(await until(lambda: sampler.error.startswith("Redis cannot be reached")))
                server.start()
                seen.append(await until(lambda: sampler.error == "" and sampler.age < 1))
            return seen

    with EmbeddedRedis() as server:
        assert asyncio.run(watched(server)) == [True, True, True]


def test_the_sampler_reads_often_while_somebody_looks_and_seldom_otherwise(app, url, monkeypatch):
    monkeypatch.setattr(sampler_module, "COARSE_EVERY", 100_000)

    async def watched() -> None:
        async with aio.Reliq(url) as reliq, Sampler(reliq.store, period=0.02) as sampler:
            read = counted(sampler, monkeypatch)
            assert await until(lambda: len(read) == 1)
            await asyncio.sleep(0.2)
            assert len(read) == 1
            app.queue("orders").send(2)
            await sampler.refresh()
            assert (latest := sampler.histories["orders"].latest) is not None
            assert latest.ready == 2
            begun = len(read)
            assert await until(lambda: len(read) >= begun + 5)
            sampler._looked_at -= LOOK  # a minute has passed
            await asyncio.sleep(0.1)
            ended = len(read)
            await asyncio.sleep(0.15)
            assert len(read) <= ended + 1

    app.queue("orders").send(1)
    asyncio.run(watched())


def counted(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows with each sample from now on."""
    read: list[None] = []
    sample = sampler.sample

    async def note() -> None:
        await sample()
        read.append(None)

    monkeypatch.setattr(sampler, "sample", note)
    return read


async def until(condition) -> bool:
    return await asyncio.to_thread(eventually, condition)
