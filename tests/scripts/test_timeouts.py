"""When parked messages stop waiting: shared/timeouts.lua beside a dict, on a real server."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import reliq.features.steps
from tests.support.state import KEYS, World
from tests.support.timeouts import read_timeouts

_SHARED = Path(reliq.features.steps.__file__).parent / "lua" / "shared" / "timeouts.lua"
_CALLS = """
if ARGV[1] == 'add' then add_timeout(KEYS[1], tonumber(ARGV[2]), ARGV[3]) end
if ARGV[1] == 'remove' then remove_timeout(KEYS[1], tonumber(ARGV[2]), ARGV[3]) end
if ARGV[1] == 'take' then return take_timeouts(KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3])) end
"""
Run = Callable[..., Any]


@pytest.fixture
def run(world: World) -> Run:
    script = world.redis.register_script(_SHARED.read_text() + _CALLS)
    return lambda *words: script(keys=[KEYS.waits], args=words)


def ids(chance: random.Random) -> list[str]:
    """Ids of all kinds; those that look like UUIDs, and are none, come back as they are."""
    uuids = [str(UUID(int=chance.getrandbits(128))) for _ in range(300)]
    return [
        *uuids, *(one.upper() for one in uuids[:20]), *(f"order-{number}" for number in range(100)), "x" * 128,
        "0" * 36, "1234567-89ab-cdef-0123-456789abcdef0", "12345678-9abc-def0-1234-56789abcdefg",
        "123456789-abc-def0-1234-56789abcdef0", "-" * 36, "abcdefgh12345678",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_what_is_added_is_there_until_it_is_removed_or_taken_in_its_order(world: World, run: Run, seed: int):
    chance = random.Random(seed)
    free, known = ids(chance), dict[str, int]()
    world.redis.zadd(KEYS.waits, {"\nearly": 5_000, "\n\nbrought": 7})
    spread, clock = [1, 20, 2_000, 1_000_000][seed % 4], 1_700_000_000_000
    for _ in range(600):
        act = chance.choices(["add", "remove", "take"], [5, 4 if len(known) > 200 else 2, 0.2])[0]
        if act == "add" and free:
            one = free.pop(chance.randrange(len(free)))
            clock += 3 * (seed > 3)  # most times come in their order
            known[one] = clock + chance.randrange(spread) * (seed < 4 or chance.random() < 0.1)
            run("add", known[one], one)
        elif act == "remove" and known:
            one = chance.choice(sorted(known))
            run("remove", known.pop(one), one)
            free.append(one)
        elif act == "take" and known:
            now = chance.choice(sorted(known.values())) - chance.choice([0, 1, 2])
            limit = chance.choice([1, 10, 100])
            taken = [one.decode() for one in run("take", now, limit)]
            due = sorted(at for at in known.values() if at <= now)[:limit]
            assert [known.pop(one) for one in taken] == due, "the earliest first, and none too early"
            free += taken
        assert read_timeouts(world.redis, KEYS.waits) == known
    assert world.redis.zscore(KEYS.waits, "\nearly") == 5_000
    assert sorted(run("take", 1_800_000_000_000, 10_000)) == sorted(one.encode() for one in known)
    assert world.redis.zcard(KEYS.waits) == 2


@pytest.mark.parametrize("order", ["as time goes", "by chance"])
def test_each_of_many_timeouts_is_kept_in_less_than_60_bytes(world: World, run: Run, order: str):
    chance, count = random.Random(1), 5_000
    times = list(range(1_700_000_000_000, 1_700_000_000_000 + count))
    if order == "by chance":
        chance.shuffle(times)
    pipe = world.redis.pipeline(transaction=False)
    script = world.redis.register_script(_SHARED.read_text() + _CALLS)
    known = {str(UUID(int=chance.getrandbits(128))): at for at in times}
    for one, at in known.items():
        script(keys=[KEYS.waits], args=["add", at, one], client=pipe)
    pipe.execute()
    assert read_timeouts(world.redis, KEYS.waits) == known
    assert (world.redis.memory_usage(KEYS.waits, samples=0) or 0) / count < 60


def test_an_entry_whose_first_message_was_removed_is_looked_at_too_early_and_stays(world: World, run: Run):
    for at, one in ((5, "a"), (8, "b"), (9, "c")):
        run("add", at, one)
    run("remove", 5, "a")
    assert run("take", 6, 10) == []
    assert read_timeouts(world.redis, KEYS.waits) == {"b": 8, "c": 9}
    assert run("take", 8, 10) == [b"b"]


def test_removing_what_is_not_there_changes_nothing(world: World, run: Run):
    run("add", 5, "a")
    for at, one in ((5, "b"), (4, "a"), (6, "a")):
        run("remove", at, one)
    assert read_timeouts(world.redis, KEYS.waits) == {"a": 5}
