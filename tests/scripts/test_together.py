"""A call with many messages leaves what calls with one of them each would leave, though it uses fewer commands."""

import random
from typing import Any

import pytest

from reliq import ops
from reliq.model.element import Extra, group_of, limit_group_of
from reliq.model.partitions import bitmap, bucket_of_key
from reliq.ops import Entry
from tests.support.state import KEYS, element

KEYS_OF_MESSAGES = ("k", "l", "m")
HOMES = ops.OwnedBuckets(bitmap([bucket_of_key(key) for key in KEYS_OF_MESSAGES]), 2, bitmap([bucket_of_key("k")]))
QUEUES = {
    "no limits": {},
    "slots": {"key_concurrency": 2},
    "fair": {"fair": 1},
    "weights": {"key_rate": "9/s", "weight_digests": f"{limit_group_of('k')}=3"},
    "tracked": {"track": 1},
    "flows": {"flowing": 1},
}


def name(number: int) -> str:
    return f"m-{''.join(chr(97 + number // scale % 26) for scale in (676, 26, 1))}"


def some(chance: random.Random, count: int, numbers: int) -> list[Entry]:
    """Messages of all kinds; with few numbers several have the same id."""
    return [made(chance, name(chance.randrange(numbers))) for _ in range(count)]


def made(chance: random.Random, name: str) -> Entry:
    key, kind = chance.choice(KEYS_OF_MESSAGES), chance.choice(("none", "ordered", "laned"))
    fields: dict[str, Any] = {"none": {}, "ordered": {"key": key, "group": group_of(key)}}.get(
        kind, {"limit_key": key, "lane": True, "group": limit_group_of(key)}
    )
    priority = chance.choice((None, None, "high", "low"))
    fields |= {"priority": priority} if priority else {}
    fields |= {"cost": 2.5} if chance.random() < 0.1 else {}
    extra = Extra(**fields) if fields else None
    delay = chance.choice((0.0, 0.0, 0.0, 60.0))
    return Entry(name, element(name, extra=extra), delay, None, 0.0)


@pytest.mark.parametrize("moving", [False, True], ids=["", "moving"])
@pytest.mark.parametrize("config", QUEUES.values(), ids=QUEUES)
def test_many_at_once_leave_what_one_after_another_leave(world, config, moving):
    chance = random.Random(f"{config} {moving}")
    for count in (2, 5, 40, 700):
        before, call = some(chance, chance.choice((0, 1, 6)), 2 * count), some(chance, count, 2 * count)
        states = []
        for apart in (True, False):
            world.redis.flushdb()
            world.given(config=config)
            if moving:
                world.run(ops.take_in(KEYS, HOMES, retired=False))
            for entries in [[one] for one in before + call] if apart else [[one] for one in before] + [call]:
                assert world.run(ops.enqueue(KEYS, [], entries, version=2)).status == "ok"
            state = world.state()
            state.pop("followed", None)  # hints of where to look, which may differ
            states.append(state)
        assert states[0] == states[1]


def test_messages_with_options_follow_those_without_in_one_call(world):
    world.run(ops.enqueue(KEYS, [element("a"), element("b")]))
    world.run(ops.enqueue(KEYS, [element("c")], [Entry(name, element(name), 0.0, None, 0.0) for name in "de"]))
    assert world.state()["messages"] == "e d c b a"


@pytest.mark.parametrize("option", ["key", "limit_key", "priority", "delay"])
def test_a_call_of_a_thousand_uses_few_commands(world, option):
    world.given(config={"key_concurrency": 2})
    entries = []
    for one in map(name, range(1000)):
        extra = {
            "key": Extra(key=one, group=group_of(one)),
            "limit_key": Extra(limit_key=one, lane=True, group=limit_group_of(one)),
            "priority": Extra(priority="high"),
            "delay": None,
        }[option]
        entries.append(Entry(one, element(one, extra=extra), 60.0 if option == "delay" else 0.0, None, 0.0))
    world.run(ops.enqueue(KEYS, []))  # the server knows the script from here on
    world.redis.config_resetstat()
    world.run(ops.enqueue(KEYS, [], entries))
    counts = {command: one["calls"] for command, one in world.redis.info("commandstats").items()}
    assert sum(counts.values()) < 50, counts
